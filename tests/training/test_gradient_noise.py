"""The gradient noise of a trial: equal to a direct computation, and without any effect on the trial."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import polars as pl
import pytest

from batchscale.errors import SpecError
from batchscale.noisy_quadratic.problem import NoisyQuadratic
from batchscale.prediction.noise_scale import estimate_noise_scale, read_series
from batchscale.spec.durations import EvaluationPlan
from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.goal import Goal
from batchscale.spec.gradient_noise import EXAMPLES_COLUMN, NOISE_COLUMNS, WITHOUT_MOMENTS, NoiseKind
from batchscale.spec.workload_name import WorkloadName
from batchscale.training.devices import choose_devices
from batchscale.training.gradient_noise import NoiseProgram, choose_kinds, noise_parts, scale_of
from batchscale.training.order import host_indices
from batchscale.training.state import init_trial
from batchscale.training.study_engine import EngineSettings, StudyEngine, TrialTask
from batchscale.training.training_data import make_probe, place_training_data
from batchscale.workloads.registry import get_workload
from batchscale.workloads.workload import Dataset, IndexedSplit
from conftest import make_study, make_toy_workload

pytestmark = pytest.mark.usefixtures("shared_programs")

ALL_KINDS = tuple(str(kind) for kind in NoiseKind)
EVERY = 64
STEPS = 3 * EVERY


def with_adam(workload):
    defaults = {"learning_rate": None, "beta1": 0.9, "beta2": 0.99, "epsilon": 1e-6}
    return replace(
        workload,
        name=WorkloadName("toy", "fc", "adam"),
        defaults=defaults,
        make_update=lambda mp: optax.chain(
            optax.scale_by_adam(mp["beta1"], mp["beta2"], mp["epsilon"]), optax.scale(-mp["learning_rate"])
        ),
    )


VALUES = {"learning_rate": jnp.float32(0.01), "beta1": jnp.float32(0.9)}
VALUES |= {"beta2": jnp.float32(0.99), "epsilon": jnp.float32(1e-6)}
WORKLOAD = with_adam(make_toy_workload())
STUDY = replace(make_study(WORKLOAD, batch_size=8, train_steps=STEPS, every=EVERY), num_train_examples=40)


def train(noise=ALL_KINDS, study=STUDY, workload=WORKLOAD, stops=(STEPS,), trials=1, **settings):
    settings = {"population": 1} | settings
    engine = StudyEngine(workload, study, EvaluationPlan(gradient_noise=noise), EngineSettings(**settings))
    for until in stops:
        tasks = [
            TrialTask(k, {"learning_rate": 0.01}, seed=5 + k, until_step=until, from_step=-1) for k in range(trials)
        ]
        progress = engine.advance(tasks)
    return dict(progress[0].rows), engine


@pytest.fixture(scope="module")
def whole(shared_programs):
    return train()


def part_gradients(engine, workload, size, count, step):
    """The gradients of the parts at the trial's last state, by a second code: one matrix row each."""
    state = engine._population.member(0)
    assert int(state.step) == step
    arrays = workload.dataset.splits["train"].arrays
    indices, _ = host_indices(state.order_key, int(state.epoch) * 40 + int(state.offset), size * count, 40)

    def mean_loss(params, rows):
        outputs, _ = workload.model.apply(params, {}, arrays["inputs"][rows], train=True, key=None)
        return optax.softmax_cross_entropy_with_integer_labels(outputs, arrays["labels"][rows]).mean()

    rows = indices.reshape(count, size)
    return [jax.tree.map(np.asarray, jax.grad(mean_loss)(state.params, part)) for part in rows], state


def flat(tree):
    return np.concatenate([np.ravel(leaf).astype(float) for leaf in jax.tree.leaves(tree)])


