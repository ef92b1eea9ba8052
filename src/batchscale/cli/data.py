"""``batchscale data``: where data sets are, and how to get them."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from batchscale.cli.output import print_json

VERSION = 1

DataDir = Annotated[
    Path | None, typer.Option("--data-dir", help="A folder that holds data sets; before BATCHSCALE_DATA and the cache.")
]


def make_data_app() -> typer.Typer:
    """The commands under ``batchscale data``."""
    app = typer.Typer(help="Say where data sets are, and get them.", no_args_is_help=True, rich_markup_mode=None)
    app.command("list")(data_list)
    app.command("get")(data_get)
    return app


def data_list(
    data_dir: DataDir = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Say for each data set where it is, or how to get it."""
    from batchscale.workloads.datasets.files.locations import list_datasets

    sets = list_datasets(data_dir)
    if as_json:
        entries = [
            {
                "name": one.name,
                "present": one.path is not None or not one.needs_files,
                "path": None if one.path is None else str(one.path),
                "how": one.how or None,
                "terms": one.terms or None,
            }
            for one in sets
        ]
        print_json({"version": VERSION, "datasets": entries})
        return
    width = max(len(one.name) for one in sets)
    for one in sets:
        place = one.how if not one.needs_files else str(one.path) if one.path else f"missing: {one.how}"
        typer.echo(f"{one.name:<{width}}  {place}")


def data_get(
    name: Annotated[str, typer.Argument(help="The data set, as `batchscale data list` names it.")],
    data_dir: Annotated[
        Path | None, typer.Option(help="Where to put it; else BATCHSCALE_DATA, else the cache.")
    ] = None,
    from_path: Annotated[
        Path | None, typer.Option("--from", help="Take files you already have: a folder or an archive.")
    ] = None,
    url: Annotated[
        list[str] | None, typer.Option(help="Another mirror (may be given again); a folder ends in '/'.")
    ] = None,
    stall: Annotated[float, typer.Option(help="Seconds without a byte before a mirror is given up.")] = 30.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Get a data set: download it, or take files you already have. Interrupted downloads continue."""
    from batchscale.errors import SpecError
    from batchscale.workloads.datasets.files.download import Patience
    from batchscale.workloads.datasets.files.fetch import FetchSettings, fetch_dataset, use_files
    from batchscale.workloads.datasets.files.locations import default_data_dir, files_of

    if from_path is not None and url:
        raise SpecError("--from takes files that are here and --url fetches others: give one of the two.")
    if stall <= 0:
        raise SpecError(f"--stall must be more than 0 seconds. Found {stall}.")
    files = files_of(name)
    place = data_dir if data_dir is not None else default_data_dir()
    verified: bool | None = None  # files that were there before are not looked at again
    if from_path is not None:
        path, verified = use_files(files.origin, from_path, files.are_in, place)
        if not verified:
            typer.echo("Not verified: no checksums of these files are known.", err=True)
    elif files.are_in(place / files.folder):
        path = place / files.folder
        typer.echo("Already there.", err=True)
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
    """A bar per file on a terminal; elsewhere a line per file."""
    if not sys.stderr.isatty():

        def announce(name: str) -> Callable[[int, int | None], None]:
            typer.echo(f"Getting {name}", err=True)
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
