"""Declarations of metrics, and the table of all by name. Imports no jax until metrics are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from batchscale.spec.experiment import Options
from batchscale.workloads.declarations import Table
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    import jax

    from batchscale.workloads.workload import Batch, Metric

    Measure = Callable[[jax.Array, Batch, jax.Array], Any]
    Value = Callable[[Any], jax.Array]


@dataclass(frozen=True)
class MetricDeclaration:
    """A metric by name, for the tasks it belongs to.

    ``make`` returns, for a task and the options of the data set, the function that measures a batch and the one that
    turns the sum over batches into the value (see ``workload.Metric``); it imports jax when called. With ``trained_on``
    the training loss is the same sum: such a metric is the first of the columns in records. ``unit`` is shown on axes.
    """

    name: str
    maximize: bool
    tasks: tuple[Task, ...]
    make: Callable[[Task, Options], tuple[Measure, Value]]
    trained_on: bool = False
    unit: str = ""


METRICS = Table(MetricDeclaration, "batchscale.workloads.metrics.builtin", "metric")


def metric_directions(task: Task) -> dict[str, bool]:
    """Return the metrics of a task in the order of the records' columns; True for those to be maximised.

    >>> metric_directions(Task.MULTILABEL)
    {'cross_entropy_error': False, 'average_precision': True}
    """
    return {metric.name: metric.maximize for metric in _task_declarations(task)}


def task_metrics(task: Task, dataset_options: Options | None = None) -> tuple[Metric, ...]:
    """Return the metrics of a task on a data set with these options, in the same order."""
    from batchscale.workloads.workload import Metric

    options = {} if dataset_options is None else dataset_options
    metrics = _task_declarations(task)
    return tuple(Metric(metric.name, metric.maximize, *metric.make(task, options)) for metric in metrics)


def _task_declarations(task: Task) -> list[MetricDeclaration]:
    metrics = [metric for metric in METRICS.all().values() if task in metric.tasks]
    return sorted(metrics, key=lambda metric: (not metric.trained_on, metric.name))
