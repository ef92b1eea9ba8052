"""The update rules against numpy, step by step, and what the search relies on: arrays in, one program for all."""

import sys
from pathlib import Path

import jax
import numpy as np
import optax
import pytest

from batchscale.errors import UnknownNameError
from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.space import SearchSpace, check_bounds, natural_bounds
from batchscale.spec.workload_name import WorkloadName
from batchscale.workloads.optimizers.declaration import OPTIMIZERS
from batchscale.workloads.schedules.declaration import find_schedule
from batchscale.workloads.tunables import find_tunables
from batchscale.workloads.update import regularize

sys.path.insert(0, str(Path(__file__).parent))
from generated import cheap_jit

STEPS = 7
CONSTANT, LINEAR = find_schedule("constant", {}).rate, find_schedule("linear", {}).rate
NAMES = tuple(OPTIMIZERS.all())


@pytest.fixture
def problem():
    random = np.random.default_rng(0)
    start = {"w": random.normal(size=(4, 3)).astype(np.float32), "b": random.normal(size=3).astype(np.float32)}
    gradients = [{k: random.normal(size=v.shape).astype(np.float32) for k, v in start.items()} for _ in range(STEPS)]
    return start, gradients


def arrays(**values):
    return {name: np.float32(value) for name, value in values.items()}


def make(name, values, schedule=CONSTANT):
    return OPTIMIZERS.find(name).rule(values, lambda step: schedule(step, values))


def run(name, values, problem, schedule=CONSTANT):
    return train(lambda: make(name, values, schedule), problem)


def train(make, problem):
    params, gradients = problem
    state = cheap_jit(lambda params: make().init(params))(params)

    @cheap_jit
    def step(params, state, gradient):
        change, state = make().update(gradient, state, params)
        return optax.apply_updates(params, change), state

    for gradient in gradients:
        params, state = step(params, state, gradient)
    return params


def first_update(rule, gradient, params):
    return cheap_jit(lambda gradient, params: rule.update(gradient, rule.init(params), params)[0])(gradient, params)


def by_hand(problem, rule, schedule):
    """The paper's section 2.2: v' = γ v + g, and θ' by the rule, in float64."""
    start, gradients = problem
    result = {}
    for key, value in start.items():
        theta, velocity = value.astype(np.float64), np.zeros_like(value, np.float64)
        for t, gradient in enumerate(gradients):
            theta, velocity = rule(theta, velocity, gradient[key].astype(np.float64), schedule(t))
        result[key] = theta
    return result


GAMMA = 0.8
RULES = {
    "sgd": lambda theta, v, g, rate: (theta - rate * g, v),
    "momentum": lambda theta, v, g, rate: (theta - rate * (GAMMA * v + g), GAMMA * v + g),
    "nesterov_momentum": lambda theta, v, g, rate: (
        theta - rate * g - rate * GAMMA * (GAMMA * v + g),
        GAMMA * v + g,
    ),
}


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("decay", [False, True])
def test_the_papers_rules_step_by_step(name, decay, problem):
    values = arrays(
        learning_rate=0.1, momentum=GAMMA, end_learning_rate_factor=0.1, learning_rate_decay_steps=float(STEPS)
    )
    expected = by_hand(problem, RULES[name], lambda t: 0.1 * (1 - 0.9 * t / STEPS) if decay else 0.1)
    found = run(name, values, problem, LINEAR if decay else CONSTANT)
    for key in expected:
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-5, atol=1e-6)  # float32 over 7 steps


@pytest.mark.parametrize("name", ["momentum", "nesterov_momentum"])
def test_zero_momentum_is_plain_sgd(name, problem):
    plain = run("sgd", arrays(learning_rate=0.1), problem)
    other = run(name, arrays(learning_rate=0.1, momentum=0.0), problem)
    for key in plain:
        np.testing.assert_array_equal(other[key], plain[key])


REFERENCES = {
    "adam": lambda v: optax.adam(v["learning_rate"], v["beta1"], v["beta2"], v["epsilon"]),
    "adamw": lambda v: optax.adamw(
        v["learning_rate"], v["beta1"], v["beta2"], v["epsilon"], weight_decay=v["weight_decay"]
    ),
    "rmsprop": lambda v: optax.rmsprop(v["learning_rate"], v["rms_decay"], v["epsilon"], momentum=v["momentum"]),
    "lamb": lambda v: optax.lamb(
        v["learning_rate"], v["beta1"], v["beta2"], v["epsilon"], weight_decay=v["weight_decay"]
    ),
    "lars": lambda v: optax.lars(
        v["learning_rate"], v["weight_decay"], trust_coefficient=v["trust_coefficient"], momentum=v["momentum"]
    ),
    "lion": lambda v: optax.lion(v["learning_rate"], v["beta1"], v["beta2"], weight_decay=v["weight_decay"]),
    "muon": lambda v: optax.contrib.muon(
        v["learning_rate"],
        beta=v["momentum"],
        eps=v["epsilon"],
        weight_decay=v["weight_decay"],
        adam_b1=v["beta1"],
        adam_b2=v["beta2"],
        adam_learning_rate=v["adam_rate_factor"] * v["learning_rate"],
    ),
}


def some_values(name):
    """A value for every metaparameter of an optimizer, none of them a default."""
    given = {"learning_rate": 0.03, "momentum": 0.7, "weight_decay": 0.02, "trust_coefficient": 0.01}
    return {key: given.get(key, (default or 0) * 0.9) for key, default in OPTIMIZERS.find(name).defaults.items()}


