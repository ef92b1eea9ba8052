"""Registration of the user's own parts and workloads, and the Python files that register them. Imports no jax.

``build`` turns a registration into a workload and checks its shapes before anything is compiled.
"""

import importlib.util
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from batchscale.errors import BatchscaleError, SpecError, one_line, suggest_names
from batchscale.spec.workload_name import WorkloadName
from batchscale.workloads.datasets.declaration import DATASETS, dataset_names
from batchscale.workloads.declarations import Table
from batchscale.workloads.metrics.declaration import METRICS
from batchscale.workloads.models.declaration import MODELS
from batchscale.workloads.optimizers.declaration import OPTIMIZERS
from batchscale.workloads.schedules.declaration import SCHEDULES
from batchscale.workloads.tasks import Task

Values = Callable[[Any, Mapping[str, Any]], Any]
"""(outputs, batch) → one value per example (or token)."""

USER_TASKS = (Task.CLASSIFICATION, Task.MULTILABEL, Task.LANGUAGE, Task.REGRESSION)


@dataclass(frozen=True)
class UserWorkload:
    """A registration; ``file`` is the one that made it, None if a program did."""

    dataset: str
    model: str
    data: Mapping[str, Any] | None = None
    make: Any = None
    task: Task | None = None
    loss: Values | None = None
    metrics: Mapping[str, Values] | Sequence[Any] | None = None
    num_outputs: int | None = None
    prepare: Callable[[Any], Any] | None = None
    schedule: str | None = None
    file: Path | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """The name without optimizer."""
        return f"{self.dataset}/{self.model}"


_REGISTERED: dict[tuple[str, str], UserWorkload] = {}
_LOADED: dict[Path, int] = {}
_FILE: ContextVar[Path | None] = ContextVar("file", default=None)


def register_workload(
    name: str,
    *,
    data: Mapping[str, Any] | None = None,
    model: Any = None,
    task: str | Task | None = None,
    loss: Values | None = None,
    metrics: Mapping[str, Values] | Sequence[Any] | None = None,
    num_outputs: int | None = None,
    prepare: Callable[[Any], Any] | None = None,
    schedule: str | None = None,
) -> None:
    """Make ``name/OPTIMIZER`` a workload for every optimizer.

    Args:
        name: ``dataset/model``. Without ``data`` the data set, without ``model`` the model of that name is used.
        data: The splits by name ("train" and "val", perhaps "test"): a mapping of arrays with "inputs" and
            "labels"; or an iterable of such mappings (batches), read to its end; or, for data that need not fit in
            memory, an object with ``num_examples`` (or a length) and ``read(indices)``, which gives such a mapping for
            these examples (``read(indices, seeds)`` is given a seed per example in training, None otherwise); or a
            split of ``batchscale.workloads.workload``.
        model: A function from ``nnx.Rngs`` to a Flax NNX module; or a pair of functions ``init(key)``, giving
            parameters, and ``apply(params, inputs)``, giving outputs (``train`` and ``key`` are passed to an ``apply``
            that takes them); or a ``batchscale.workloads.workload.Model``.
        task: "classification", "multilabel", "language" or "regression": brings loss and metrics.
        loss: Instead of a task, (outputs, batch) → a value per example; the mean is minimised.
        metrics: By name, (outputs, batch) → a value per example, to be minimised; or a sequence of ``Metric``.
            Without it: those of the task, else the loss under the name "loss".
        num_outputs: How many scores the model gives; without it, what the labels of the training set need.
        prepare: What turns stored arrays of a batch into what the model takes, inside the compiled program.
        schedule: The learning rate schedule where the experiment names none.

    Raises:
        SpecError: The parts do not form a workload.
    """
    dataset, _, model_name = name.rpartition("/")
    WorkloadName(dataset, model_name, "sgd")  # checks both names
    user = UserWorkload(
        dataset,
        model_name,
        None if data is None else {split: _read(f"Workload {name}, split {split}", data[split]) for split in data},
        model,
        _find_task(name, task),
        loss,
        metrics,
        num_outputs,
        prepare,
        schedule,
        _FILE.get(),
    )
    _check(user)
    earlier = _REGISTERED.get((dataset, model_name))
    if earlier is not None and earlier.file is not None and earlier.file == user.file:
        raise SpecError(f"{user.file} registers the workload '{name}' twice; give the second another name.")
    _REGISTERED[dataset, model_name] = user


