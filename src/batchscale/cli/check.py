"""``batchscale check``: everything in records that the format does not allow."""

from pathlib import Path
from typing import Annotated

import typer

VIOLATIONS_FOUND = 1
NOT_ALL_READABLE = 2
VERSION = 1


def check(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="RECORDS", help="A tree or a folder of one, a table, or an archive.", show_default=False
        ),
    ],
    json_: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """List every violation of the records format, with path and line.

    Exit code 0: there are none. 1: there are some. 2: some files or links could not be read, so there may be more.
    """
    from batchscale.cli.output import print_json
    from batchscale.records.check.stored import check_records

    violations = check_records(path)
    if json_:
        rows = [{"path": str(v.path), "line": v.line, "rule": v.rule, "found": v.found} for v in violations]
        print_json({"version": VERSION, "violations": rows})
    else:
        for violation in violations:
            typer.echo(str(violation))
        typer.echo(f"{len(violations)} violations." if violations else "No violations.")
    unreadable = [violation for violation in violations if violation.is_unreadable]
    if unreadable:
        typer.echo(f"Error: not everything could be read. {unreadable[0]}.", err=True)
        raise typer.Exit(NOT_ALL_READABLE)
    if violations:
        raise typer.Exit(VIOLATIONS_FOUND)
