"""Workloads by name: their description without jax, data or a device, and the workload itself with its data loaded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.goal import SPLITS
from batchscale.spec.plan import WorkloadInfo
from batchscale.workloads.datasets.declaration import DatasetInfo, dataset_info, load_dataset
from batchscale.workloads.metrics.declaration import metric_directions, task_metrics
from batchscale.workloads.models.declaration import ModelDeclaration, Shape, check_fit, find_model
from batchscale.workloads.tasks import Task
from batchscale.workloads.tunables import Tunables, find_tunables
from batchscale.workloads.user.registration import UserWorkload, find_user_workload

if TYPE_CHECKING:
    from batchscale.workloads.workload import Dataset, Workload


@dataclass(frozen=True)
class Parts:
    """The parts of a workload as declared, checked to fit together."""

    dataset: DatasetInfo
    model: ModelDeclaration
    tunables: Tunables


def find_parts(spec: WorkloadSpec) -> Parts:
    """Return the parts of a workload that is not registered as a whole.

    Raises:
        UnknownNameError: A part or an option does not exist; the message has the nearest that do.
        SpecError: Parts do not fit together, or an option has an invalid value.
    """
    name = spec.name
    dataset = dataset_info(name.dataset, spec.dataset_options)
    model = find_model(name.model, spec.model_options)
    check_fit(model, name.dataset, dataset.task, dataset.input_shape)
    extra = model.ranges if dataset.task is Task.CLASSIFICATION else ()
    return Parts(dataset, model, find_tunables(spec, model.schedule, dataset.task.has_classes, extra))


def workload_info(spec: WorkloadSpec, data_dir: Path | None = None) -> WorkloadInfo:
    """Return the description of a workload, which checks of an experiment need, without its data or a device.

    A workload of the user's own has been registered, or is by the Python file that the experiment names, which is run;
    ``data_dir`` may have the built-in data set that it is on.
    """
    user = find_user_workload(spec.name, spec.file)
    if user is not None:
        return _user_info(user, spec, data_dir)
    parts = find_parts(spec)
    return WorkloadInfo(
        name=spec.name,
        metrics=metric_directions(parts.dataset.task),
        num_train_examples=parts.dataset.num_train_examples,
        defaults=parts.tunables.defaults,
        default_space=parts.tunables.space,
        splits=parts.dataset.task.splits,
        num_outputs=parts.dataset.num_outputs,
        tokens_per_example=parts.dataset.tokens_per_example,
    )


def get_workload(spec: WorkloadSpec, data_dir: Path | None = None, dataset: Dataset | None = None) -> Workload:
    """Return the workload of an experiment, with its data loaded.

    ``dataset`` replaces the data set of that name: the same task, other examples.

    Raises:
        UnknownNameError: A part or an option does not exist.
        SpecError: Parts do not fit together.
        DataError: Data is missing or damaged; the message gives the command to run.
    """
    user = find_user_workload(spec.name, spec.file)
    if user is not None:
        from batchscale.workloads.user.build import build_user_workload  # brings flax, which not every model needs

        return build_user_workload(user, spec, data_dir)
    from batchscale.workloads.update import make_update
    from batchscale.workloads.workload import Workload

    parts = find_parts(spec)
    if dataset is None:
        dataset = load_dataset(spec.name.dataset, spec.dataset_options, data_dir)
    task, options = parts.dataset.task, spec.dataset_options
    return Workload(
        name=spec.name,
        dataset=dataset,
        model=parts.model.for_data(Shape(dataset.input_shape, dataset.num_outputs, options)),
        loss=task.make_loss(options),
        metrics=task_metrics(task, options),
        defaults=parts.tunables.defaults,
        space=parts.tunables.space,
        make_update=make_update(parts.tunables),
    )


def _user_info(user: UserWorkload, spec: WorkloadSpec, data_dir: Path | None) -> WorkloadInfo:
    # Imports jax: only the user's own code has these numbers.
    from batchscale.workloads.user.build import build_user_workload

    workload = build_user_workload(user, spec, data_dir)
    return WorkloadInfo(
        name=spec.name,
        metrics={metric.name: metric.maximize for metric in workload.metrics},
        num_train_examples=workload.dataset.num_train_examples,
        defaults=workload.defaults,
        default_space=workload.space,
        splits=tuple(split for split in SPLITS if split in workload.dataset.splits),
        num_outputs=workload.dataset.num_outputs,
        tokens_per_example=workload.dataset.tokens_per_example,
    )
