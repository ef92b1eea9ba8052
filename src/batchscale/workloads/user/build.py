"""Build the workload of a registration; its shapes are checked before anything is compiled."""

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from batchscale.errors import SpecError, one_line
from batchscale.spec.experiment import Options, WorkloadSpec
from batchscale.workloads.datasets.declaration import dataset_info, load_dataset
from batchscale.workloads.metrics.declaration import task_metrics
from batchscale.workloads.models.declaration import PRECISIONS, Shape, check_fit, check_precision, find_model
from batchscale.workloads.models.nnx_model import in_precision, make_model
from batchscale.workloads.tasks import Task
from batchscale.workloads.tunables import find_tunables
from batchscale.workloads.update import make_update
from batchscale.workloads.user.data import make_dataset, sample_batch
from batchscale.workloads.user.registration import UserWorkload, Values
from batchscale.workloads.workload import (
    Batch,
    Dataset,
    Loss,
    LossSum,
    Metaparameters,
    Metric,
    Model,
    ModelState,
    Params,
    Workload,
)


def build_user_workload(user: UserWorkload, spec: WorkloadSpec, data_dir: Path | None) -> Workload:
    """Build the workload of a registration.

    Raises:
        SpecError: A shape or type is not what the parts expect of each other; nothing has been compiled.
    """
    task = user.task
    if user.data is None:
        dataset = load_dataset(user.dataset, spec.dataset_options, data_dir)
        task = task or (dataset_info(user.dataset, spec.dataset_options).task if user.loss is None else None)
    else:
        dataset = make_dataset(user)
    model, schedule = _make_model(user, spec, dataset, task)
    loss, metrics = _make_loss_and_metrics(user, task)
    check_shapes(user, dataset, model, loss, metrics, task)
    tunables = find_tunables(spec, user.schedule or schedule, smoothing=task is not None and task.has_classes)
    return Workload(spec.name, dataset, model, loss, metrics, tunables.defaults, tunables.space, make_update(tunables))


def _make_model(user: UserWorkload, spec: WorkloadSpec, dataset: Dataset, task: Task | None) -> tuple[Model, str]:
    make = user.make
    if make is None:
        declared = find_model(user.model, spec.model_options)
        if task is not None:
            check_fit(declared, user.dataset, task, dataset.input_shape)
        shape = Shape(dataset.input_shape, dataset.num_outputs, spec.dataset_options)
        return declared.for_data(shape), declared.schedule
    precision = _read_precision(user, spec.model_options)
    if isinstance(make, Model):
        return in_precision(make, precision), "constant"
    if isinstance(make, tuple):
        return in_precision(_make_pair_model(user, make), precision), "constant"
    if not callable(make):
        raise SpecError(f"Workload {user.name}: a model must be a function of nnx.Rngs or a pair (init, apply).")
    return in_precision(make_model(user.model, _module_maker(make)), precision), "constant"


def _read_precision(user: UserWorkload, options: Options) -> str:
    """Return the precision, the only option of a user's model."""
    if set(options) - {"precision"}:
        raise SpecError(f"Workload {user.name}: its own model takes no options but precision. Found {sorted(options)}.")
    return check_precision(f"model.precision of {user.name}", options.get("precision", PRECISIONS[0]))


def _module_maker(make: Callable[..., Any]) -> Callable[[nnx.Rngs], nnx.Module]:
    # A module's metaclass hides the arguments that its constructor takes.
    function = vars(make).get("__init__", make) if isinstance(make, type) else make
    named = inspect.signature(function).parameters.get("rngs")
    if named is not None and named.kind is inspect.Parameter.KEYWORD_ONLY:
        return lambda rngs: make(rngs=rngs)
    return lambda rngs: make(rngs)


def _make_pair_model(user: UserWorkload, pair: tuple[Any, ...]) -> Model:
    if len(pair) != 2 or not all(callable(function) for function in pair):
        raise SpecError(f"Workload {user.name}: a pair (init, apply) must be two functions. Found {len(pair)} items.")
    init, forward = pair
    takes = set(inspect.signature(forward).parameters) & {"train", "key"}

    def apply(
        params: Params, state: ModelState, inputs: jax.Array, *, train: bool, key: jax.Array
    ) -> tuple[jax.Array, ModelState]:
        arguments = {"train": train, "key": key}
        return forward(params, inputs, **{name: arguments[name] for name in takes}), state

    return Model(user.model, lambda key: (init(key), {}), apply)


def _make_loss_and_metrics(user: UserWorkload, task: Task | None) -> tuple[Loss, tuple[Metric, ...]]:
    if user.loss is None:
        assert task is not None
        loss, metrics = task.make_loss({}), task_metrics(task)
    else:
        loss, metrics = _mean_loss(user.loss), (_mean_metric("loss", user.loss),)
    if user.metrics is None:
        return loss, metrics
    if isinstance(user.metrics, Mapping):
        return loss, tuple(_mean_metric(name, values) for name, values in user.metrics.items())
    return loss, tuple(user.metrics)


def _mean_loss(values: Values) -> Loss:
    def loss(outputs: jax.Array, batch: Batch, metaparameters: Metaparameters) -> LossSum:
        del metaparameters
        errors = jnp.asarray(values(outputs, batch))
        weights = _weights(errors, batch, jnp.ones(errors.shape[:1]))
        return LossSum(jnp.sum(errors * weights), jnp.sum(weights))

    return loss


