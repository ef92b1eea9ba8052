"""The noise of the gradient, measured at the evaluations of a trial on examples drawn for it.

A program of its own: the training step is the same with and without it, to the last bit. The examples are the next ones
in the trial's order, in parts of half a batch; the gradient of each part and of all together give unbiased
estimates of |G|² and tr Σ. What is measured follows from the state of a trial and its step alone, so that it is the
same after a restart and in any population. On several devices each takes its share of the parts.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from numpy.typing import NDArray

from batchscale.errors import SpecError
from batchscale.spec.gradient_noise import EXAMPLES_COLUMN, FEWEST_STEPS, NO_MOMENTS, NOISE_COLUMNS, NoiseKind
from batchscale.spec.plan import Study
from batchscale.training.devices import AXIS, EVERYWHERE, Devices, add_up
from batchscale.training.order import batch_indices, host_indices
from batchscale.training.state import TrialState, noise_key, take_member
from batchscale.training.training_data import example_seeds
from batchscale.workloads.workload import ArraySplit, Batch, IndexedSplit, Params, SampledSplit, Workload

PARTS_PER_BATCH = 2
MOST_STEPS, SHARE = 512, 4
"""Between two measurements of the noise lie a fourth of all steps so far, within ``FEWEST_STEPS`` and these.

A call of the device costs as much as some small steps. Rare measurements of more examples are also better ones: the
error of |G|² falls with the examples of a measurement, but only with the root of the number of measurements. The rule
does not depend on the step budget, so that a longer training begins the same.
"""

STEPS_PER_BATCH = 64
"""The steps trained for each batch that the noise is measured with; a measurement takes at least two batches."""

_STREAM = 0x6E  # of the keys, so that dropout and sampled data differ from those of the steps
_EXACT = 1e-6  # of the largest eigenvalue of a matrix times its transpose: more than the rounding of single precision
_OF_OPTIMIZER = {"lion": NoiseKind.SIGN, "muon": NoiseKind.SPECTRAL}


def choose_kinds(requested: bool | Sequence[str], workload: Workload, opt_state: Any) -> tuple[NoiseKind, ...]:
    """Return the kinds to measure: the requested ones, or those that fit the optimizer.

    Raises:
        SpecError: a kind cannot be measured for this workload.
    """
    has_moments = second_moments(opt_state) is not None
    if isinstance(requested, bool):
        adaptive = (NoiseKind.PRECONDITIONED, NoiseKind.SIGN) if has_moments else ()
        own = _OF_OPTIMIZER.get(workload.name.optimizer)
        return (NoiseKind.EUCLIDEAN, *adaptive, *((own,) if own and own not in adaptive else ()))
    if NoiseKind.PRECONDITIONED in requested and not has_moments:
        raise SpecError(NO_MOMENTS.format(optimizer=workload.name.optimizer))
    return tuple(kind for kind in NoiseKind if kind in requested)


def second_moments(opt_state: Any) -> Any:
    """Return the part of an optimizer's state with second moments of all parameters; None if there is none."""
    states = jax.tree.leaves(opt_state, is_leaf=lambda node: hasattr(node, "nu"))
    states = [state for state in states if hasattr(state, "nu")]
    masked = jax.tree.leaves([state.nu for state in states], is_leaf=lambda node: isinstance(node, optax.MaskedNode))
    if len(states) != 1 or any(isinstance(node, optax.MaskedNode) for node in masked):
        return None
    return states[0]


