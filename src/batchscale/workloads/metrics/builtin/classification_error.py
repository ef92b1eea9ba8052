"""The part of wrong classifications."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.spec.experiment import Options
from batchscale.workloads.metrics.declaration import MetricDeclaration
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    import jax

    from batchscale.workloads.metrics.declaration import Measure, Value
    from batchscale.workloads.workload import Batch


def _make(task: Task, dataset_options: Options) -> tuple[Measure, Value]:
    import jax.numpy as jnp

    from batchscale.workloads.metrics.sums import mean_of, ratio

    del task, dataset_options

    def wrong(outputs: jax.Array, batch: Batch) -> jax.Array:
        return (jnp.argmax(outputs, axis=-1) != batch["labels"]).astype(jnp.float32)

    return mean_of(wrong), ratio


CLASSIFICATION_ERROR = MetricDeclaration("classification_error", False, (Task.CLASSIFICATION,), _make)