def _mean_metric(name: str, values: Values) -> Metric:
    def measure(outputs: jax.Array, batch: Batch, weights: jax.Array) -> tuple[jax.Array, jax.Array]:
        errors = jnp.asarray(values(outputs, batch), jnp.float32)
        spread = _weights(errors, batch, weights)
        return jnp.sum(jnp.where(spread > 0, errors * spread, 0.0)), jnp.sum(spread)

    return Metric(name, False, measure, lambda sums: sums[0] / sums[1])


def _weights(values: jax.Array, batch: Batch, weights: jax.Array) -> jax.Array:
    """Return a weight for every value: the example's, and the mask's where values are per token."""
    spread = jnp.broadcast_to(weights.reshape(-1, *[1] * (values.ndim - 1)), values.shape)
    mask = batch.get("mask")
    return spread if mask is None or mask.shape != values.shape else spread * mask


def check_shapes(
    user: UserWorkload, dataset: Dataset, model: Model, loss: Loss, metrics: tuple[Metric, ...], task: Task | None
) -> None:
    """Raise SpecError if model, loss or metrics do not fit the data; traces them on shapes, compiles nothing."""
    sample = sample_batch(dataset.splits["train"])
    key = jax.eval_shape(lambda: jax.random.key(0))
    batch = jax.eval_shape(dataset.prepare, sample)
    inputs = batch["inputs"]
    inputs_text = f"{inputs.dtype} inputs of shape {inputs.shape}"

    def outputs_of(key: jax.Array, inputs: jax.Array) -> Any:
        params, state = model.init(key)
        return model.apply(params, state, inputs, train=True, key=key)[0]

    outputs = _trace(f"Workload {user.name}: the model fails on {inputs_text}", outputs_of, key, inputs)
    if task is not None:
        _check_task(user.name, task, batch, outputs, dataset.num_outputs)
    size = jax.eval_shape(lambda: jnp.ones(inputs.shape[:1], jnp.float32))

    where = f"Workload {user.name}: loss or metrics fail on outputs {outputs.dtype}{list(outputs.shape)}"
    metric_functions = user.metrics if isinstance(user.metrics, Mapping) else {}
    for name, values in {**metric_functions, **({} if user.loss is None else {"the loss": user.loss})}.items():
        result = _trace(where, values, outputs, batch)
        if result.shape[:1] != inputs.shape[:1] or not jnp.issubdtype(result.dtype, jnp.floating):
            raise SpecError(
                f"Workload {user.name}: {name} must return a floating number per example (of {inputs.shape[0]}). "
                f"Found {result.dtype} of shape {result.shape}."
            )

    def measure(outputs: jax.Array, batch: Batch, weights: jax.Array) -> Any:
        result = loss(outputs, batch, {})
        return (
            result.total,
            result.weight,
            [metric.value(metric.measure(outputs, batch, weights)) for metric in metrics],
        )

    _trace(where, measure, outputs, batch, size)


def _trace(where: str, function: Callable[..., Any], *shapes: Any) -> Any:
    try:
        return jax.eval_shape(function, *shapes)
    except (Exception, SystemExit) as error:  # the user's own code may raise anything; it is reported as theirs
        raise SpecError(f"{where}: {type(error).__name__}: {one_line(error, 300)}") from error


def _check_task(workload: str, task: Task, batch: Mapping[str, Any], outputs: Any, num_outputs: int) -> None:
    labels, count = batch["labels"], batch["inputs"].shape[0]
    rows = labels.shape if task is Task.LANGUAGE else (count,)
    expected = (*rows, num_outputs)
    if outputs.shape != expected or not jnp.issubdtype(outputs.dtype, jnp.floating):
        raise SpecError(
            f"Workload {workload}: for {count} examples the model must return floating scores of shape {expected}. "
            f"Found {outputs.dtype} of shape {outputs.shape}."
        )
    wide = (count, num_outputs)
    shapes = {Task.CLASSIFICATION: (count,), Task.MULTILABEL: wide, Task.REGRESSION: wide}
    shape = shapes.get(task, batch["inputs"].shape)
    whole = task in (Task.CLASSIFICATION, Task.LANGUAGE)
    if labels.shape != shape or (whole and not jnp.issubdtype(labels.dtype, jnp.integer)):
        kind = {Task.MULTILABEL: "numbers 0 or 1", Task.REGRESSION: "numbers"}.get(task, "whole numbers")
        raise SpecError(
            f"Workload {workload}: for {count} examples the labels of task '{task}' must be {kind} of shape {shape}. "
            f"Found {labels.dtype} of shape {labels.shape}."
        )
    if task is Task.LANGUAGE and ("mask" not in batch or batch["mask"].shape != labels.shape):
        raise SpecError(f"Workload {workload}: the task 'language' needs a 'mask' of the labels' shape {labels.shape}.")
    if task is not Task.LANGUAGE and "mask" in batch and batch["mask"].shape != (count,):
        raise SpecError(
            f"Workload {workload}: the 'mask' of task '{task}' must have one number per example, shape {(count,)}. "
            f"Found shape {batch['mask'].shape}."
        )
