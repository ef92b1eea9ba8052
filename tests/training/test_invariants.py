"""What users live by, on a fully connected, a convolutional, a ghost-batch-norm and an attention model."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from batchscale.training.study_engine import TrialTask

sys.path.insert(0, str(Path(__file__).parent))
from real_workloads import NAMES, make_tiny

BATCH_SIZE, STEPS = 8, 6


@pytest.fixture(scope="module", params=NAMES)
def workload(request):
    return make_tiny(request.param)


def task(trial_id, until=STEPS, from_step=-1):
    return TrialTask(
        trial_id, {"learning_rate": 0.02 * trial_id, "momentum": 0.9}, seed=trial_id, until_step=until, from_step=from_step
    )


@pytest.fixture
def study(workload, study_of):
    return study_of(workload, batch_size=BATCH_SIZE, train_steps=STEPS, every=2)


@pytest.fixture(scope="module")
def alone_rows():
    return {}


def rows_alone(cache, workload, study, engine_of):
    """The measurements of trial 1 in one go, alone, on the whole batch; made once per workload."""
    if str(workload.name) not in cache:
        engine = engine_of(workload, study)
        (progress,) = engine.advance([task(1)])
        cache[str(workload.name)] = progress.rows, engine._population.member(1)
    return cache[str(workload.name)]


def assert_close(found, expected, rtol):
    assert [step for step, _ in found] == [step for step, _ in expected]
    for (_, a), (_, b) in zip(found, expected, strict=True):
        np.testing.assert_allclose([a[name] for name in sorted(a)], [b[name] for name in sorted(b)], rtol=rtol, atol=1e-5)


def test_resumed_and_extended_trials_have_the_bits_of_an_uninterrupted_one(
    workload, study, study_of, engine_of, alone_rows, tmp_path
):
    expected, _ = rows_alone(alone_rows, workload, study, engine_of)
    short = study_of(workload, batch_size=BATCH_SIZE, train_steps=4, every=2)
    first = engine_of(workload, short, checkpoint_dir=tmp_path)
    (before,) = first.advance([task(1, until=3)])
    first.save(1)
    second = engine_of(workload, study, checkpoint_dir=tmp_path)  # the longer budget extends it
    assert second.restore(task(1)) == 3
    (after,) = second.advance([task(1, from_step=2)])
    assert before.rows + after.rows == expected


def test_a_population_gives_what_a_trial_gives_alone(workload, study, engine_of, alone_rows):
    expected, _ = rows_alone(alone_rows, workload, study, engine_of)
    together = engine_of(workload, study, population=2).advance([task(2), task(1), task(3)])
    # sums in another order, amplified over 6 steps of training
    assert_close(together[1].rows, expected, rtol=2e-3)


def test_accumulated_microbatches_give_the_full_batch(workload, study, engine_of, alone_rows):
    expected, whole = rows_alone(alone_rows, workload, study, engine_of)
    engine = engine_of(workload, study, microbatch=6)  # the last one is smaller: 8 = 6 + 2
    (progress,) = engine.advance([task(1)])
    assert_close(progress.rows, expected, rtol=2e-3)
    for a, b in zip(
        jax.tree.leaves(engine._population.member(1).model_state), jax.tree.leaves(whole.model_state), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=2e-3, atol=1e-5)
