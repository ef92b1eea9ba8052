"""``batchscale summary``: the studies of records and how their trials ended."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from batchscale.records.summary import Summary

LEFT_SOMETHING_OUT = 2
VERSION = 1
NUMBERS = range(3, 8)


def summary(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="RECORDS", help="A tree or a folder of one, a table, or an archive.", show_default=False
        ),
    ],
    json_: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Show the studies, their trials by status, and the totals.

    Exit code 2 if something damaged had to be left out; what it was is said on standard error.
    """
    from batchscale.cli.output import print_json
    from batchscale.records.read import read_records
    from batchscale.records.summary import summarize

    notices: list[str] = []
    result = summarize(read_records(path, notices.append))
    if json_:
        totals = {
            "studies": result.num_studies,
            "trials": result.num_trials,
            "measurements": result.num_measurements,
        }
        print_json({"version": VERSION, "studies": result.table.to_dicts(), "totals": totals})
    else:
        _print_table(result)
    for notice in notices:
        typer.echo(f"Notice: {notice}", err=True)
    if notices:
        raise typer.Exit(LEFT_SOMETHING_OUT)


def _print_table(result: "Summary") -> None:
    """A Markdown table, as the archive's own README has it; narrower ones where a terminal has no room for that."""
    from rich.box import MARKDOWN
    from rich.console import Console
    from rich.table import Table

    from batchscale.cli.output import available_width, print_table

    names, cells = _cells(result)
    table = Table(box=MARKDOWN)
    for place, name in enumerate(names):
        table.add_column(name, justify="right" if place in NUMBERS else "left", no_wrap=name != "Notes")
    for row in cells:
        table.add_row(*row)
    console = Console(markup=False, highlight=False, width=10_000)
    width = available_width()
    if width is not None and console.measure(table).maximum > width:
        print_table(names, cells, right=NUMBERS)
    else:
        console.print(table)
    typer.echo(
        f"{result.num_studies:,} studies, {result.num_trials:,} trials, {result.num_measurements:,} measurements."
    )


def _cells(result: "Summary") -> tuple[list[str], list[list[str]]]:
    """Column names and cells; a workload stands in its first row only, notes where there are any."""
    from batchscale.errors import one_line

    names = ["Dataset", "Model", "Optimizer", "Batch Size", "Complete", "Incomplete", "Infeasible", "Measurements"]
    noted = result.table["notes"].null_count() < result.num_studies
    cells = []
    previous = None
    for *workload, batch_size, complete, incomplete, infeasible, measurements, notes in result.table.rows():
        shown = ["", "", ""] if workload == previous else [one_line(name) for name in workload]
        counts = [str(count) for count in (batch_size, complete, incomplete, infeasible, measurements)]
        cells.append([*shown, *counts, *([notes or ""] if noted else [])])
        previous = workload
    return names + (["Notes"] if noted else []), cells
