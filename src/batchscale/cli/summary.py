"""``batchscale summary``: the studies of records and their trials by status."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.selection import JSON_HELP
from batchscale.formatting import count_text, tokens_text

if TYPE_CHECKING:
    from batchscale.records.summary import Summary

LEFT_SOMETHING_OUT = 2
VERSION = 1
NUMBERS = range(3, 8)
TOKENS = "Tokens a Batch"


def summary(
    path: Annotated[
        Path,
        typer.Argument(metavar="RECORDS", help="A records tree or a folder of one, a table, or an archive."),
    ],
    json_: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """List the studies of records, with their trials by status.

    Exit code 2 if damaged parts were left out; standard error names them.
    """
    from batchscale.cli.output import print_json
    from batchscale.records.metadata.columns import stored_choices
    from batchscale.records.read import read_records
    from batchscale.records.summary import summarize

    notices: list[str] = []
    records = read_records(path, notices.append)
    result = summarize(records)
    choices = {str(name): stored_choices(records.workload(name).studies) for name in records.workloads}
    if json_:
        totals = {
            "studies": result.num_studies,
            "trials": result.num_trials,
            "measurements": result.num_measurements,
        }
        rounds = [{"workload": name, **asdict(choice)} for name, chosen in choices.items() for choice in chosen]
        print_json({"version": VERSION, "studies": result.table.to_dicts(), "totals": totals, "choices": rounds})
    else:
        _print_table(result)
        for choice in (choice for chosen in choices.values() for choice in chosen):
            typer.echo(str(choice))
    for notice in notices:
        typer.echo(f"Notice: {notice}", err=True)
    if notices:
        raise typer.Exit(LEFT_SOMETHING_OUT)


def _print_table(result: "Summary") -> None:
    """Print a Markdown table as in the archive's own README, or a narrower table if the terminal is too small."""
    from rich.box import MARKDOWN
    from rich.console import Console
    from rich.table import Table

    from batchscale.cli.output import available_width, print_table

    names, cells = _cells(result)
    table = Table(box=MARKDOWN)
    for i, name in enumerate(names):
        table.add_column(name, justify="right" if i in NUMBERS or name == TOKENS else "left", no_wrap=name != "Notes")
    for row in cells:
        table.add_row(*row)
    console = Console(markup=False, highlight=False, width=10_000)
    width = available_width()
    if width is not None and console.measure(table).maximum > width:
        print_table(names, cells, right=NUMBERS)
    else:
        console.print(table)
    typer.echo(
        f"{count_text(result.num_studies, 'study', 'studies')}, {count_text(result.num_trials, 'trial')}, "
        f"{count_text(result.num_measurements, 'measurement')}."
    )


def _cells(result: "Summary") -> tuple[list[str], list[list[str]]]:
    """Return column names and cells; only the first row of a workload names it."""
    from batchscale.errors import one_line

    names = ["Dataset", "Model", "Optimizer", "Batch Size", "Complete", "Incomplete", "Infeasible", "Measurements"]
    has_notes = result.table["notes"].null_count() < result.num_studies
    has_tokens = result.table["batch_size_tokens"].null_count() < result.num_studies
    cells = []
    previous = None
    for *workload, batch_size, complete, incomplete, infeasible, measurements, notes, tokens in result.table.rows():
        names_cells = ["", "", ""] if workload == previous else [one_line(name) for name in workload]
        counts = [str(count) for count in (batch_size, complete, incomplete, infeasible, measurements)]
        counts += ["" if tokens is None else tokens_text(tokens)] if has_tokens else []
        cells.append([*names_cells, *counts, *([notes or ""] if has_notes else [])])
        previous = workload
    return names + ([TOKENS] if has_tokens else []) + (["Notes"] if has_notes else []), cells
