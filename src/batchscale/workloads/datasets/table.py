"""The table of data sets, and functions that describe and load one by name. A set's own code runs only when called."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from batchscale.spec.experiment import Options
from batchscale.workloads.datasets.declaration import DatasetDeclaration, DatasetInfo
from batchscale.workloads.declarations import Table

if TYPE_CHECKING:
    from batchscale.workloads.workload import Dataset

DATASETS = Table(DatasetDeclaration, "batchscale.workloads.datasets.builtin", "data set")


def dataset_names() -> tuple[str, ...]:
    """The names of all data sets, in order."""
    return tuple(DATASETS.all())


def dataset_info(name: str, options: Options) -> DatasetInfo:
    """The description of a data set with these options.

    Raises:
        UnknownNameError: No data set has this name.
        SpecError: An option is unknown or has a value that cannot be.

    >>> dataset_info("mnist_subsets/mnist_6875", {}).num_train_examples
    6875
    """
    declaration = DATASETS.find(name)
    return declaration.info(name, declaration.parse(name, options))


def load_dataset(name: str, options: Options, data_dir: Path | None) -> Dataset:
    """The data set of this name, read from ``data_dir`` or the other places where data may be.

    Raises:
        UnknownNameError: No data set has this name.
        SpecError: An option is unknown or has a value that cannot be.
        DataError: The files are missing or damaged; the message says what to run.
    """
    declaration = DATASETS.find(name)
    return declaration.load(name, declaration.parse(name, options), data_dir)
