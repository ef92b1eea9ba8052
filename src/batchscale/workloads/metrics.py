"""The evaluation metrics, as sums that add up over batches; directions are in ``metric_facts``."""

from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp

from batchscale.workloads.average_precision import measure_average_precision, value_average_precision
from batchscale.workloads.losses import sigmoid_cross_entropy, softmax_cross_entropy
from batchscale.workloads.metric_facts import TASK_METRICS
from batchscale.workloads.tasks import Task
from batchscale.workloads.workload import Batch, Metric

Measure = Callable[[jax.Array, Batch, jax.Array], tuple[jax.Array, jax.Array]]


def _weighted(values: jax.Array, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    # Padding may hold anything, so its values are left out rather than multiplied by 0: 0·nan is nan.
    counted = jnp.where(weights > 0, values * weights, 0.0)
    return jnp.sum(counted), jnp.sum(weights)


def _class_entropy(outputs: jax.Array, batch: Batch, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _weighted(softmax_cross_entropy(outputs, batch["labels"]), weights)


def _class_errors(outputs: jax.Array, batch: Batch, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    wrong = jnp.argmax(outputs, axis=-1) != batch["labels"]
    return _weighted(wrong.astype(jnp.float32), weights)


def _label_entropy(outputs: jax.Array, batch: Batch, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    return _weighted(sigmoid_cross_entropy(outputs, batch["labels"]), weights)


def _token_entropy(outputs: jax.Array, batch: Batch, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
    mask = batch["mask"].astype(jnp.float32) * weights[:, None]
    return _weighted(softmax_cross_entropy(outputs, batch["labels"]), mask)


def _ratio(sums: tuple[jax.Array, jax.Array]) -> jax.Array:
    total, weight = sums
    return total / weight


_RATIOS: Mapping[tuple[Task, str], Measure] = {
    (Task.CLASSIFICATION, "cross_entropy_error"): _class_entropy,
    (Task.CLASSIFICATION, "classification_error"): _class_errors,
    (Task.MULTILABEL, "cross_entropy_error"): _label_entropy,
    (Task.LANGUAGE, "cross_entropy_error"): _token_entropy,
}


def task_metrics(task: Task) -> tuple[Metric, ...]:
    """The metrics of a task, in the order of ``TASK_METRICS``.

    ``cross_entropy_error`` is the total over all examples (or tokens) divided by their number, in nats;
    ``classification_error`` the part of wrong classifications.
    """
    return tuple(_metric(task, name, maximize) for name, maximize in TASK_METRICS[task].items())


def _metric(task: Task, name: str, maximize: bool) -> Metric:
    if name == "average_precision":
        return Metric(name, maximize, measure_average_precision, value_average_precision)
    return Metric(name, maximize, _RATIOS[task, name], _ratio)
