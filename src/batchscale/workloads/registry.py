"""From the name of a workload to the workload itself: data, model, loss, metrics, optimizer."""

from pathlib import Path

from batchscale.spec import WorkloadSpec
from batchscale.workloads.catalogue import Parts, find_parts
from batchscale.workloads.datasets import load_dataset
from batchscale.workloads.losses import TASK_LOSSES
from batchscale.workloads.metrics import task_metrics
from batchscale.workloads.models.architectures.quadratic import quadratic_loss, quadratic_metrics, quadratic_model
from batchscale.workloads.models.build import Shape, build_model
from batchscale.workloads.noisy_quadratic import parse_problem
from batchscale.workloads.tasks import Task
from batchscale.workloads.update import make_update
from batchscale.workloads.user.build import build_own
from batchscale.workloads.user.registration import find_own
from batchscale.workloads.workload import Dataset, Loss, Metric, Model, Workload


def get_workload(spec: WorkloadSpec, data_dir: Path | None = None, dataset: Dataset | None = None) -> Workload:
    """The workload of an experiment, with its data read.

    ``dataset`` takes the place of the data set of that name: the same task, other examples.

    Raises:
        UnknownNameError: a part or an option that does not exist.
        SpecError: parts that do not fit together.
        DataError: data that is missing or damaged; the message says what to run.
    """
    own = find_own(spec.name, spec.file)
    if own is not None:
        return build_own(own, spec, data_dir)
    parts = find_parts(spec)
    if dataset is None:
        dataset = load_dataset(spec.name.dataset, spec.dataset_options, data_dir)
    model, loss, metrics = _model_and_measures(parts, spec, dataset)
    return Workload(
        name=spec.name,
        dataset=dataset,
        model=model,
        loss=loss,
        metrics=metrics,
        defaults=parts.tuning.defaults,
        space=parts.tuning.space,
        make_update=make_update(parts.tuning),
    )


def _model_and_measures(parts: Parts, spec: WorkloadSpec, dataset: Dataset) -> tuple[Model, Loss, tuple[Metric, ...]]:
    task = parts.dataset.task
    if task is Task.QUADRATIC:
        problem = parse_problem(spec.dataset_options)
        return quadratic_model(problem), quadratic_loss(problem), quadratic_metrics(problem)
    model = build_model(parts.model, Shape(dataset.input_shape, dataset.num_outputs))
    return model, TASK_LOSSES[task], task_metrics(task)
