"""``batchscale data``: list and download data sets."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from batchscale.cli.completion import complete_with, dataset_names
from batchscale.cli.output import print_json
from batchscale.cli.selection import DATA_DIR_HELP, JSON_HELP

VERSION = 1

DataDir = Annotated[Path | None, typer.Option("--data-dir", help=DATA_DIR_HELP)]


def make_data_app() -> typer.Typer:
    """Return the commands under ``batchscale data``."""
    app = typer.Typer(help="List data sets, and download them.", no_args_is_help=True, rich_markup_mode=None)
    app.command("list")(data_list)
    app.command("get")(data_get)
    return app


def data_list(
    data_dir: DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """List the data sets with their folder, or how to get them."""
    from batchscale.workloads.datasets.files.locations import list_datasets

    datasets = list_datasets(data_dir)
    if as_json:
        entries = [
            {
                "name": dataset.name,
                "present": dataset.path is not None or not dataset.needs_files,
                "path": None if dataset.path is None else str(dataset.path),
                "how": dataset.how or None,
                "terms": dataset.terms or None,
            }
            for dataset in datasets
        ]
        print_json({"version": VERSION, "datasets": entries})
        return
    width = max(len(dataset.name) for dataset in datasets)
    for dataset in datasets:
        place = str(dataset.path) if dataset.path else f"missing: {dataset.how}"
        typer.echo(f"{dataset.name:<{width}}  {place if dataset.needs_files else dataset.how}")


def data_get(
    name: Annotated[
        str,
        typer.Argument(
            help="The name of the data set, as in `batchscale data list`.", autocompletion=complete_with(dataset_names)
        ),
    ],
    data_dir: Annotated[
        Path | None, typer.Option(help="The folder to write to. Default: BATCHSCALE_DATA, else the cache folder.")
    ] = None,
    from_path: Annotated[
        Path | None,
        typer.Option("--from", help="Use files that you have, a folder or an archive, instead of a download."),
    ] = None,
    url: Annotated[
        list[str] | None, typer.Option(help="Another mirror to download from; a folder ends in '/'. May be repeated.")
    ] = None,
    stall: Annotated[float, typer.Option(help="The seconds without data after which the next mirror is tried.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Download a data set, or use files that you have.

    Run the same command again to continue an interrupted download.
    """
    from batchscale.errors import SpecError
    from batchscale.workloads.datasets.files.download import Patience
    from batchscale.workloads.datasets.files.fetch import FetchSettings, fetch_dataset, use_files
    from batchscale.workloads.datasets.files.locations import default_data_dir, files_of

    if from_path is not None and url:
        raise SpecError("--from and --url exclude each other. Found both; pass one of them.")
    if stall <= 0:
        raise SpecError(f"--stall must be more than 0 seconds. Found {stall}.")
    files = files_of(name)
    place = data_dir if data_dir is not None else default_data_dir()
    verified: bool | None = None  # existing files are not verified again
    if from_path is not None:
        path, verified = use_files(files.origin, from_path, files.are_in, place)
        if not verified:
            typer.echo("Not verified: these files have no published checksums.", err=True)
    elif files.are_in(place / files.folder):
        path = place / files.folder
        typer.echo("Already downloaded.", err=True)
    else:
        with _progress_bars() as progress:
            path = fetch_dataset(
                FetchSettings(files.origin, place, tuple(url or ()), Patience(stall_s=stall), progress)
            )
        verified = True
    if as_json:
        print_json({"version": VERSION, "name": name, "path": str(path), "verified": verified})
        return
    typer.echo(str(path))


@contextmanager
def _progress_bars() -> Iterator[Callable[[str], Callable[[int, int | None], None]]]:
    """Show a bar per file in a terminal, else a line per file."""
    if not sys.stderr.isatty():

        def announce(name: str) -> Callable[[int, int | None], None]:
            typer.echo(f"Downloading {name}", err=True)
            return lambda done, total: None  # noqa: ARG005

        yield announce
        return
    from rich.console import Console
    from rich.progress import DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

    columns = (*Progress.get_default_columns()[:2], DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bars:

        def start(name: str) -> Callable[[int, int | None], None]:
            bar = bars.add_task(name, total=None)
            return lambda done, total: bars.update(bar, completed=done, total=total)

        yield start
