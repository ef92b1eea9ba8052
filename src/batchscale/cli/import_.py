"""``batchscale import``: a fast table from an archive or a records tree, a records tree from runs of other tools."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.import_runs import RunOptions, import_runs
from batchscale.cli.output import print_json
from batchscale.cli.selection import print_notice
from batchscale.errors import RecordsError, one_line
from batchscale.formatting import count_text

if TYPE_CHECKING:
    from batchscale.records.table.import_records import ImportSummary, Progress

MAX_PROBLEMS = 20
VERSION = 1
READING_SHARE = 0.9  # of the time of an import


def import_(
    source: Annotated[
        Path,
        typer.Argument(
            help="A tar archive (plain, bz2, gz, xz, zst), a records tree, or runs that another tool recorded."
        ),
    ],
    out: Annotated[
        Path, typer.Option(help="The table to write, or the records tree for runs of other tools. It must not exist.")
    ],
    verify: Annotated[
        str | None,
        typer.Option(metavar="SHA256", help="The checksum to verify, or batch_science for the published one."),
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="Leave out damaged parts and import the rest.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing table.")] = False,
    from_: Annotated[
        str | None, typer.Option("--from", metavar="TOOL", help="The tool that recorded the runs. Default: recognised.")
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The runs' dataset/model/optimizer; {name} stands for a value of each run."),
    ] = None,
    batch_size: Annotated[
        str | None, typer.Option(metavar="NAME", help="The value that is the batch size, or a number for all runs.")
    ] = None,
    metric: Annotated[
        str | None, typer.Option(metavar="NAME", help="The goal's metric, if there is no goal yet.")
    ] = None,
    goal: Annotated[
        str | None, typer.Option(help="The goal, such as 'val_loss < 0.3', with the metric's name in the source.")
    ] = None,
    step: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column or metric that counts the steps.")
    ] = None,
    unit: Annotated[str | None, typer.Option(help="The unit that it counts: steps, epochs or examples.")] = None,
    first_epoch: Annotated[
        int | None, typer.Option(min=0, max=1, help="The number that the first finished epoch has.")
    ] = None,
    num_train_examples: Annotated[
        int | None, typer.Option(min=1, help="The size of the training set, to convert epochs.")
    ] = None,
    drop_last: Annotated[
        bool, typer.Option("--drop-last", help="An epoch leaves out the last, smaller batch.")
    ] = False,
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only the runs of this study, experiment or project.")
    ] = None,
    rename: Annotated[
        list[str] | None, typer.Option(metavar="OLD=NEW", help="A metric's name in the records, such as loss=val/loss.")
    ] = None,
    parameter: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A metaparameter. Default: the numbers in which runs differ."),
    ] = None,
    trial: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column of a table that tells trials apart.")
    ] = None,
    name_pattern: Annotated[
        str | None, typer.Option(metavar="REGEX", help="Values in the runs' names, as named groups.")
    ] = None,
    allow_sampled: Annotated[
        bool, typer.Option("--allow-sampled", help="Import histories although they look sampled.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what the names are taken for and write nothing.")
    ] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print the summary as a JSON object instead of text.")] = False,
) -> None:
    """Import runs of other tools, an archive or a records tree.

    An archive or a records tree becomes a fast table; an archive is read once and never unpacked. Runs of other tools
    become a records tree: Optuna, MLflow, TensorBoard, trackio, W&B, and tables (CSV, Parquet, JSON lines). All options
    from --from to --dry-run are for them. The result appears when it is complete; an interrupted import starts again.
    """
    from batchscale.records.importers.detect import find_importer, load_importer

    options = RunOptions(
        workload=workload,
        batch_size=batch_size,
        metric=metric,
        goal=goal,
        step=step,
        unit=unit,
        first_epoch=first_epoch,
        num_train_examples=num_train_examples,
        drop_last=drop_last,
        group=group,
        rename=tuple(rename or ()),
        parameter=tuple(parameter or ()),
        trial=trial,
        name_pattern=name_pattern,
        allow_sampled=allow_sampled,
        dry_run=dry_run,
    )
    if not source.exists():
        raise RecordsError(f"SOURCE must be a file or folder: {one_line(source, 300)} does not exist.")
    importer = find_importer(source) if from_ is None else load_importer(from_)
    if importer is not None:
        if verify or keep_going or overwrite:
            raise RecordsError(
                "--verify, --keep-going and --overwrite must be used with an archive or a records tree. Found runs of "
                f"another tool ({importer.kind}): leave the option out."
            )
        import_runs(source, out, importer, options, json_)
        return
    options.require_none()
    _import_records(source, out, verify, keep_going, overwrite, json_)


def _import_records(
    source: Path, out: Path, verify: str | None, keep_going: bool, overwrite: bool, json_: bool
) -> None:
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
