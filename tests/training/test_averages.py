"""Averages of the weights, against averages that numpy makes of the weights after every step."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from real_workloads import make_tiny

from batchscale.errors import SpecError
from batchscale.spec.durations import EvaluationPlan
from batchscale.spec.goal import Goal
from batchscale.training import averages
from batchscale.training.averages import select_average
from batchscale.training.settings import EngineSettings
from batchscale.training.study_engine import StudyEngine, TrialTask

STEPS, BATCH_SIZE = 9, 14
HALF_LIVES = (1.5, 70.0)
RARE_HALF_LIVES = (64.0, 640.0)  # in the end updated every second step
GOAL = Goal.parse("val/cross_entropy_error < 0.0")
VALUES = {"learning_rate": 0.02, "momentum": 0.9}


@pytest.fixture(scope="module")
def workload():
    """One hidden layer with ghost batch normalization: its statistics are averaged too."""
    return make_tiny("ghost_fc")


@pytest.fixture(scope="module")
def engine_of(workload, study_of_module):
    def make(half_lives=HALF_LIVES, **settings):
        study = study_of_module(workload, batch_size=BATCH_SIZE, train_steps=STEPS, every=1)
        plan = EvaluationPlan(examples={"train": 0, "val": "all"})
        settings = EngineSettings(**({"population": 1} | settings))
        return StudyEngine(workload, replace(study, half_lives=half_lives, goal=GOAL), plan, settings)

    return make


def task(trial_id, until=STEPS, **values):
    return TrialTask(trial_id, VALUES | values, seed=trial_id, until_step=until, from_step=-1)


def weights_by_step(engine):
    """The weights and statistics of trial 1 after every step."""
    weights = {}
    for step in range(1, STEPS + 1):
        engine.advance([task(1, until=step)])
        state = engine._population.member(1)
        weights[step] = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), (state.params, state.model_state))
    return weights


def updates(half_lives, last):
    """The steps after which weights are read, and for how many steps each of them counts."""
    if half_lives is HALF_LIVES:
        return dict.fromkeys(range(1, last + 1), 1)
    return {step: 1 if step <= 4 else 2 for step in (1, 2, 3, 4, 6, 8) if step <= last}


def average(weights, half_life, steps):
    """The mean of these weights, each counted for its steps, and by half per half-life of its age."""
    last, decay = max(steps), 0.5 ** (1 / half_life)
    shares = [sum(decay ** (last - step + k) for k in range(count)) for step, count in steps.items()]
    return jax.tree.map(
        lambda *leaves: np.average(np.stack(leaves), axis=0, weights=shares), *(weights[step] for step in steps)
    )


@pytest.fixture(autouse=True, scope="module")
def few_updates():
    """Averages of long half-lives are updated rarely from the fifth step on, not from the 65th."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(averages, "UPDATES_PER_HALF_LIFE", 2)
        yield


@pytest.fixture(scope="module", params=[HALF_LIVES, RARE_HALF_LIVES], ids=["every step", "every second step"])
def trained(request, engine_of):
    engine = engine_of(request.param)
    return request.param, weights_by_step(engine), engine


def test_averages_are_those_that_numpy_makes_of_the_weights_of_every_step(trained):
    half_lives, weights, engine = trained
    stored = engine._population.member(1).averages
    for number, half_life in enumerate(half_lives):
        expected = average(weights, half_life, updates(half_lives, STEPS))
        made = jax.tree.map(lambda leaf, number=number: leaf[number], stored)
        for found, value in zip(jax.tree.leaves(made), jax.tree.leaves(expected), strict=True):
            # nine means of float32, each rounded to 6e-8 of the largest value
            np.testing.assert_allclose(found, value, rtol=0, atol=2e-6 * np.abs(value).max())
    assert jax.tree.leaves(stored[1]), "the statistics of batch normalization are averaged"
    assert not np.allclose(jax.tree.leaves(stored)[0][0], jax.tree.leaves(stored)[0][1])


