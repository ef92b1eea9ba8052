"""The one door to a data set's arrays: ``load_dataset``. The code of a set is imported when it is asked for."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from batchscale.spec import Options
from batchscale.workloads.datasets.facts import check_dataset_name

if TYPE_CHECKING:
    from batchscale.workloads.workload import Dataset


def load_dataset(name: str, options: Options, data_dir: Path | None) -> Dataset:
    """The data set of this name, read from ``data_dir`` or the other places where data may be.

    Raises:
        UnknownNameError: No data set has this name.
        SpecError: An option is unknown or has a value that cannot be.
        DataError: The files are missing or damaged; the message says what to run.
    """
    module = importlib.import_module(f"{__package__}.builtin.{check_dataset_name(name).module}")
    dataset: Dataset = module.load(name, options, data_dir)
    return dataset
