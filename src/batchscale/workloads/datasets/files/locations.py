"""Find the files of data sets: in an explicit folder, BATCHSCALE_DATA, the user's cache, the system's packages.

The places are searched in this order. In each a set lies in a folder of its name (``mnist/``); the place itself is
tried too, so that a path to the very folder of the files works. Imports no jax.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import DataError, UnknownNameError
from batchscale.spec.experiment import Options
from batchscale.workloads.cache import cache_folder, user_cache_folder
from batchscale.workloads.datasets.declaration import DATASETS, dataset_names
from batchscale.workloads.datasets.files.official import DatasetFiles

SYSTEM_FOLDER = Path("/usr/share/datasets")
"""The folder of data sets that packages of the system install."""


def default_data_dir() -> Path:
    """Return the folder of ``batchscale data get``: BATCHSCALE_DATA, else the cache folder."""
    variable = os.environ.get("BATCHSCALE_DATA")
    return Path(variable).expanduser() if variable else cache_folder() / "data"


def candidate_folders(files: DatasetFiles, data_dir: Path | None) -> list[Path]:
    """Return every folder that may hold the files of a set, first choice first.

    Data in the user's cache folder counts also when BATCHSCALE_CACHE names another: it was fetched once for all.
    """
    variable = os.environ.get("BATCHSCALE_DATA")
    places = [data_dir, Path(variable).expanduser() if variable else None]
    folders = [path for place in places if place is not None for path in _inside(place, files)]
    folders += [cache / "data" / files.folder for cache in dict.fromkeys((cache_folder(), user_cache_folder()))]
    return folders if files.system_folder is None else [*folders, SYSTEM_FOLDER / files.system_folder]


def _inside(place: Path, files: DatasetFiles) -> tuple[Path, ...]:
    inner = place / files.folder
    return (inner,) if files.needs_its_name and place.name != files.folder else (inner, place)


def find_files(files: DatasetFiles, data_dir: Path | None) -> Path | None:
    """Return the first candidate folder that holds the files, by the test of the set itself; None without one."""
    return next((path for path in candidate_folders(files, data_dir) if path.is_dir() and files.are_in(path)), None)


def require_files(files: DatasetFiles, data_dir: Path | None) -> Path:
    """Return the folder that holds the files of a set, or raise DataError with the command to run."""
    folder = find_files(files, data_dir)
    if folder is None:
        searched = "\n  ".join(str(path) for path in candidate_folders(files, data_dir))
        instruction = files.origin.instruction
        raise DataError(
            f"The files of data set {files.folder!r} are in none of the places searched:\n  {searched}\n"
            f"{instruction[0].upper()}{instruction[1:]}.\n"
            f"With files you already have: `batchscale data get {files.folder} --from PATH`."
        )
    return folder


def named_folder(dataset: str, path: str | None) -> Path | None:
    """Return the folder of the user's option ``path``, None without it; raise DataError if it does not exist."""
    if path is None:
        return None
    named = Path(path).expanduser()
    if not named.is_dir():
        raise DataError(f"The option `path` of data set {dataset!r} must name a folder. Found {path!r}.")
    return named


def named_or_required(files: DatasetFiles, path: str | None, data_dir: Path | None) -> Path:
    """Return the folder that the user's option ``path`` names, or else the one in the usual places."""
    return named_folder(files.folder, path) or require_files(files, data_dir)


_NAMING_OPTIONS = ("path", "hf")


@dataclass(frozen=True)
class Presence:
    """The files of a data set for lists: their folder, or the instruction to get them."""

    name: str
    path: Path | None
    needs_files: bool
    how: str
    terms: str


def find_dataset(name: str, data_dir: Path | None, options: Options | None = None) -> Presence:
    """Return the presence of the files of one data set; for a subset, of the whole set.

    With options that name files of the user's own (``path``, ``hf``) no other files are needed: loading checks those.
    """
    declaration = DATASETS.find(name)
    files = declaration.files
    if files is None:
        return Presence(name, None, needs_files=False, how=declaration.without_files, terms="")
    if options and any(options.get(key) is not None for key in _NAMING_OPTIONS):
        return Presence(name, None, needs_files=False, how="files named by an option", terms="")
    path = find_files(files, data_dir)
    return Presence(name, path, needs_files=True, how=files.origin.instruction, terms=files.origin.terms)


def list_datasets(data_dir: Path | None) -> list[Presence]:
    """Return every data set, in order of names."""
    return [find_dataset(name, data_dir) for name in dataset_names()]


def files_of(name: str) -> DatasetFiles:
    """Return the files of a data set; for a subset, of the whole set.

    Raises:
        UnknownNameError: No data set has this name, or it has no files to get.
    """
    files = DATASETS.find(name).files
    if files is None:
        raise UnknownNameError(f"Data set {name!r} needs no files: there is nothing to get.")
    return files
