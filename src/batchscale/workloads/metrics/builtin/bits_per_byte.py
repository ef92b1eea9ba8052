"""Bits per byte of a text: its cross entropy over its length in bytes, comparable between vocabularies."""

from __future__ import annotations

import math
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

    from batchscale.workloads.losses import softmax_cross_entropy
    from batchscale.workloads.metrics.sums import mean_of, ratio

    del task, dataset_options
    add_nats = mean_of(lambda outputs, batch: softmax_cross_entropy(outputs, batch["labels"]), per_token=True)

    def measure(outputs: jax.Array, batch: Batch, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        nats, _ = add_nats(outputs, batch, weights)
        return nats / math.log(2), jnp.sum(batch["bytes"] * batch["mask"] * weights[:, None])

    return measure, ratio


BITS_PER_BYTE = MetricDeclaration("bits_per_byte", False, (Task.TEXT,), _make, unit="bits")
