"""Declarations of data sets: description, options, files and loading, and the table of all by name. Imports no jax.

A data set can be listed, checked and found without jax and without its files; ``load_dataset`` reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from batchscale.errors import SpecError, one_line, suggest_names
from batchscale.spec.experiment import Options
from batchscale.workloads.datasets.files.official import DatasetFiles
from batchscale.workloads.declarations import Table
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    from batchscale.workloads.workload import Dataset


@dataclass(frozen=True)
class DatasetInfo:
    """A data set as its publisher describes it; for files that the user names, as they are.

    ``num_train_examples`` and ``num_outputs`` are None where only the files can tell, and the former also where data is
    sampled without end. ``input_shape`` and ``input_dtype`` describe one prepared training example.
    ``tokens_per_example`` is set for text whose examples all have this number of tokens.
    """

    name: str
    task: Task
    num_train_examples: int | None
    num_outputs: int | None
    input_shape: tuple[int, ...]
    input_dtype: str = "float32"
    tokens_per_example: int | None = None


@dataclass(frozen=True)
class DatasetDeclaration:
    """A data set by name.

    ``parse`` turns the options of an experiment, given with the data set's name, into what ``info`` and ``load`` take
    beside the name; it raises SpecError for invalid ones. ``load`` reads the arrays from ``data_dir`` or the usual
    places, and imports jax only when called. ``files`` is None for a set that needs none; ``without_files`` then gives
    the reason in lists. ``label`` is the name in titles and on axes; without it the name itself is used.
    """

    name: str
    parse: Callable[[str, Options], Any]
    info: Callable[[str, Any], DatasetInfo]
    load: Callable[[str, Any, Path | None], Dataset]
    files: DatasetFiles | None = None
    without_files: str = ""
    label: str = ""


DATASETS = Table(DatasetDeclaration, "batchscale.workloads.datasets.builtin", "data set")


class NoOptions(BaseModel):
    """The options of a data set that takes none, and the base class of all others."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


T = TypeVar("T", bound=NoOptions)


def parse_options(kind: type[T], dataset: str, options: Options) -> T:
    """Parse the options of a data set into its own class.

    Raises:
        SpecError: A key is unknown or a value is invalid; the message names the key and the rule.
    """
    try:
        return kind.model_validate(dict(options))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"]) or "options"
    if first["type"] == "extra_forbidden":
        hint = suggest_names(key, kind.model_fields)
        raise SpecError(f"Data set {dataset!r} has no option {one_line(repr(key))}: {hint}")
    if first["type"] == "missing":
        raise SpecError(
            f"Option {key!r} of data set {dataset!r} must be given, in dataset_options of the experiment file."
        )
    value = "" if first["type"] == "value_error" else f" Found {one_line(repr(first['input']))}."
    raise SpecError(f"Option {key!r} of data set {dataset!r}: {first['msg']}.{value}")


def dataset_names() -> tuple[str, ...]:
    """Return the names of all data sets, in order."""
    return tuple(DATASETS.all())


def dataset_info(name: str, options: Options) -> DatasetInfo:
    """Return the description of a data set with these options.

    Raises:
        UnknownNameError: No data set has this name.
        SpecError: An option is unknown or has an invalid value.

    >>> dataset_info("mnist_subsets/mnist_6875", {}).num_train_examples
    6875
    """
    declaration = DATASETS.find(name)
    return declaration.info(name, declaration.parse(name, options))


def load_dataset(name: str, options: Options, data_dir: Path | None) -> Dataset:
    """Load a data set from ``data_dir`` or the other places where data may be.

    Raises:
        UnknownNameError: No data set has this name.
        SpecError: An option is unknown or has an invalid value.
        DataError: The files are missing or damaged; the message gives the command to run.
    """
    declaration = DATASETS.find(name)
    return declaration.load(name, declaration.parse(name, options), data_dir)
