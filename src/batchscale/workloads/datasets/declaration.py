"""What a data set declares, so that it can be listed, checked and found without jax and without its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchscale.spec.experiment import Options
from batchscale.workloads.datasets.files.origin import DatasetFiles
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    from batchscale.workloads.workload import Dataset


@dataclass(frozen=True)
class DatasetInfo:
    """A data set as the paper or its publisher describes it; of files that the user names, as they are.

    ``num_train_examples`` is None where it is known only with the files at hand (or where data is sampled without
    end), and so is ``num_outputs``. ``input_shape`` and ``input_dtype`` describe one prepared training example.
    """

    name: str
    task: Task
    num_train_examples: int | None
    num_outputs: int | None
    input_shape: tuple[int, ...]
    input_dtype: str = "float32"


@dataclass(frozen=True)
class DatasetDeclaration:
    """A data set by name.

    ``parse`` turns the options of an experiment, given with the data set's name, into what ``info`` and ``load`` take
    beside the name; it raises SpecError for those that cannot be. ``load`` reads the arrays from ``data_dir`` or the
    usual places, and imports jax only when called. ``files`` is None for a set that needs none, and ``without_files``
    then says why, for the list that a person reads.
    """

    name: str
    parse: Callable[[str, Options], Any]
    info: Callable[[str, Any], DatasetInfo]
    load: Callable[[str, Any, Path | None], Dataset]
    files: DatasetFiles | None = None
    without_files: str = ""
