"""Mean squared error: over all examples and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.spec.experiment import Options
from batchscale.workloads.metrics.declaration import MetricDeclaration
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    from batchscale.workloads.metrics.declaration import Measure, Value


def _make(task: Task, dataset_options: Options) -> tuple[Measure, Value]:
    from batchscale.workloads.losses import squared_error
    from batchscale.workloads.metrics.sums import mean_of, ratio

    del task, dataset_options
    return mean_of(lambda outputs, batch: squared_error(outputs, batch["labels"])), ratio


SQUARED_ERROR = MetricDeclaration("squared_error", False, (Task.REGRESSION,), _make, trained_on=True)
