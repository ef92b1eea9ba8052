"""Whether the parts of a user's own workload fit each other, by their shapes and types alone."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from batchscale.errors import SpecError, one_line
from batchscale.workloads.tasks import Task
from batchscale.workloads.user.data import sample_batch
from batchscale.workloads.user.registration import UserWorkload
from batchscale.workloads.workload import Batch, Dataset, Loss, Metric, Model


def check_shapes(
    user: UserWorkload, dataset: Dataset, model: Model, loss: Loss, metrics: tuple[Metric, ...], task: Task | None
) -> None:
    """Raises SpecError if model, loss or metrics do not fit the data; traces them on shapes, compiles nothing."""
    stored = sample_batch(dataset.splits["train"])
    key = jax.eval_shape(lambda: jax.random.key(0))
    batch = jax.eval_shape(dataset.prepare, stored)
    inputs = batch["inputs"]
    shown = f"{inputs.dtype} inputs of shape {inputs.shape}"

    def outputs_of(key: jax.Array, inputs: jax.Array) -> Any:
        params, state = model.init(key)
        return model.apply(params, state, inputs, train=True, key=key)[0]

    outputs = _traced(f"Workload {user.name}: the model fails on {shown}", outputs_of, key, inputs)
    if task is not None:
        _check_task(user.name, task, batch, outputs, dataset.num_outputs)
    size = jax.eval_shape(lambda: jnp.ones(inputs.shape[:1], jnp.float32))

    where = f"Workload {user.name}: loss or metrics fail on outputs {outputs.dtype}{list(outputs.shape)}"
    given = user.metrics if isinstance(user.metrics, Mapping) else {}
    for name, values in {**given, **({} if user.loss is None else {"the loss": user.loss})}.items():
        found = _traced(where, values, outputs, batch)
        if found.shape[:1] != inputs.shape[:1] or not jnp.issubdtype(found.dtype, jnp.floating):
            raise SpecError(
                f"Workload {user.name}: {name} must give a floating number per example (of {inputs.shape[0]}). "
                f"Found {found.dtype} of shape {found.shape}."
            )

    def measure(outputs: jax.Array, batch: Batch, weights: jax.Array) -> Any:
        found = loss(outputs, batch, {})
        return found.total, found.weight, [metric.value(metric.measure(outputs, batch, weights)) for metric in metrics]

    _traced(where, measure, outputs, batch, size)


def _traced(where: str, function: Callable[..., Any], *shapes: Any) -> Any:
    try:
        return jax.eval_shape(function, *shapes)
    except (Exception, SystemExit) as error:  # the user's own code may raise anything; it is reported as theirs
        raise SpecError(f"{where}: {type(error).__name__}: {one_line(error, 300)}") from error


def _check_task(workload: str, task: Task, batch: Mapping[str, Any], outputs: Any, num_outputs: int) -> None:
    labels, count = batch["labels"], batch["inputs"].shape[0]
    rows = labels.shape if task is Task.LANGUAGE else (count,)
    wanted = (*rows, num_outputs)
    if outputs.shape != wanted or not jnp.issubdtype(outputs.dtype, jnp.floating):
        raise SpecError(
            f"Workload {workload}: for {count} examples the model must give floating scores of shape {wanted}. "
            f"Found {outputs.dtype} of shape {outputs.shape}."
        )
    wide = (count, num_outputs)
    shapes = {Task.CLASSIFICATION: (count,), Task.MULTILABEL: wide, Task.REGRESSION: wide}
    shape = shapes.get(task, batch["inputs"].shape)
    whole = task in (Task.CLASSIFICATION, Task.LANGUAGE)
    if labels.shape != shape or (whole and not jnp.issubdtype(labels.dtype, jnp.integer)):
        kind = {Task.MULTILABEL: "numbers 0 or 1", Task.REGRESSION: "numbers"}.get(task, "whole numbers")
        raise SpecError(
            f"Workload {workload}: for {count} examples the labels of task '{task}' are {kind} of shape {shape}. "
            f"Found {labels.dtype} of shape {labels.shape}."
        )
    if task is Task.LANGUAGE and ("mask" not in batch or batch["mask"].shape != labels.shape):
        raise SpecError(f"Workload {workload}: the task 'language' needs a 'mask' of the labels' shape {labels.shape}.")
    if task is not Task.LANGUAGE and "mask" in batch and batch["mask"].shape != (count,):
        raise SpecError(
            f"Workload {workload}: the 'mask' of task '{task}' has one number per example, shape {(count,)}. "
            f"Found shape {batch['mask'].shape}."
        )
