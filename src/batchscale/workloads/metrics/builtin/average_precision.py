"""Class-agnostic average precision, to be maximised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.spec.experiment import Options
from batchscale.workloads.metrics.declaration import MetricDeclaration
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    from batchscale.workloads.metrics.declaration import Measure, Value


def _make(task: Task, dataset_options: Options) -> tuple[Measure, Value]:
    from batchscale.workloads.metrics.sums import measure_average_precision, value_average_precision

    del task, dataset_options
    return measure_average_precision, value_average_precision


AVERAGE_PRECISION = MetricDeclaration("average_precision", True, (Task.MULTILABEL,), _make)
