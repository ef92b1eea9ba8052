"""Every workload by name, and what must be known of it to check an experiment: without jax, data or a device.

``registry`` builds the same parts for real.
"""

from dataclasses import dataclass
from pathlib import Path

from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.goal import SPLITS
from batchscale.spec.plan import WorkloadInfo
from batchscale.workloads.datasets.declaration import DatasetInfo, dataset_info
from batchscale.workloads.metrics.declaration import metric_directions
from batchscale.workloads.models.declaration import ModelDeclaration, check_fit, find_model
from batchscale.workloads.tasks import Task
from batchscale.workloads.tunables import Tunables, find_tunables
from batchscale.workloads.user.registration import UserWorkload, find_user_workload


@dataclass(frozen=True)
class Parts:
    """The description of a built-in workload's parts, checked to fit together."""

    dataset: DatasetInfo
    model: ModelDeclaration
    tunables: Tunables


def find_parts(spec: WorkloadSpec) -> Parts:
    """The description of each part of a built-in workload.

    Raises:
        UnknownNameError: a part or an option that does not exist, with the nearest that do.
        SpecError: parts that do not fit together, or an option with an impossible value.
    """
    name = spec.name
    dataset = dataset_info(name.dataset, spec.dataset_options)
    model = find_model(name.model, spec.model_options)
    check_fit(model, name.dataset, dataset.task, dataset.input_shape)
    extra = model.ranges if dataset.task is Task.CLASSIFICATION else ()
    return Parts(dataset, model, find_tunables(spec, model.schedule, dataset.task.has_classes, extra))


def workload_info(spec: WorkloadSpec, data_dir: Path | None = None) -> WorkloadInfo:
    """What must be known of a workload to check an experiment without touching its data or a device.

    A workload of the user's own is registered before, or by the Python file that the experiment names, which is run;
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
    )


def _user_info(user: UserWorkload, spec: WorkloadSpec, data_dir: Path | None) -> WorkloadInfo:
    # Imports jax: only the user's own code can say what it needs.
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
    )
