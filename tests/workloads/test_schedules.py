"""Every schedule of appendix C against its formula, written here in plain Python."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from batchscale.errors import SpecError, UnknownNameError
from batchscale.workloads.schedules.declaration import SCHEDULES, find_schedule

RATE, END, STEPS, POWER = 0.3, 0.02, 80.0, 1.7
VALUES = {
    "learning_rate": jnp.float32(RATE),
    "end_learning_rate_factor": jnp.float32(END),
    "learning_rate_decay_steps": jnp.float32(STEPS),
    "learning_rate_decay_power": jnp.float32(POWER),
}
FORMULAS = {
    "linear": lambda t: 1 - (1 - END) * t / STEPS,
    "cosine": lambda t: END + (1 - END) / 2 * (1 + math.cos(math.pi * t / STEPS)),
    "exponential_polynomial": lambda t: END + (1 - END) * (1 - t / STEPS) ** POWER,
    "inverse_exponential_polynomial": lambda t: END / (END + (1 - END) * (t / STEPS) ** POWER),
    "exponential": lambda t: END ** (t / STEPS),
}
TIMES = (0, 1, 40, 79, 80, 81, 1000)


def rates(schedule, times=TIMES):
    return [float(schedule(jnp.int32(t), VALUES)) for t in times]


@pytest.mark.parametrize("name", FORMULAS)
def test_a_decaying_schedule_follows_its_formula_and_stays_at_its_end(name):
    expected = [RATE * (FORMULAS[name](t) if t <= STEPS else END) for t in TIMES]
    np.testing.assert_allclose(rates(find_schedule(name, {}).rate), expected, rtol=2e-6)  # float32


def test_a_constant_schedule_never_changes():
    assert rates(find_schedule("constant", {}).rate) == [np.float32(RATE)] * len(TIMES)


def test_every_named_schedule_is_tested_here():
    assert set(SCHEDULES.all()) == {*FORMULAS, "constant", "piecewise_linear", "warmup"}


def test_a_warm_up_rises_in_equal_steps_and_stays():
    schedule = find_schedule("warmup", {})
    values = {"learning_rate": jnp.float32(RATE), "warmup_steps": jnp.float32(4)}
    found = [float(schedule.rate(jnp.int32(t), values)) for t in (0, 1, 3, 4, 900)]
    np.testing.assert_allclose(found, [RATE * factor for factor in (0.25, 0.5, 1, 1, 1)], rtol=2e-6)
    (config,) = schedule.ranges(500)
    assert (config.name, config.min_value, config.max_value) == ("warmup_steps", 1, 100)
    assert schedule.ranges(3)[0].max_value == 1


@pytest.mark.parametrize("times", [{"schedule_steps": (0, 10, 60)}, {"schedule_fractions": (0, 0.125, 0.75)}])
def test_a_piecewise_linear_schedule_joins_its_points(times):
    schedule = find_schedule("piecewise_linear", {**times, "schedule_factors": (0.1, 1.0, 0.2)}).rate
    expected = [0.1, 0.1 + 0.9 * 0.5, 1.0, 1.0 - 0.8 * 0.5, 0.2, 0.2]
    np.testing.assert_allclose(rates(schedule, (0, 5, 10, 35, 60, 500)), [RATE * f for f in expected], rtol=2e-6)


def test_points_as_fractions_make_the_decay_steps_a_metaparameter():
    options = {"schedule_fractions": (0, 1), "schedule_factors": (1, 0.1)}
    assert find_schedule("piecewise_linear", options).metaparameters.keys() == {"learning_rate_decay_steps"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "schedule_factors"),
        ({"schedule_steps": (0, 1)}, "schedule_factors"),
        ({"schedule_steps": (1, 2), "schedule_factors": (1, 1)}, "first time is 0"),
        ({"schedule_steps": (0, 5, 5), "schedule_factors": (1, 1, 1)}, "must grow"),
        ({"schedule_steps": (0, 5), "schedule_factors": (1, 1, 1)}, "as many"),
        ({"schedule_steps": (0, "a"), "schedule_factors": (1, 1)}, "list of numbers"),
        ({"schedule_steps": 3, "schedule_factors": (1, 1)}, "list of numbers"),
        ({"schedule_steps": (0, 1), "schedule_fractions": (0, 1), "schedule_factors": (1, 1)}, "one of"),
    ],
)
def test_wrong_points_are_refused(options, words):
    with pytest.raises(SpecError, match=words):
        find_schedule("piecewise_linear", options)


def test_points_need_the_piecewise_schedule_and_names_must_exist():
    with pytest.raises(SpecError, match="Only the schedule piecewise_linear"):
        find_schedule("linear", {"schedule_steps": (0, 1)})
    with pytest.raises(UnknownNameError, match="cosine"):
        find_schedule("cosinus", {})


def test_the_decay_steps_are_searched_between_half_and_all_of_the_training():
    (_, decay) = find_schedule("linear", {}).ranges(600_000)
    assert (decay.min_value, decay.max_value, decay.type) == (300_000, 600_000, "INTEGER")
    assert find_schedule("linear", {}).ranges(1)[1].min_value == 1


def test_one_compiled_schedule_serves_all_values():
    schedule = jax.jit(find_schedule("linear", {}).rate)
    for rate in (0.1, 0.2):
        schedule(jnp.int32(3), {**VALUES, "learning_rate": jnp.float32(rate)})
    assert schedule._cache_size() == 1
