"""``batchscale import``: a fast table from an archive or a records tree."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.output import print_json
from batchscale.cli.selection import print_notice
from batchscale.formatting import count_text

if TYPE_CHECKING:
    from batchscale.records.table.import_records import ImportSummary, Progress

MAX_PROBLEMS = 20
VERSION = 1
READING_SHARE = 0.9  # of the time of an import


def import_(
    source: Annotated[Path, typer.Argument(help="A tar archive (plain, bz2, gz, xz, zst) or a records tree.")],
    out: Annotated[Path, typer.Option(help="The table to write. It must not exist.")],
    verify: Annotated[
        str | None,
        typer.Option(metavar="SHA256", help="The checksum to verify, or batch_science for the published one."),
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Leave out damaged parts and import the rest.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing table.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the summary as a JSON object instead of text.")] = False,
) -> None:
    """Import an archive or a records tree into a fast table.

    The archive is read once and never unpacked. The table appears when it is complete; an interrupted import starts
    again.
    """
    from batchscale.records.table.import_records import ImportOptions, import_records
    from batchscale.records.table.source import looks_published

    with _progress() as on_progress:
        summary = import_records(
            source,
            out,
            ImportOptions(keep_going=keep_going, verify=verify, overwrite=overwrite, on_progress=on_progress),
        )
    if looks_published(summary.source):
        print_notice("the archive has the size of the published one but another checksum. Download it again.")
    _print_json(summary) if json_ else _print_summary(summary)


def _print_summary(summary: "ImportSummary") -> None:
    statuses = ", ".join(f"{count:,} {status}" for status, count in summary.trials.items())
    studies = count_text(summary.studies, "study", "studies")
    typer.echo(f"{summary.table}: {count_text(summary.workloads, 'workload')}, {studies}")
    typer.echo(f"trials        {sum(summary.trials.values()):,} ({statuses})")
    typer.echo(f"measurements  {summary.measurements:,}")
    typer.echo(f"metrics       {', '.join(summary.metrics)}")
    typer.echo(f"problems      {len(summary.problems):,}")
    for problem in summary.problems[:MAX_PROBLEMS]:
        typer.echo(f"  {problem}", err=True)
    if len(summary.problems) > MAX_PROBLEMS:
        typer.echo(f"  and {len(summary.problems) - MAX_PROBLEMS:,} more, all in the table's manifest.json", err=True)
    if not summary.complete:
        print_notice("the archive is damaged. The table has everything before the damage.")


def _print_json(summary: "ImportSummary") -> None:
    print_json(
        {
            "version": VERSION,
            "table": str(summary.table),
            "workloads": summary.workloads,
            "studies": summary.studies,
            "trials": summary.trials,
            "measurements": summary.measurements,
            "metrics": list(summary.metrics),
            "problems": list(summary.problems),
            "complete": summary.complete,
            "source": summary.source,
        }
    )


@contextmanager
def _progress() -> Iterator[Callable[["Progress"], None]]:
    """Show a bar with an estimate of the time left, in a terminal only."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=1.0)

        def show(progress: "Progress") -> None:
            done = READING_SHARE * progress.read + (1 - READING_SHARE) * progress.written
            what = "writing" if progress.written else "reading"
            bar.update(task, completed=done, description=f"{what}, {progress.trials:,} trials")

        yield show
