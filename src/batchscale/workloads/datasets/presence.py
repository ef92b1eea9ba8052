"""Whether the files of a data set are here, and if not, how to get them. Imports no jax."""

from dataclasses import dataclass
from pathlib import Path

from batchscale.errors import UnknownNameError
from batchscale.spec.experiment import Options
from batchscale.workloads.datasets.declaration import DATASETS, dataset_names
from batchscale.workloads.datasets.files.locations import find_files
from batchscale.workloads.datasets.files.origin import DatasetFiles

_NAMING_OPTIONS = ("path", "hf")


@dataclass(frozen=True)
class Presence:
    """A data set for the eyes of a user: where its files are, or how to get them."""

    name: str
    path: Path | None
    needs_files: bool
    how: str
    terms: str


def find_dataset(name: str, data_dir: Path | None, options: Options | None = None) -> Presence:
    """Where the files of one data set are; for a subset, those of the whole set.

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
    """Every data set, in order of the names."""
    return [find_dataset(name, data_dir) for name in dataset_names()]


def files_of(name: str) -> DatasetFiles:
    """The files of a data set, for a subset those of the whole set.

    Raises:
        UnknownNameError: No data set has this name, or it has no files to get.
    """
    files = DATASETS.find(name).files
    if files is None:
        raise UnknownNameError(f"Data set {name!r} needs no files: there is nothing to get.")
    return files
