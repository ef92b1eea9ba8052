"""``batchscale summary``: the studies of records and how their trials ended."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from batchscale.records.summary import Summary

LEFT_SOMETHING_OUT = 2
VERSION = 1


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
    from rich.box import MARKDOWN
    from rich.console import Console
    from rich.table import Table

    from batchscale.errors import one_line

    table = Table(box=MARKDOWN)
    for name in ("Dataset", "Model", "Optimizer"):
        table.add_column(name, overflow="fold", no_wrap=True)
    for name in ("Batch Size", "Complete", "Incomplete", "Infeasible", "Measurements"):
        table.add_column(name, justify="right", no_wrap=True)
    noted = result.table["notes"].null_count() < result.num_studies
    if noted:
        table.add_column("Notes")
    previous = None
    for *workload, batch_size, complete, incomplete, infeasible, measurements, notes in result.table.rows():
        names = ["", "", ""] if workload == previous else [one_line(name) for name in workload]
        counts = (batch_size, complete, incomplete, infeasible, measurements)
        table.add_row(*names, *(str(count) for count in counts), *([notes] if noted else []))
        previous = workload
    console = Console(markup=False, highlight=False)
    if not console.is_terminal:
        console.width = 10_000  # a pipe has no width: nothing may be cut
    console.print(table)
    console.print(
        f"{result.num_studies:,} studies, {result.num_trials:,} trials, {result.num_measurements:,} measurements."
    )
