"""The loss that is minimised: nats per token of a text; of the noisy quadratic model ``½ Σ h θ²``, without noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from batchscale.noisy_quadratic import parse_problem
from batchscale.spec.experiment import Options
from batchscale.workloads.metrics.builtin.cross_entropy_error import CROSS_ENTROPY_ERROR
from batchscale.workloads.metrics.declaration import MetricDeclaration
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    import jax

    from batchscale.workloads.metrics.declaration import Measure, Value
    from batchscale.workloads.workload import Batch


def _make(task: Task, dataset_options: Options) -> tuple[Measure, Value]:
    from batchscale.workloads.losses import exact_quadratic
    from batchscale.workloads.metrics.sums import ratio

    if task is Task.TEXT:
        return CROSS_ENTROPY_ERROR.make(task, dataset_options)
    problem = parse_problem(dataset_options)

    def measure(outputs: jax.Array, batch: Batch, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        del batch
        return (weights * exact_quadratic(outputs, problem)).sum(), weights.sum()

    return measure, ratio


LOSS = MetricDeclaration("loss", False, (Task.QUADRATIC, Task.TEXT), _make, trained_on=True)
