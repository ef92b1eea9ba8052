"""``batchscale export``: a table as a records tree again."""

from pathlib import Path
from typing import Annotated

import typer

VERSION = 1


def export(
    table: Annotated[Path, typer.Argument(help="A table made by batchscale import.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", help="The tree to write; nothing may be there.", show_default=False)],
    json_: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Write a table in the published directory layout."""
    from batchscale.records.table.export import export_records

    summary = export_records(table, out)
    if json_:
        from batchscale.cli.output import print_json

        counts = {"studies": summary.studies, "trials": summary.trials, "measurements": summary.measurements}
        print_json({"version": VERSION, "tree": str(summary.tree), **counts})
        return
    typer.echo(
        f"{summary.tree}: {summary.studies:,} studies, {summary.trials:,} trials, {summary.measurements:,} measurements"
    )
