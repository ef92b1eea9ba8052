"""Where data may be: an explicit folder, BATCHSCALE_DATA, the user's cache, the system's packages, in that order.

In each place a set lies in a folder of its name (``mnist/``); the place itself is tried too, so that a path to the
very folder of the files works. Imports no jax.
"""

import os
from collections.abc import Callable
from pathlib import Path

from batchscale.errors import DataError
from batchscale.workloads.datasets.files.origin import read_sources

_NEEDS_ITS_NAME = frozenset({"common_crawl"})  # any folder may hold text files
_SYSTEM_FOLDERS = {"fashion_mnist": Path("/usr/share/datasets/fashion-mnist")}


def cache_folder() -> Path:
    """The user's cache folder of batchscale: below XDG_CACHE_HOME, or ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base and Path(base).is_absolute() else Path.home() / ".cache") / "batchscale"


def default_data_dir() -> Path:
    """Where ``batchscale data get`` puts data: BATCHSCALE_DATA, else the user's cache folder."""
    given = os.environ.get("BATCHSCALE_DATA")
    return Path(given).expanduser() if given else cache_folder() / "data"


def candidate_folders(folder: str, data_dir: Path | None) -> list[Path]:
    """Every folder that may hold the files of a set, first choice first."""
    given = os.environ.get("BATCHSCALE_DATA")
    places = [data_dir, Path(given).expanduser() if given else None]
    found = [path for place in places if place is not None for path in _inside(place, folder)]
    found.append(cache_folder() / "data" / folder)
    if folder in _SYSTEM_FOLDERS:
        found.append(_SYSTEM_FOLDERS[folder])
    return found


def _inside(place: Path, folder: str) -> tuple[Path, ...]:
    return (place / folder,) if folder in _NEEDS_ITS_NAME and place.name != folder else (place / folder, place)


def find_data(folder: str, is_there: Callable[[Path], bool], data_dir: Path | None) -> Path | None:
    """The first candidate folder that holds the files, by the test of the set itself."""
    return next((path for path in candidate_folders(folder, data_dir) if path.is_dir() and is_there(path)), None)


def require_data(folder: str, is_there: Callable[[Path], bool], data_dir: Path | None) -> Path:
    """The folder that holds the files of a set, or a DataError that says what to run."""
    found = find_data(folder, is_there, data_dir)
    if found is None:
        searched = "\n  ".join(str(path) for path in candidate_folders(folder, data_dir))
        instruction = read_sources()[folder].instruction
        raise DataError(
            f"The files of data set {folder!r} are in none of the places searched:\n  {searched}\n"
            f"{instruction[0].upper()}{instruction[1:]}.\n"
            f"With files you already have: `batchscale data get {folder} --from PATH`."
        )
    return found


def named_folder(dataset: str, path: str | None) -> Path | None:
    """The folder that the user's option ``path`` names, if it does; a DataError if nothing is there."""
    if path is None:
        return None
    named = Path(path).expanduser()
    if not named.is_dir():
        raise DataError(f"The option `path` of data set {dataset!r} must name a folder. Found {path!r}.")
    return named


def named_or_required(folder: str, path: str | None, is_there: Callable[[Path], bool], data_dir: Path | None) -> Path:
    """The folder that the user's option ``path`` names, or else the one found in the usual places."""
    return named_folder(folder, path) or require_data(folder, is_there, data_dir)
