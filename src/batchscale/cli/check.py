"""``batchscale check``: every violation of the records format."""

from pathlib import Path
from typing import Annotated

import typer

from batchscale.cli.selection import JSON_HELP

VIOLATIONS_FOUND = 1
NOT_ALL_READABLE = 2
VERSION = 1


def check(
    path: Annotated[
        Path,
        typer.Argument(metavar="RECORDS", help="A records tree or a folder of one, a table, or an archive."),
    ],
    json_: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """List every violation of the records format, with path and line.

    Also counts the files that no checksum covers. Exit code 0: no violations. 1: violations. 2: some files or links
    could not be read, so there may be more.
    """
    from batchscale.cli.output import print_json
    from batchscale.records.check.stored import check_records

    uncovered: list[Path] = []
    violations = check_records(path, uncovered.append)
    if json_:
        rows = [{"path": str(v.path), "line": v.line, "rule": v.rule, "found": v.found} for v in violations]
        print_json({"version": VERSION, "violations": rows, "not_covered": len(uncovered)})
    else:
        for violation in violations:
            typer.echo(str(violation))
        typer.echo(f"{len(violations)} violations." if violations else "No violations.")
        if uncovered:
            typer.echo(
                f"Not covered: {len(uncovered):,} of the files study.json and metadata.json have no checksum, so that "
                f"changes there cannot be found. The first: {uncovered[0]}."
            )
    unreadable = [violation for violation in violations if violation.is_unreadable]
    if unreadable:
        typer.echo(f"Error: some files could not be read. {unreadable[0]}.", err=True)
        raise typer.Exit(NOT_ALL_READABLE)
    if violations:
        raise typer.Exit(VIOLATIONS_FOUND)
