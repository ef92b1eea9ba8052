"""Where data may be: an explicit folder, BATCHSCALE_DATA, the user's cache, the system's packages, in that order.

In each place a set lies in a folder of its name (``mnist/``); the place itself is tried too, so that a path to the
very folder of the files works. Imports no jax.
"""

import os
from pathlib import Path

from batchscale.errors import DataError
from batchscale.workloads.cache import cache_folder, user_cache_folder
from batchscale.workloads.datasets.files.origin import DatasetFiles

SYSTEM_FOLDER = Path("/usr/share/datasets")
"""Where packages of the system put data sets."""


def default_data_dir() -> Path:
    """Where ``batchscale data get`` puts data: BATCHSCALE_DATA, else the cache folder."""
    given = os.environ.get("BATCHSCALE_DATA")
    return Path(given).expanduser() if given else cache_folder() / "data"


def candidate_folders(files: DatasetFiles, data_dir: Path | None) -> list[Path]:
    """Every folder that may hold the files of a set, first choice first.

    Data in the user's cache folder counts also when BATCHSCALE_CACHE names another: it was fetched once for all.
    """
    given = os.environ.get("BATCHSCALE_DATA")
    places = [data_dir, Path(given).expanduser() if given else None]
    found = [path for place in places if place is not None for path in _inside(place, files)]
    found += [cache / "data" / files.folder for cache in dict.fromkeys((cache_folder(), user_cache_folder()))]
    return found if files.system_folder is None else [*found, SYSTEM_FOLDER / files.system_folder]


def _inside(place: Path, files: DatasetFiles) -> tuple[Path, ...]:
    inner = place / files.folder
    return (inner,) if files.needs_its_name and place.name != files.folder else (inner, place)


def find_files(files: DatasetFiles, data_dir: Path | None) -> Path | None:
    """The first candidate folder that holds the files, by the test of the set itself."""
    return next((path for path in candidate_folders(files, data_dir) if path.is_dir() and files.are_in(path)), None)


def require_files(files: DatasetFiles, data_dir: Path | None) -> Path:
    """The folder that holds the files of a set, or a DataError that says what to run."""
    found = find_files(files, data_dir)
    if found is None:
        searched = "\n  ".join(str(path) for path in candidate_folders(files, data_dir))
        instruction = files.origin.instruction
        raise DataError(
            f"The files of data set {files.folder!r} are in none of the places searched:\n  {searched}\n"
            f"{instruction[0].upper()}{instruction[1:]}.\n"
            f"With files you already have: `batchscale data get {files.folder} --from PATH`."
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


def named_or_required(files: DatasetFiles, path: str | None, data_dir: Path | None) -> Path:
    """The folder that the user's option ``path`` names, or else the one found in the usual places."""
    return named_folder(files.folder, path) or require_files(files, data_dir)
