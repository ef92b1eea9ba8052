"""A call that trains through several measurements gives what one call for each of them gives."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchscale.spec.durations import EvaluationPlan
from batchscale.spec.goal import Goal
from batchscale.training import programs, study_engine
from batchscale.training.compilation import compile_count
from batchscale.training.measured_loop import make_chunk
from batchscale.training.settings import EngineSettings
from batchscale.training.study_engine import TrialTask

pytestmark = pytest.mark.usefixtures("shared_programs")


def task(trial_id=1, until=40, learning_rate=0.1):
    return TrialTask(trial_id, {"learning_rate": learning_rate, "momentum": 0.9}, trial_id, until)


@pytest.mark.parametrize("population", [1, 3])
def test_several_measurements_in_a_call_have_the_bits_of_one_in_a_call(toy, engine_of, monkeypatch, population):
    tasks = [task(1), task(2, until=30), task(3, learning_rate=1e30), task(4, until=7)]
    calls = []

    def advance():
        engine = engine_of(toy, population=population)
        train = engine._programs.train_and_measure
        monkeypatch.setattr(
            engine._programs, "train_and_measure", lambda *given: (calls.append(given[1].stops), train(*given))[1]
        )
        engine.advance([task(9)])  # the times of steps and evaluations are known after it
        calls.clear()
        return engine.advance(tasks), [int((stops < 100).sum(axis=1).max()) for stops in calls]

    together, most = advance()
    assert max(most) > 1
    monkeypatch.setattr(study_engine, "MOST_STOPS", 1)
    alone, most = advance()
    assert max(most) == 1
    for expected, found in zip(alone, together, strict=True):
        assert found.rows == expected.rows
        assert (found.step, found.diverged_at) == (expected.step, expected.diverged_at)


def test_a_goal_of_the_study_ends_the_call_at_its_first_measurement(toy, study_of, engine_of):
    goal = Goal.parse("val/cross_entropy_error < 0.6")
    (whole,) = engine_of(toy, study_of(toy)).advance([task()])
    first = next(step for step, values in whole.rows if values[goal.metric] < goal.value)
    assert 0 < first < 40
    engine = engine_of(toy, replace(study_of(toy), goal=goal))
    engine.advance([task(9)])
    (found,) = engine.advance([task()], goal=goal)
    assert (found.step, found.rows) == (first, tuple(row for row in whole.rows if row[0] <= first))


@given(st.floats(width=32, allow_nan=False), st.floats(allow_nan=False, allow_infinity=False), st.booleans())
def test_the_target_separates_the_same_values_as_the_goal(value, target, maximize):
    study = SimpleNamespace(batch_size=7, goal=Goal("val/classification_error", target, maximize))
    chunk = make_chunk([1], [()], 1, study, study.goal)
    value = np.float32(value)
    assert study.goal.is_reached_by(float(value)) == bool(value > chunk.target if maximize else value < chunk.target)


def test_larger_batches_of_a_small_model_are_trained_by_one_program(toy, study_of):
    def advance(batch_size):
        study = study_of(toy, batch_size)
        made = programs.Programs(toy, study, EvaluationPlan(every=10), EngineSettings(population=1))
        start = made.populate(made.init(3, {"learning_rate": 0.1, "momentum": 0.9}), 1)
        before = compile_count().programs
        state, result = made.train_and_measure(start, make_chunk([20], [[20]], 20, study, None))
        compiled = compile_count().programs - before
        again = made.populate(made.init(3, {"learning_rate": 0.1, "momentum": 0.9}), 1)
        plain = made.advance(again, np.array([20], np.int32), 20)  # compiled for this batch size alone
        for found, expected in zip(jax.tree.leaves(state), jax.tree.leaves(plain), strict=True):
            np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-5, atol=1e-6)
        return compiled, result.slots[:, 0].tolist()

    assert advance(64) == (1, [20, -1, 1])
    assert advance(192) == (0, [20, -1, 1])
    assert advance(96)[0] == 1  # no multiple of the microbatch