def test_every_column_equals_a_direct_computation(whole):
    rows, engine = whole
    size, counts = noise_parts(STUDY, 8, 1)
    assert (size, counts) == (4, {0: 4, 64: 4, 128: 4, 192: 4})
    gradients, state = part_gradients(engine, WORKLOAD, size, counts[STEPS], STEPS)
    matrix, row = np.array([flat(gradient) for gradient in gradients]), rows[STEPS]
    mean, n = matrix.mean(0), size * len(matrix)
    variances = size * matrix.var(axis=0, ddof=1)
    moments = state.opt_state[0]
    scale = 1 / (np.sqrt(flat(moments.nu) / (1 - 0.99**STEPS)) + 1e-6)
    expected = {}
    for kind, weights in ((NoiseKind.EUCLIDEAN, 1.0), (NoiseKind.PRECONDITIONED, scale)):
        trace = np.sum(weights * variances)
        expected |= zip(NOISE_COLUMNS[kind].names, (np.sum(weights * mean**2) - trace / n, trace), strict=True)
    first, second = matrix[::2].mean(0), matrix[1::2].mean(0)
    freedom = len(matrix) - 1
    shrinkage = math.sqrt(2 / freedom) * math.gamma(len(matrix) / 2) / math.gamma(freedom / 2)
    low = (first @ np.sign(second) + second @ np.sign(first)) / 2
    high, noise = np.abs(mean).sum(), np.sqrt(variances).sum() / shrinkage
    expected |= zip(NOISE_COLUMNS[NoiseKind.SIGN].names, (low, high, noise), strict=True)
    low = high = noise = 0.0
    for name in ("w1", "w2"):
        parts = np.array([gradient[name] for gradient in gradients], float)
        a, b, whole_mean = parts[::2].mean(0), parts[1::2].mean(0), parts.mean(0)
        for x, y in ((a, b), (b, a)):
            left, _, right = np.linalg.svd(y, full_matrices=False)
            low += np.sum(x * (left @ right)) / 2
        high += np.linalg.norm(whole_mean, "nuc")
        centred = parts - whole_mean
        axes = "pij,pkj->ik" if parts.shape[1] <= parts.shape[2] else "pji,pjk->ik"
        noise += np.sqrt(np.linalg.eigvalsh(np.einsum(axes, centred, centred) * size / freedom).clip(0)).sum()
    expected |= zip(NOISE_COLUMNS[NoiseKind.SPECTRAL].names, (low, high, noise), strict=True)
    expected[EXAMPLES_COLUMN] = n
    for name, value in expected.items():
        assert row[name] == pytest.approx(value, rel=2e-3, abs=1e-4), name


def test_other_columns_have_the_same_bits_with_and_without_it(whole):
    without, _ = train(noise=False)
    assert list(without) == list(whole[0])
    for step, values in without.items():
        assert values == {name: whole[0][step][name] for name in values}
        assert all(name.startswith("train/") for name in set(whole[0][step]) - set(values))


def test_preconditioned_norms_do_not_exist_before_the_first_step(whole):
    first = whole[0][0]
    assert math.isfinite(first["train/gradient_norm_squared"])
    assert not math.isfinite(first["train/preconditioned_norm_squared"])


def test_resumed_it_has_the_same_bits(whole, tmp_path):
    train(stops=(100,), checkpoint_dir=tmp_path)
    resumed, _ = train(checkpoint_dir=tmp_path)
    assert repr(resumed) == repr(whole[0])  # of which some are infinite or NaN


def test_in_a_population_it_is_that_of_a_trial_alone(whole):
    together, _ = train(trials=2, population=2)
    for step, values in whole[0].items():
        for name, value in values.items():
            if math.isfinite(value):  # the weights themselves differ by rounding in a population
                assert together[step][name] == pytest.approx(value, rel=1e-2, abs=1e-2), (step, name)


def test_parts_are_microbatches_where_these_are_smaller_and_whole_ghost_batches():
    assert noise_parts(replace(STUDY, batch_size=32), microbatch=4, multiple=1)[0] == 4
    assert noise_parts(replace(STUDY, batch_size=32), microbatch=32, multiple=12)[0] == 12
    assert noise_parts(replace(STUDY, batch_size=32), microbatch=32, multiple=32)[0] == 32