def noise_parts(study: Study, microbatch: int, multiple: int) -> tuple[int, dict[int, int]]:
    """Return the examples of a part, and the number of parts at each step at which the noise is measured.

    Those are step 0 and evaluation steps far enough after the one before. The examples are a 64th of those trained
    since then, at least two batches but at most the training set; the number of parts is even.
    """
    whole_multiples = max(1, study.batch_size // PARTS_PER_BATCH // multiple)
    size = min(microbatch, whole_multiples * multiple)
    most = max(2, (study.num_train_examples or 2**40) // size)
    counts: dict[int, int] = {}
    before = 0
    for step in study.evaluation_steps:
        since = step - before
        if step > 0 and since < min(max(FEWEST_STEPS, step // SHARE), MOST_STEPS):
            continue
        pairs = max(since, 2 * STEPS_PER_BATCH) * study.batch_size // (STEPS_PER_BATCH * size) // 2
        counts[step] = 2 * max(1, min(pairs, most // 2))
        before = step
    return size, counts


class NoiseProgram:
    """The compiled measurement of a study's trials."""

    def __init__(
        self,
        workload: Workload,
        study: Study,
        kinds: tuple[NoiseKind, ...],
        microbatch: int,
        devices: Devices,
        data: Batch,
        fed: IndexedSplit | None,
    ) -> None:
        self._kinds, self._devices, self._data, self._fed = kinds, devices, data, fed
        self._size, self._counts = noise_parts(study, microbatch, workload.model.microbatch_multiple)
        self._num_examples = workload.dataset.num_train_examples or 1
        add = make_add(workload, kinds, self._size, fed=fed is not None)

        def add_pairs(sums: Any, state: TrialState, first: jax.Array, count: jax.Array, data: Any) -> Any:
            """Add pairs of one trial; on several devices each adds its own, and then all sums are added once."""
            alone = not devices.several or devices.exact  # exact sums do not depend on the devices
            stride = 1 if alone else devices.num_devices
            start = jnp.int32(0) if alone else jax.lax.axis_index(AXIS)
            rounds = (count - start + stride - 1) // stride
            scale = scale_of(state) if NoiseKind.PRECONDITIONED in kinds else None
            new = jax.lax.fori_loop(
                0,
                rounds,
                lambda i, sums: add(sums, state, scale, first + start + i * stride, start + i * stride, data),
                empty_sums(state.params, kinds),
            )
            return jax.tree.map(jnp.add, sums, new if alone else jax.tree.map(add_up, new))

        def finish(sums: Any, state: TrialState, count: jax.Array) -> jax.Array:
            values = summarise(sums, state, kinds, self._size, 2 * count)
            return jnp.stack([values[name] for name in self.names[:-1]])

        def take(population: TrialState, slot: jax.Array) -> TrialState:
            alone = population.step.shape[0] == 1  # a fixed place is not copied
            return take_member(population, np.int32(0) if alone else slot)

        def measure(population: TrialState, slot: jax.Array, count: jax.Array, data: Any) -> jax.Array:
            state = take(population, slot)
            return finish(add_pairs(empty_sums(state.params, kinds), state, jnp.int32(0), count, data), state, count)

        def jit(function: Callable[..., Any], arguments: int) -> Callable[..., Any]:
            return jax.jit(devices.on_each(function, (EVERYWHERE,) * arguments))

        self._measure = jit(measure, 4)
        self._take = jit(take, 2)
        self._zeros = jit(lambda state: empty_sums(state.params, kinds), 1)
        self._add, self._finish = jit(add_pairs, 5), jit(finish, 3)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns that are measured."""
        return (*(name for kind in self._kinds for name in NOISE_COLUMNS[kind].names), EXAMPLES_COLUMN)

    def is_measured(self, step: int) -> bool:
        """Return True if the noise is measured at a step."""
        return step in self._counts

    def measure(self, population: TrialState, slot: int, step: int) -> dict[str, float]:
        """Return the columns of the trial in a slot; NaN at a step at which the noise is not measured."""
        count = self._counts.get(step)
        if count is None:
            return dict.fromkeys(self.names, math.nan)
        if self._fed is None:
            values = self._measure(population, np.int32(slot), np.int32(count // 2), self._data)
        else:
            state = self._take(population, np.int32(slot))
            sums = self._zeros(state)
            for first in range(0, count, PARTS_PER_BATCH):
                block = self._devices.replicate(self._read(state, first))
                pairs = min(PARTS_PER_BATCH, count - first) // 2
                sums = self._add(sums, state, np.int32(first // 2), np.int32(pairs), block)
            values = self._finish(sums, state, np.int32(count // 2))
        return dict(zip(self.names, [*np.asarray(values).tolist(), float(count * self._size)], strict=True))

    def _read(self, state: TrialState, first: int) -> dict[str, NDArray[Any]]:
        """Return a block of parts of a set that is read on the host, from a part on."""
        assert self._fed is not None
        key = np.asarray(state.order_key)
        position = int(state.epoch) * self._num_examples + int(state.offset) + first * self._size
        indices, epochs = host_indices(key, position, PARTS_PER_BATCH * self._size, self._num_examples)
        rows = self._fed.read(indices, example_seeds(key, indices, epochs))
        return {name: np.asarray(values) for name, values in rows.items()}


def make_add(
    workload: Workload, kinds: Sequence[NoiseKind], size: int, fed: bool
) -> Callable[[Any, TrialState, Params | None, jax.Array, jax.Array, Any], Any]:
    """Return the function (sums, state, scale, number of the pair of parts, its place in ``data``, data) → sums.

    The place counts if ``data`` is fed.
    """
    train = workload.dataset.splits["train"]

    def fetch(state: TrialState, part: jax.Array, place: jax.Array, data: Any) -> Batch:
        if isinstance(train, SampledSplit):
            return train.sample(jax.random.fold_in(_part_key(state, part), 0x5A), size)
        if fed:
            return {name: jax.lax.dynamic_slice_in_dim(leaf, place * size, size) for name, leaf in data.items()}
        assert isinstance(train, ArraySplit)
        indices = batch_indices(state.order_key, state.epoch, state.offset + part * size, size, train.num_examples)
        return {name: leaf[indices] for name, leaf in data.items()}

    def mean_loss(params: Params, state: TrialState, batch: Batch, key: jax.Array) -> jax.Array:
        outputs, _ = workload.model.apply(params, state.model_state, batch["inputs"], train=True, key=key)
        loss = workload.loss(outputs.astype(jnp.float32), batch, state.metaparameters)
        return loss.total / jnp.where(loss.weight > 0, loss.weight, 1)

    def add(sums: Any, state: TrialState, scale: Params | None, pair: jax.Array, place: jax.Array, data: Any) -> Any:
        def gradient(number: int) -> Params:
            part = 2 * pair + number
            batch = workload.dataset.prepare(fetch(state, part, 2 * place + number, data))
            of_loss = jax.grad(mean_loss)(state.params, state, batch, _part_key(state, part))
            if "l2_penalty" not in state.metaparameters:
                return of_loss
            penalty = state.metaparameters["l2_penalty"]  # the gradient of what is minimised
            return jax.tree.map(lambda g, p: g + penalty * p, of_loss, state.params)

        return _add_gradients(sums, (gradient(0), gradient(1)), scale, kinds)

    return add


def _part_key(state: TrialState, part: jax.Array) -> jax.Array:
    return jax.random.fold_in(jax.random.fold_in(noise_key(state), _STREAM), part)


def empty_sums(params: Params, kinds: Sequence[NoiseKind]) -> dict[str, Any]:
    """Return the sums over no parts: of gradients by halves of the parts, of squares, and what kinds need.

    Squares are added by coordinate where a kind needs them so, which gives the norms too; otherwise norms are added.
    """
    zeros = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, jnp.float32), params)
    sums: dict[str, Any] = {"halves": (zeros, zeros)}
    if NoiseKind.SIGN in kinds:
        sums["squares"] = zeros
    else:
        sums |= {"norm": jnp.float32(0), "scaled_norm": jnp.float32(0)}
    if NoiseKind.SPECTRAL in kinds:
        sums["products"] = [jnp.zeros((min(m.shape),) * 2, jnp.float32) for m in matrices(params)]
    return sums


def matrices(params: Params) -> list[jax.Array]:
    """Return the parameters that orthogonal steps are taken in: matrices that are no table of embeddings."""
    with_paths = jax.tree_util.tree_leaves_with_path(params)
    return [leaf for path, leaf in with_paths if leaf.ndim == 2 and getattr(path[-1], "key", None) != "table"]


def _add_gradients(
    sums: dict[str, Any], gradients: tuple[Params, Params], scale: Params | None, kinds: Sequence[NoiseKind]
) -> dict[str, Any]:
    new: dict[str, Any] = {"halves": gradients}
    if NoiseKind.SIGN in kinds:
        new["squares"] = jax.tree.map(lambda a, b: a * a + b * b, *gradients)
    else:
        new["norm"] = squared_norm(gradients)
        new["scaled_norm"] = jnp.float32(0) if scale is None else squared_norm(gradients, (scale, scale))
    if NoiseKind.SPECTRAL in kinds:
        pairs = zip(*(map(_wide, matrices(half)) for half in gradients), strict=True)
        new["products"] = [a @ a.T + b @ b.T for a, b in pairs]
    added: dict[str, Any] = jax.tree.map(jnp.add, sums, new)
    return added


def scale_of(state: TrialState) -> Params:
    """Return 1 / (√v + ε) of an optimizer with second moments v, as it divides gradients; infinite before step 1."""
    moments, values = second_moments(state.opt_state), state.metaparameters
    epsilon, count = values.get("epsilon", jnp.float32(1e-8)), getattr(moments, "count", None)
    if not isinstance(count, jax.Array):  # RMSprop has ε under the root, and its moments start at 0
        return jax.tree.map(lambda v: jnp.where(state.step > 0, jax.lax.rsqrt(v + epsilon), jnp.inf), moments.nu)
    correction = 1 - values["beta2"] ** count.astype(jnp.float32) if "beta2" in values else jnp.float32(1)
    return jax.tree.map(lambda v: jnp.where(count > 0, 1 / (jnp.sqrt(v / correction) + epsilon), jnp.inf), moments.nu)


def squared_norm(tree: Params, scale: Params | None = None) -> jax.Array:
    """Return the sum of squares, each times its scale."""
    terms = jax.tree.map(jnp.square, tree) if scale is None else jax.tree.map(lambda g, p: g * g * p, tree, scale)
    total: jax.Array = jax.tree.reduce(jnp.add, jax.tree.map(jnp.sum, terms), jnp.float32(0))
    return total


def flatten(tree: Params) -> jax.Array:
    """Return all values in a row: a few operations on all of them are faster than a few on every parameter."""
    return jnp.concatenate([jnp.ravel(leaf) for leaf in jax.tree.leaves(tree)])


def summarise(
    sums: dict[str, Any], state: TrialState, kinds: Sequence[NoiseKind], size: int, count: jax.Array
) -> dict[str, jax.Array]:
    """Return the columns from the sums over ``count`` parts of ``size`` examples each.

    Of independent parts with mean ḡ, size · Σ|g - ḡ|² / (count - 1) is tr Σ, and |ḡ|² - tr Σ / examples is |G|²,
    both without bias, also in a fixed scale of coordinates.
    """
    parts = count.astype(jnp.float32)
    first, second = jax.tree.map(lambda leaf: leaf / (parts / 2), sums["halves"])
    halves = flatten(first), flatten(second)
    mean = (halves[0] + halves[1]) / 2
    squares = flatten(sums["squares"]) if "squares" in sums else None
    values: dict[str, jax.Array] = {}

    def put(kind: NoiseKind, *columns: jax.Array) -> None:
        values.update(zip(NOISE_COLUMNS[kind].names, columns, strict=True))

    def split(total: jax.Array, whole: jax.Array) -> tuple[jax.Array, jax.Array]:
        trace = size * (total - parts * whole) / (parts - 1)
        return whole - trace / (parts * size), trace

    if NoiseKind.EUCLIDEAN in kinds:
        total = sums["norm"] if squares is None else jnp.sum(squares)
        put(NoiseKind.EUCLIDEAN, *split(total, jnp.sum(mean * mean)))
    if NoiseKind.PRECONDITIONED in kinds:
        scale = flatten(scale_of(state))
        total = sums["scaled_norm"] if squares is None else jnp.sum(squares * scale)
        put(NoiseKind.PRECONDITIONED, *split(total, jnp.sum(mean * mean * scale)))
    if squares is not None:
        put(NoiseKind.SIGN, *_sign_columns(squares, *halves, mean, size, parts))
    if NoiseKind.SPECTRAL in kinds:
        put(NoiseKind.SPECTRAL, *_spectral_columns(sums["products"], first, second, size, parts))
    return values


def _sign_columns(
    squares: jax.Array, first: jax.Array, second: jax.Array, mean: jax.Array, size: int, parts: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return Σ|G_i| from below and from above, and Σσ_i.

    The standard deviation of so many normal values is divided by its expectation.
    """
    shrinkage = jnp.sqrt(2 / (parts - 1)) * jnp.exp(jax.lax.lgamma(parts / 2) - jax.lax.lgamma((parts - 1) / 2))
    variances = jnp.maximum(squares - parts * mean * mean, 0) * size / (parts - 1)
    low = jnp.sum(first * jnp.sign(second) + second * jnp.sign(first)) / 2
    return low, jnp.sum(jnp.abs(mean)), jnp.sum(jnp.sqrt(variances)) / shrinkage


def _spectral_columns(
    products: list[jax.Array], first: Params, second: Params, size: int, parts: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Return Σ‖G‖_* over matrices from below and from above, and Σ tr(E[ΔΔᵀ]^½) over their shorter sides."""
    low = high = noise = jnp.float32(0)
    for a, b, product in zip(*(map(_wide, matrices(half)) for half in (first, second)), products, strict=True):
        gram = (a + b) @ (a + b).T / 4
        low += (jnp.sum(a * _polar(b)) + jnp.sum(b * _polar(a))) / 2
        high += jnp.sum(_roots(jnp.linalg.eigvalsh(gram)))
        covariance = (product - parts * gram) * size / (parts - 1)
        noise += jnp.sum(jnp.sqrt(jnp.maximum(jnp.linalg.eigvalsh(covariance), 0)))
    return low, high, noise


def _polar(wide: jax.Array) -> jax.Array:
    """Return the orthogonal factor, of singular values 1; those below a millionth of the largest become 0.

    By eigenvectors of the shorter side: on a processor a whole singular value decomposition takes 50 times as long.
    They are exact to a thousandth of the largest singular value; the first pass brings the smaller ones near it.
    """
    values, vectors = jnp.linalg.eigh(wide @ wide.T)
    near = ((vectors * jax.lax.rsqrt(jnp.maximum(values, values[-1] * _EXACT))) @ vectors.T) @ wide
    values, vectors = jnp.linalg.eigh(near @ near.T)
    roots = _roots(values)
    factor: jax.Array = ((vectors * jnp.where(roots > 0, 1 / roots, 0)) @ vectors.T) @ near
    return factor


def _roots(values: jax.Array) -> jax.Array:
    """Return the square roots of eigenvalues, growing; 0 for those within the rounding of the largest."""
    return jnp.sqrt(jnp.where(values > values[-1] * _EXACT, values, 0))


def _wide(matrix: jax.Array) -> jax.Array:
    return matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
