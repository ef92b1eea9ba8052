"""The table of metrics, and those of each task in the order of the records' columns. No jax until they are made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.spec.experiment import Options
from batchscale.workloads.declarations import Table
from batchscale.workloads.metrics.declaration import MetricDeclaration
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    from batchscale.workloads.workload import Metric

METRICS = Table(MetricDeclaration, "batchscale.workloads.metrics.builtin", "metric")


def metric_directions(task: Task) -> dict[str, bool]:
    """The metrics of a task, in the order of the records' columns, with whether each is to be maximised.

    >>> metric_directions(Task.MULTILABEL)
    {'cross_entropy_error': False, 'average_precision': True}
    """
    return {metric.name: metric.maximize for metric in _of_task(task)}


def task_metrics(task: Task, dataset_options: Options | None = None) -> tuple[Metric, ...]:
    """The metrics of a task on a data set with these options, in the same order."""
    from batchscale.workloads.workload import Metric

    options = {} if dataset_options is None else dataset_options
    return tuple(Metric(metric.name, metric.maximize, *metric.make(task, options)) for metric in _of_task(task))


def _of_task(task: Task) -> list[MetricDeclaration]:
    found = [metric for metric in METRICS.all().values() if task in metric.tasks]
    return sorted(found, key=lambda metric: (not metric.trained_on, metric.name))
