"""``batchscale export``: a records tree from a table."""

from pathlib import Path
from typing import Annotated

import typer

from batchscale.cli.selection import JSON_HELP
from batchscale.formatting import count_text

VERSION = 1


def export(
    table: Annotated[Path, typer.Argument(help="A table of 'batchscale import'.")],
    out: Annotated[Path, typer.Option(help="The folder to write. It must not exist.")],
    json_: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Write a table as a records tree, the published folder layout."""
    from batchscale.records.table.export import export_records

    summary = export_records(table, out)
    if json_:
        from batchscale.cli.output import print_json

        counts = {"studies": summary.studies, "trials": summary.trials, "measurements": summary.measurements}
        print_json({"version": VERSION, "tree": str(summary.tree), **counts})
        return
    typer.echo(
        f"{summary.tree}: {count_text(summary.studies, 'study', 'studies')}, {count_text(summary.trials, 'trial')}, "
        f"{count_text(summary.measurements, 'measurement')}"
    )