def test_a_measurement_is_that_of_the_best_average_beside_those_of_all(trained, workload):
    half_lives, weights, engine = trained
    (progress,) = engine.advance([task(1)])
    val = workload.dataset.splits["val"].arrays
    for step in (1, 2, 5, 8, STEPS):
        row = dict(progress.rows)[step]
        errors = []
        for half_life in half_lives:
            params, model_state = average(weights, half_life, updates(half_lives, step))
            outputs, _ = workload.model.apply(params, model_state, val["inputs"], train=False, key=jax.random.key(0))
            scores = np.asarray(outputs, np.float64)
            logs = scores - np.log(np.exp(scores).sum(-1, keepdims=True))
            errors.append(-logs[np.arange(len(logs)), val["labels"]].mean())
        columns = [row[f"val/cross_entropy_error_average_{number}"] for number in (1, 2)]
        np.testing.assert_allclose(columns, errors, rtol=1e-5)
        assert row["val/cross_entropy_error"] == min(columns)
        best = int(np.argmin(columns)) + 1
        assert row["val/classification_error"] == row[f"val/classification_error_average_{best}"]


def test_a_resumed_trial_has_the_bits_of_an_uninterrupted_one(engine_of, tmp_path):
    whole, first = engine_of(), engine_of(checkpoint_dir=tmp_path)
    whole.advance([task(1)])
    first.advance([task(1, until=4)])
    first.save(1)
    second = engine_of(checkpoint_dir=tmp_path)
    second._programs.init = None  # nothing is begun from its seed
    second.advance([task(1)])
    found, expected = second._population.member(1), whole._population.member(1)
    assert jax.tree.all(jax.tree.map(np.array_equal, found, expected))
    third = engine_of(RARE_HALF_LIVES, checkpoint_dir=tmp_path)  # other averages are another trial
    assert third._population.find(1, third._identity(task(1))) is None


def test_a_population_averages_each_trial_at_its_own_steps(engine_of):
    alone, together = engine_of(RARE_HALF_LIVES), engine_of(RARE_HALF_LIVES, population=2)
    alone.advance([task(1)])
    together.advance([task(2, until=3)])  # an odd step: the two are updated after different steps
    together.advance([task(1), task(2), task(3, learning_rate=1e20)])
    found, expected = together._population.member(1).averages, alone._population.member(1).averages
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        # float32 rounds to 6e-8; sums of some hundred products, in another order, over nine steps
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-4 * np.abs(b).max())


def test_a_trial_of_one_half_life_is_measured_by_that_average_alone(engine_of):
    engine = engine_of()
    free, bound = engine.advance([task(1), TrialTask(2, VALUES | {"averaging_half_life": 70.0}, 1, STEPS, -1)])
    for (_, row), (_, fixed) in zip(free.rows, bound.rows, strict=True):
        assert fixed["val/cross_entropy_error"] == row["val/cross_entropy_error_average_2"]
    with pytest.raises(SpecError, match=r"averaging_half_life must be one of \[1.5, 70.0\]. Found 3"):
        engine.advance([task(3, averaging_half_life=3.0)])


def test_updates_are_a_32nd_of_the_steps_so_far_apart_and_leave_no_step_out(monkeypatch):
    monkeypatch.setattr(averages, "UPDATES_PER_HALF_LIFE", 32)
    apart = {step: int(averages._steps_since_update(np.int32(step), 64)) for step in range(1, 6000)}
    read = [step for step, every in apart.items() if step % every == 0]
    for before, step in zip([0, *read], read, strict=False):
        assert step - before == apart[step] <= max(1, min(64, step / 32))
    assert read[:64] == list(range(1, 65)) and read[-1] - read[-2] == 64


def test_the_best_average_follows_the_direction_of_the_goal_and_skips_what_is_no_number():
    values = {"val/bleu": np.float32([1.0, np.nan, 3.0]), "train/bleu": np.float32([7.0, 8.0, 9.0])}
    row = select_average(values, Goal.parse("val/bleu > 2"), None)
    assert (row["val/bleu"], row["train/bleu"]) == (3.0, 9.0)
    assert select_average(values, Goal.parse("val/bleu < 2"), None)["val/bleu"] == 1.0
    assert {"val/bleu_average_1", "val/bleu_average_3"} < set(row)
    assert "train/bleu_average_1" not in row