def test_a_batch_of_one_and_the_whole_set_can_be_measured():
    size, counts = noise_parts(replace(STUDY, batch_size=1), 1, 1)
    assert size == 1 and set(counts.values()) == {2}
    size, counts = noise_parts(replace(STUDY, batch_size=40), 40, 1)
    assert size == 20 and set(counts.values()) == {2}  # no example twice


def test_measurements_closer_than_a_fourth_of_all_steps_within_64_and_512_are_left_empty():
    steps = (0, 10, 20, 63, 64, 100, 127, 128, 400, 498, 535, 9600, 10_111, 10_112)
    _, counts = noise_parts(replace(STUDY, evaluation_steps=steps, num_train_examples=None), 8, 1)
    assert counts == {0: 4, 64: 4, 128: 4, 400: 8, 535: 4, 9600: 282, 10_112: 16}


def test_a_longer_budget_measures_the_same_steps_first():
    short, long = (
        noise_parts(replace(STUDY, evaluation_steps=tuple(range(0, budget + 1, 8))), 8, 1)[1]
        for budget in (1_000, 10_000)
    )
    assert list(long.items())[: len(short)] == list(short.items())
    assert len(short) == 9 and len(long) == 27


class RowsOnTheHost(IndexedSplit):
    def __init__(self, arrays):
        self._arrays = arrays

    @property
    def num_examples(self):
        return 40

    def read(self, indices, seeds):
        return {name: values[indices] for name, values in self._arrays.items()}


def test_a_set_that_is_read_on_the_host_gives_the_same(whole):
    splits = WORKLOAD.dataset.splits
    fed = RowsOnTheHost(splits["train"].arrays)
    dataset = WORKLOAD.dataset
    dataset = Dataset(
        dataset.name, {**splits, "train": fed}, dataset.prepare, dataset.input_shape, np.float32, dataset.num_outputs
    )
    rows, _ = train(workload=replace(WORKLOAD, dataset=dataset), noise=("euclidean",))
    for step, values in rows.items():
        for name in NOISE_COLUMNS[NoiseKind.EUCLIDEAN].names:
            assert values[name] == pytest.approx(whole[0][step][name], rel=1e-3, abs=1e-5)


def test_a_kind_that_does_not_fit_the_optimizer_is_refused_with_the_ones_that_do():
    workload = make_toy_workload()
    with pytest.raises(SpecError, match="'preconditioned' needs an optimizer with second moments"):
        train(noise=("preconditioned",), workload=workload, study=make_study(workload))


KINDS_OF_OPTIMIZERS = {
    "sgd": (), "nesterov_momentum": (), "lars": (), "lion": ("sign",), "muon": ("spectral",),
    "adam": ("preconditioned", "sign"), "adamw": ("preconditioned", "sign"), "lamb": ("preconditioned", "sign"),
    "rmsprop": ("preconditioned", "sign"),
}  # fmt: skip


@pytest.mark.parametrize("optimizer", KINDS_OF_OPTIMIZERS)
def test_an_optimizer_has_the_kinds_that_the_guide_names_and_divides_by_the_scale_measured(optimizer):
    workload = get_workload(WorkloadSpec(WorkloadName("digits", "fc_2", optimizer)))
    values = {name: jnp.float32(0.1 if value is None else value) for name, value in workload.defaults.items()}
    values |= {name: jnp.float32(0) for name in ("beta1", "momentum", "weight_decay") if name in values}
    state = init_trial(workload, jnp.uint32(3), values, make_probe(workload.dataset), 1000.0)
    kinds = choose_kinds(True, workload, state.opt_state)
    assert kinds == ("euclidean", *KINDS_OF_OPTIMIZERS[optimizer])
    assert (optimizer in WITHOUT_MOMENTS) == ("preconditioned" not in kinds)
    if "preconditioned" not in kinds or optimizer == "lamb":  # which scales its steps once more
        return
    gradient = jax.tree.map(lambda leaf: jnp.full_like(leaf, 0.5), state.params)
    steps, opt_state = workload.make_update(values).update(gradient, state.opt_state, state.params)
    scale = scale_of(state._replace(opt_state=opt_state, step=jnp.int32(1)))
    for leaf, moved in zip(jax.tree.leaves(scale), jax.tree.leaves(steps), strict=True):
        np.testing.assert_allclose(moved, -0.1 * 0.5 * leaf, rtol=1e-4)
    before = scale_of(state)
    assert all(np.all(np.isinf(leaf)) for leaf in jax.tree.leaves(before))


