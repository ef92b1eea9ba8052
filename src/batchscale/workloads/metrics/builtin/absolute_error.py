"""Mean absolute error: over all examples and outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.spec.experiment import Options
from batchscale.workloads.metrics.declaration import MetricDeclaration
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    from batchscale.workloads.metrics.declaration import Measure, Value


def _make(task: Task, dataset_options: Options) -> tuple[Measure, Value]:
    import jax.numpy as jnp

    from batchscale.workloads.metrics.sums import mean_of, ratio

    del task, dataset_options
    return mean_of(lambda outputs, batch: jnp.mean(jnp.abs(outputs - batch["labels"]), axis=-1)), ratio


ABSOLUTE_ERROR = MetricDeclaration("absolute_error", False, (Task.REGRESSION,), _make)
