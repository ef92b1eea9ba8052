"""Curvature and gradient noise of a workload at a trained state, by products with its Gauss-Newton matrix.

The matrix is Jᵀ·L·J: J the derivatives of the outputs by the parameters, L the second derivatives of the loss by the
outputs. It is the Hessian without the curvature of the model itself, and never negative where the loss is convex in the
outputs. It is never formed. Dropout is off, and batch normalisation uses its running averages.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from batchscale.noisy_quadratic.lanczos import lanczos_quadrature
from batchscale.noisy_quadratic.measured import MeasuredSpectrum
from batchscale.noisy_quadratic.problem import Floats
from batchscale.training.state import TrialState
from batchscale.training.training_data import read_sample
from batchscale.workloads.workload import Batch, SampledSplit, Workload

EXAMPLES = 512
STEPS = 16
SAMPLES = 12
DENSITIES = 4
NOISE_EXAMPLES = 16  # of each of the two gradients whose difference is a sample of noise
AT_ONCE = 128


class Curvature:
    """Products with the Gauss-Newton matrix, and gradients, of the training loss at one state."""

    def __init__(self, workload: Workload, state: TrialState, examples: int = EXAMPLES, seed: int = 0) -> None:
        self._workload = workload
        flat, self._unravel = ravel_pytree(jax.tree.map(jnp.asarray, state.params))
        self._params = flat
        self._rest = (state.model_state, {name: jnp.asarray(value) for name, value in state.metaparameters.items()})
        stored = read_sample(workload.dataset.splits["train"], examples, seed)
        self._batches = list(_pieces(stored, AT_ONCE))
        self.num_examples = sum(_length(batch) for batch in self._batches)
        self._product, self._gradient = jax.jit(self._product_sum), jax.jit(jax.grad(self._loss_sum))
        self.products = 0
        self.read = 0

    @property
    def num_parameters(self) -> int:
        """The number of parameters."""
        return int(self._params.size)

    def displacement(self, start: TrialState) -> Floats:
        """Return the way from another state to this one."""
        other = ravel_pytree(jax.tree.map(jnp.asarray, start.params))[0]
        return np.asarray(other - self._params, dtype=np.float64)

    def product(self, vector: Floats) -> Floats:
        """Return the product of the matrix of the mean loss with a vector."""
        direction = jnp.asarray(vector, jnp.float32)
        total, weight = np.zeros(len(vector)), 0.0
        for batch in self._batches:
            part, part_weight = self._product(self._params, direction, batch)
            total, weight = total + np.asarray(part, dtype=np.float64), weight + float(part_weight)
        self.products += 1
        self.read += self.num_examples
        return np.asarray(total / max(weight, 1e-30))

    def gradient(self, batch: Batch) -> Floats:
        """Return the gradient of the mean loss of a batch."""
        self.read += _length(batch)
        weight = float(self._loss_of(self._params, batch).weight)
        return np.asarray(self._gradient(self._params, batch), dtype=np.float64) / max(weight, 1e-30)

    def _outputs(self, params: jax.Array, batch: Batch) -> jax.Array:
        inputs = batch["inputs"]
        model_state, _ = self._rest
        key = jax.random.key(0)
        outputs, _ = self._workload.model.apply(self._unravel(params), model_state, inputs, train=False, key=key)
        return outputs.astype(jnp.float32)

    def _loss_of(self, params: jax.Array, batch: Batch) -> Any:
        prepared = self._workload.dataset.prepare(batch)
        return self._workload.loss(self._outputs(params, prepared), prepared, self._rest[1])

    def _loss_sum(self, params: jax.Array, batch: Batch) -> jax.Array:
        return jnp.asarray(self._loss_of(params, batch).total)

    def _product_sum(self, params: jax.Array, vector: jax.Array, batch: Batch) -> tuple[jax.Array, jax.Array]:
        prepared = self._workload.dataset.prepare(batch)

        def outputs_of(at: jax.Array) -> jax.Array:
            return self._outputs(at, prepared)

        def loss_sum(outputs: jax.Array) -> jax.Array:
            return jnp.asarray(self._workload.loss(outputs, prepared, self._rest[1]).total)

        # J·v as the transpose of u → Jᵀ·u: a model with its own backward rule has no forward derivatives
        outputs, back = jax.vjp(outputs_of, params)
        (moved,) = jax.vjp(lambda cotangent: back(cotangent)[0], jnp.zeros_like(outputs))[1](vector)
        (bent,) = jax.vjp(jax.grad(loss_sum), outputs)[1](moved)  # symmetric
        weight = self._workload.loss(outputs, prepared, self._rest[1]).weight
        return back(bent)[0], jnp.asarray(weight, jnp.float32)


def measure_spectrum(
    workload: Workload,
    start: TrialState,
    state: TrialState,
    examples: int = EXAMPLES,
    steps: int = STEPS,
    seed: int = 0,
) -> MeasuredSpectrum:
    """Return the spectral measures of a trial's way, of its gradient noise, and of the Gauss-Newton matrix itself.

    Args:
        workload: The workload.
        start: The trial before its first step.
        state: The trial where curvature and noise are measured.
        examples: Training examples that stand for all in products.
        steps: Products per vector.
        seed: Of the examples and the random vectors.
    """
    curvature = Curvature(workload, state, examples, seed)
    random = np.random.default_rng(seed)

    def measure(vector: Floats) -> tuple[Floats, Floats]:
        if not np.any(vector):
            return np.zeros(1), np.zeros(1)
        return lanczos_quadrature(curvature.product, vector, steps)

    way = measure(curvature.displacement(start))
    noise = tuple(measure(vector) for vector in _noise_samples(curvature, workload, seed))
    signs = [random.choice([-1.0, 1.0], curvature.num_parameters) for _ in range(DENSITIES)]
    density = tuple(measure(vector) for vector in signs)
    return MeasuredSpectrum(way, noise, density, curvature.num_parameters, curvature.products, curvature.read)


def _noise_samples(curvature: Curvature, workload: Workload, seed: int) -> Iterator[Floats]:
    """Yield vectors whose covariance is that of one example's gradient: scaled differences of two small batches."""
    split = workload.dataset.splits["train"]
    if isinstance(split, SampledSplit):
        batches = [split.sample(jax.random.key(seed + 1 + i), NOISE_EXAMPLES) for i in range(2 * SAMPLES)]
    else:
        stored = read_sample(split, 2 * SAMPLES * NOISE_EXAMPLES, seed + 1)
        order = np.random.default_rng(seed).permutation(_length(stored))
        size = max(1, min(NOISE_EXAMPLES, len(order) // (2 * SAMPLES)))
        shuffled = {name: np.asarray(values)[order] for name, values in stored.items()}
        batches = list(_pieces(shuffled, size))[: 2 * SAMPLES]
    for first, second in zip(batches[::2], batches[1::2], strict=False):
        size = NOISE_EXAMPLES if isinstance(split, SampledSplit) else _length(first)
        yield (curvature.gradient(first) - curvature.gradient(second)) * np.sqrt(size / 2)


def _pieces(stored: Mapping[str, Any], size: int) -> Iterator[Batch]:
    """Yield batches of equal size, and the rest."""
    for first in range(0, _length(stored), size):
        yield {name: jnp.asarray(values[first : first + size]) for name, values in stored.items()}


def _length(batch: Mapping[str, Any]) -> int:
    return len(next(iter(batch.values())))
