"""Whether a folder holds the files of a data set: one cheap test per set. Imports no jax."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from batchscale.errors import UnknownNameError, one_line, suggest_names
from batchscale.spec import Options
from batchscale.workloads.datasets.builtin.cifar_files import has_cifar_files
from batchscale.workloads.datasets.builtin.imagenet_files import has_imagenet_files
from batchscale.workloads.datasets.builtin.lm1b_files import has_lm1b_files
from batchscale.workloads.datasets.builtin.ptb_files import has_ptb_files
from batchscale.workloads.datasets.facts import dataset_names, files_folder
from batchscale.workloads.datasets.files.locations import find_data
from batchscale.workloads.datasets.files.origin import Source, read_sources
from batchscale.workloads.datasets.images.mnist_files import has_mnist_files
from batchscale.workloads.datasets.images.open_images_files import has_open_images_files
from batchscale.workloads.datasets.text.files import has_text_files

_NAMING_OPTIONS = ("path", "hf")
_WITHOUT_FILES = {
    "digits": "comes with batchscale",
    "text": "your own files, named by the option path",
    "noisy_quadratic": "sampled, needs no files",
}


@dataclass(frozen=True)
class Presence:
    """A data set for the eyes of a user: where its files are, or how to get them."""

    name: str
    path: Path | None
    needs_files: bool
    how: str
    terms: str


def presence_checks() -> dict[str, Callable[[Path], bool]]:
    """The test of each data folder."""
    return {
        "mnist": partial(has_mnist_files, name="mnist"),
        "fashion_mnist": partial(has_mnist_files, name="fashion_mnist"),
        "cifar_10": has_cifar_files,
        "imagenet": has_imagenet_files,
        "open_images_v4": has_open_images_files,
        "lm1b": has_lm1b_files,
        "common_crawl": has_text_files,
        "ptb": has_ptb_files,
    }


def find_dataset(name: str, data_dir: Path | None, options: Options | None = None) -> Presence:
    """Where the files of one data set are; for a subset, those of the whole set.

    With options that name files of the user's own (``path``, ``hf``) no other files are needed: loading checks those.
    """
    folder = files_folder(name)
    if folder is None:
        return Presence(name, None, needs_files=False, how=_WITHOUT_FILES[name], terms="")
    if options and any(options.get(key) is not None for key in _NAMING_OPTIONS):
        return Presence(name, None, needs_files=False, how="files named by an option", terms="")
    source = read_sources()[folder]
    path = find_data(folder, presence_checks()[folder], data_dir)
    return Presence(name, path, needs_files=True, how=source.instruction, terms=source.terms)


def list_datasets(data_dir: Path | None) -> list[Presence]:
    """Every data set, in the order of their names' table."""
    return [find_dataset(name, data_dir) for name in dataset_names()]


def find_source(name: str) -> Source:
    """The source of a data set, also by the name of a subset; digits and the like need none.

    Raises:
        UnknownNameError: No data set has this name, or it has no files to get.
    """
    sources = read_sources()
    folder = name if name in sources else files_folder(name) if name in dataset_names() else None
    if folder in sources:
        return sources[folder]
    if name in dataset_names():
        raise UnknownNameError(f"Data set {name!r} needs no files: there is nothing to get.")
    raise UnknownNameError(f"No data set is called {one_line(repr(name))}: {suggest_names(name, sources)}")