def find_user_workload(name: WorkloadName, file: Path | None) -> UserWorkload | None:
    """Return the registration of this data set and model, after the experiment's own file has run; None without one.

    A file may register parts with ``register`` instead of a whole workload.
    """
    if file is None:
        return _REGISTERED.get((name.dataset, name.model))
    load_user_file(file)
    user = _REGISTERED.get((name.dataset, name.model))
    if user is None and has_registered_part(name):
        return None
    if user is None or user.file != file.resolve():
        valid = [user.name for user in _REGISTERED.values() if user.file == file.resolve()]
        pair = f"{name.dataset}/{name.model}"
        raise SpecError(f"{file} does not register the workload '{pair}'; {suggest_names(pair, valid)}")
    return user


def load_user_file(file: Path) -> None:
    """Run a Python file that registers workloads; not again until the file changes."""
    path = file.resolve()
    if not _is_file(path):
        raise SpecError(f"workload.file must be a Python file. There is none at {one_line(file, 300)}.")
    changed = path.stat().st_mtime_ns
    if _LOADED.get(path) == changed:
        return
    for key in [key for key, user in _REGISTERED.items() if user.file == path]:
        del _REGISTERED[key]
    module_spec = importlib.util.spec_from_file_location(f"batchscale_user_{path.stem}", path)
    if module_spec is None or module_spec.loader is None:
        raise SpecError(f"workload.file must be a Python file (.py). Found {file}.")
    token = _FILE.set(path)
    try:
        module_spec.loader.exec_module(importlib.util.module_from_spec(module_spec))
    except BatchscaleError:
        raise
    except (Exception, SystemExit) as error:  # the user's own code may raise anything; it is reported as theirs
        frames = traceback.extract_tb(error.__traceback__)
        line = max((frame.lineno or 0 for frame in frames if frame.filename == str(path)), default=0)
        raise SpecError(f"{file} fails at line {line}: {type(error).__name__}: {one_line(error, 300)}") from error
    finally:
        _FILE.reset(token)
    _LOADED[path] = changed


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # too long for a path, or in a folder without permission
        return False


def _read(where: str, data: Any) -> Any:
    """Return a split unchanged, or its batches joined: an iterator can be read only once."""
    if isinstance(data, Mapping) or not isinstance(data, Iterable) or callable(getattr(data, "read", None)):
        return data
    batches = list(data)
    if not batches or not all(isinstance(batch, Mapping) and set(batch) == set(batches[0]) for batch in batches):
        raise SpecError(f"{where}: an iterable of batches must have at least one, all with the same keys.")
    try:
        return {str(key): np.concatenate([np.asarray(batch[key]) for batch in batches]) for key in batches[0]}
    except ValueError as error:
        raise SpecError(f"{where}: the batches do not join: {one_line(error)}") from error


def _find_task(name: str, task: str | Task | None) -> Task | None:
    if task is None:
        return None
    by_name = {user_task.name: user_task for user_task in USER_TASKS}
    if str(task) not in by_name:
        raise SpecError(f"Workload {name}: task must be one of {', '.join(by_name)}. Found {one_line(repr(task))}.")
    return by_name[str(task)]


def _check(user: UserWorkload) -> None:
    name = user.name
    if user.data is None and user.make is None:
        raise SpecError(f"Workload {name}: give data, a model, or both; what is built in needs no registration.")
    if user.data is None and user.dataset not in dataset_names():
        raise SpecError(f"Workload {name}: without data the data set must be a built-in one. Found '{user.dataset}'.")
    if user.data is not None and not {"train", "val"} <= set(user.data):
        raise SpecError(
            f"Workload {name}: data must have the splits 'train' and 'val'. Found {one_line(sorted(user.data))}."
        )
    if user.task is not None and user.loss is not None:
        raise SpecError(f"Workload {name}: give a task, which brings its loss, or a loss, not both.")
    if user.task is None and user.loss is None and user.data is not None:
        raise SpecError(f"Workload {name}: own data needs a task ({', '.join(map(str, USER_TASKS))}) or a loss.")


TABLES: tuple[Table[Any], ...] = (DATASETS, MODELS, OPTIMIZERS, SCHEDULES, METRICS)


def register(*declarations: object) -> None:
    """Add declarations to the tables of their kinds, as if modules of batchscale had them.

    Call it in the Python file that an experiment names as ``workload.file``: every process that trains runs that file.

    Raises:
        SpecError: An argument is not a declaration, or its name is taken.
    """
    for declaration in declarations:
        table = next((table for table in TABLES if isinstance(declaration, table.kind)), None)
        if table is None:
            kinds = ", ".join(table.kind.__name__ for table in TABLES)
            raise SpecError(f"Only declarations can be registered: {kinds}. Found {one_line(repr(declaration))}.")
        table.register(declaration)


def has_registered_part(name: WorkloadName) -> bool:
    """True if a part of this workload was registered, so that it is made of parts."""
    pairs = ((DATASETS, name.dataset), (MODELS, name.model), (OPTIMIZERS, name.optimizer))
    return any(table.is_registered(part) for table, part in pairs)
