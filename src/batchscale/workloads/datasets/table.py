"""The table of data sets, and the doors to their facts and arrays. The code of a set runs when it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from batchscale.spec.experiment import Options
from batchscale.workloads.datasets.declaration import DatasetDeclaration, DatasetFacts
from batchscale.workloads.declarations import Table

if TYPE_CHECKING:
    from batchscale.workloads.workload import Dataset

DATASETS = Table(DatasetDeclaration, "batchscale.workloads.datasets.builtin", "data set")


def dataset_names() -> tuple[str, ...]:
    """The names of all data sets, in order."""
    return tuple(DATASETS.all())


def dataset_facts(name: str, options: Options) -> DatasetFacts:
    """The facts of a data set with these options.

    Raises:
        UnknownNameError: No data set has this name.
        SpecError: An option is unknown or has a value that cannot be.

    >>> dataset_facts("mnist_subsets/mnist_6875", {}).num_train_examples
    6875
    """
    declaration = DATASETS.find(name)
    return declaration.facts(name, declaration.parse(name, options))


def load_dataset(name: str, options: Options, data_dir: Path | None) -> Dataset:
    """The data set of this name, read from ``data_dir`` or the other places where data may be.

    Raises:
        UnknownNameError: No data set has this name.
        SpecError: An option is unknown or has a value that cannot be.
        DataError: The files are missing or damaged; the message says what to run.
    """
    declaration = DATASETS.find(name)
    return declaration.load(name, declaration.parse(name, options), data_dir)