@pytest.mark.parametrize("batch_size", [1, 16])
def test_the_noisy_quadratic_has_the_noise_scale_of_its_closed_form(batch_size):
    problem = NoisyQuadratic(dimension=30, noise=0.5)
    spec = WorkloadSpec(
        WorkloadName("noisy_quadratic", "quadratic", "sgd"), dataset_options={"dimension": 30, "noise": 0.5}
    )
    workload = get_workload(spec, None)
    study = replace(make_study(workload, batch_size, 512 * 100, 512), goal=Goal.parse("val/loss < 0"))
    plan = EvaluationPlan(examples={"val": 1}, gradient_noise=True)
    engine = StudyEngine(workload, study, plan, EngineSettings(population=1))
    task = TrialTask(0, {"learning_rate": 1e-12}, seed=1, until_step=512 * 100, from_step=-1)  # stays at its start
    rows = engine.advance([task])[0].rows
    columns = NOISE_COLUMNS[NoiseKind.EUCLIDEAN]
    measured = np.array([[values[name] for name in columns.names] for _, values in rows])
    truth = np.array([np.sum(problem.curvatures**2), np.sum(problem.noise_variances)])
    errors = measured.std(axis=0, ddof=1) / math.sqrt(len(measured))
    assert np.all(np.abs(measured.mean(axis=0) - truth) < 4 * errors)
    frame = pl.DataFrame([{"step": step, **values} for step, values in rows])
    scale = estimate_noise_scale(read_series(frame, NoiseKind.EUCLIDEAN), level=0.9999)
    assert scale.estimate.includes(truth[1] / truth[0])
    assert scale.estimate.value == pytest.approx(truth[1] / truth[0], rel=0.1)


def measure_on_devices():
    """The columns of a trial before its first step on one and two devices, added in any and in a fixed order."""
    state = init_trial(WORKLOAD, jnp.uint32(3), VALUES, make_probe(WORKLOAD.dataset), 1000.0)
    columns = []
    for count, exact in ((1, False), (2, False), (1, True), (2, True)):
        devices = choose_devices(count, exact)
        population = devices.replicate(jax.tree.map(lambda leaf: np.asarray(leaf)[None], state))
        data = place_training_data(WORKLOAD.dataset, devices)
        noise = NoiseProgram(WORKLOAD, STUDY, (NoiseKind.EUCLIDEAN, NoiseKind.SIGN), 8, devices, data, None)
        columns.append(noise.measure(population, 0, 0))
    return columns


@pytest.mark.timeout(400)
def test_on_two_devices_it_is_that_of_one_and_exact_sums_have_the_same_bits():
    environment = dict(os.environ, XLA_FLAGS="--xla_force_host_platform_device_count=2", JAX_PLATFORMS="cpu")
    script = f"import sys; sys.path[:0] = [{str(Path(__file__).parent)!r}]; import json, test_gradient_noise as cases; "
    command = [sys.executable, "-c", script + "print(json.dumps(cases.measure_on_devices()))"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=390, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    one, two, exact_one, exact_two = json.loads(done.stdout.splitlines()[-1])
    assert exact_one == exact_two
    assert two == pytest.approx(one, rel=1e-4)
    assert exact_two == pytest.approx(one, rel=1e-4)