@pytest.mark.parametrize("name", REFERENCES)
def test_other_optimizers_are_optax_with_numbers_as_arrays(name, problem):
    values = some_values(name)
    found = run(name, arrays(**values), problem)
    expected = train(lambda: REFERENCES[name](values), problem)
    for key in expected:
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-5, atol=1e-6)  # float32 against Python numbers


@pytest.mark.parametrize("name", NAMES)
def test_a_population_of_values_is_one_program_and_equals_each_alone(name, problem):
    start, gradients = problem

    def first_step(values):
        update = make(name, values)
        state = update.init(start)
        change, _ = update.update(gradients[0], state, start)
        return optax.apply_updates(start, change)

    first, second = some_values(name), {**some_values(name), "learning_rate": 0.2}
    both = {key: np.asarray([first[key], second[key]], np.float32) for key in first}
    population = cheap_jit(jax.vmap(first_step))(both)
    alone = cheap_jit(first_step)
    for index, values in enumerate((first, second)):
        expected = alone(arrays(**values))
        for key in start:
            np.testing.assert_allclose(population[key][index], expected[key], rtol=1e-6, atol=1e-7)
    assert alone._cache_size() == 1


def test_every_optimizer_is_tested_here():
    assert set(NAMES) == {*RULES, *REFERENCES}


@pytest.mark.parametrize("name", NAMES)
def test_default_ranges_stay_within_natural_bounds_and_cover_what_has_no_default(name):
    info = find_tunables(WorkloadSpec(WorkloadName("digits", "mlp", name)), "constant", True).optimizer
    for config in info.ranges:
        check_bounds(config)
    searched = {config.name for config in info.ranges}
    assert searched <= set(info.defaults)
    assert {key for key, default in info.defaults.items() if default is None} <= searched
    for key, default in info.defaults.items():
        assert default is None or natural_bounds(key).contains(default)


def test_ranges_of_the_papers_optimizers_are_those_of_the_published_example():
    published = {
        "learning_rate": {"max_value": 10.0, "min_value": 0.0001, "scale": "LOG_SCALE", "type": "DOUBLE"},
        "momentum": {"max_value": 0.9999, "min_value": 0.9, "scale": "REVERSE_LOG_SCALE", "type": "DOUBLE"},
    }
    space = SearchSpace(OPTIMIZERS.find("nesterov_momentum").ranges)
    assert space.to_json() == published


def test_an_unknown_optimizer_names_the_nearest():
    with pytest.raises(UnknownNameError, match="'momentum'"):
        OPTIMIZERS.find("momentun")


def test_the_l2_penalty_is_half_the_squared_norm(problem):
    params, (gradient, *_) = problem
    (penalty,) = regularize(arrays(l2_penalty=0.3))
    expected = {key: 0.3 * value for key, value in params.items()}  # the gradient of 0.15 ‖p‖²
    found = first_update(penalty, gradient, params)
    for key in params:
        np.testing.assert_allclose(
            np.asarray(found[key]) - gradient[key], expected[key], rtol=1e-4, atol=1e-6
        )  # a difference


@pytest.mark.parametrize(("limit", "factor"), [(np.inf, 1.0), (100.0, 1.0), (0.5, None)])
def test_clipping_limits_the_global_norm_and_infinity_is_off(limit, factor, problem):
    _, (gradient, *_) = problem
    norm = np.sqrt(sum(np.sum(np.square(v)) for v in gradient.values()))
    (clip,) = regularize(arrays(gradient_clip_norm=limit))
    found = first_update(clip, gradient, gradient)
    for key in gradient:
        np.testing.assert_allclose(found[key], gradient[key] * (factor or limit / norm), rtol=1e-6)


def test_a_gradient_of_zero_survives_clipping():
    (clip,) = regularize(arrays(gradient_clip_norm=1.0))
    found = first_update(clip, {"w": np.zeros(3, np.float32)}, {})
    np.testing.assert_array_equal(found["w"], np.zeros(3))


def test_the_penalty_is_part_of_the_gradient_that_is_clipped(problem):
    params, (gradient, *_) = problem
    both = optax.chain(*regularize(arrays(gradient_clip_norm=0.5, l2_penalty=3.0)))
    found = first_update(both, gradient, params)
    assert float(cheap_jit(optax.tree.norm)(found)) == pytest.approx(0.5, rel=1e-5)


def test_muon_orthogonalises_matrices_and_leaves_embeddings_to_adam():
    random = np.random.default_rng(1)
    params = {"layer": {"kernel": np.eye(6, 4, dtype=np.float32)}, "embed": {"table": np.ones((6, 4), np.float32)}}
    gradient = jax.tree.map(lambda leaf: random.normal(size=leaf.shape).astype(np.float32), params)
    values = arrays(**{**OPTIMIZERS.find("muon").defaults, "learning_rate": 1.0})
    change = first_update(make("muon", values), gradient, params)
    singular = np.linalg.svd(change["layer"]["kernel"], compute_uv=False)
    assert singular.min() > 0.6 * singular.max()  # Newton's iteration takes them near to one
    # Adam with Nesterov's look-ahead divides its first step by the size of the gradient: only signs are left
    sizes = np.abs(change["embed"]["table"])
    np.testing.assert_array_equal(np.sign(change["embed"]["table"]), -np.sign(gradient["embed"]["table"]))
    np.testing.assert_allclose(sizes, sizes.mean(), rtol=1e-3)
