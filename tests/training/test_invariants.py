"""What users live by, on a fully connected, a convolutional, a ghost-batch-norm and an attention model.

Whole states are compared, not measurements: that is the stronger claim, and evaluation need not be compiled.
"""

from dataclasses import replace

import jax
import numpy as np
import pytest
from real_workloads import NAMES, SLOW_NAMES, make_tiny

from batchscale.errors import SpecError
from batchscale.spec.durations import EvaluationPlan
from batchscale.training.settings import EngineSettings
from batchscale.training.study_engine import StudyEngine, TrialTask

BATCH_SIZE, STEPS = 14, 5


def task(trial_id, until=STEPS):
    # a small learning rate: near chaos, differences of rounding would grow with every step
    parameters = {"learning_rate": 0.001 * trial_id, "momentum": 0.9}
    return TrialTask(trial_id, parameters, seed=trial_id, until_step=until)


class Bench:
    """Engines of one workload without evaluation, and the state of trial 1 after one step and after all."""

    def __init__(self, workload, study_of):
        self.workload, self._study_of = workload, study_of
        engine = self.engine()
        engine.advance([task(1, until=1)])
        self.after_one = engine._population.member(1)
        engine.advance([task(1)])
        self.after_all = engine._population.member(1)

    def engine(self, train_steps=STEPS, **settings):
        study = self._study_of(self.workload, batch_size=BATCH_SIZE, train_steps=train_steps, every=2)
        plan = EvaluationPlan(examples={"val": 0})
        return StudyEngine(self.workload, study, plan, EngineSettings(**({"population": 1} | settings)))


@pytest.fixture(scope="module", params=[*NAMES, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW_NAMES)])
def bench(request, study_of_module, shared_programs):
    return Bench(make_tiny(request.param), study_of_module)


def assert_same_bits(found, expected):
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)


def assert_close(found, expected, rtol):
    """Each array within ``rtol`` of its own largest value."""
    for (path, a), b in zip(jax.tree.leaves_with_path(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=rtol * np.abs(b).max(), err_msg=jax.tree_util.keystr(path))


def test_resumed_and_extended_trials_have_the_bits_of_an_uninterrupted_one(bench, tmp_path):
    first = bench.engine(train_steps=3, checkpoint_dir=tmp_path)
    first.advance([task(1, until=3)])
    first.save(1)
    second = bench.engine(checkpoint_dir=tmp_path)  # its longer budget extends the trial
    second._programs.init = None  # nothing is begun from its seed
    second.advance([task(1)])
    assert_same_bits(second._population.member(1), bench.after_all)


def test_a_population_gives_what_a_trial_gives_alone(bench):
    engine = bench.engine(population=2)
    engine.advance([task(2), task(1), task(3)])
    # float32 rounds to 6e-8; sums of up to some thousand products, in another order, over 5 steps
    assert_close(engine._population.member(1), bench.after_all, rtol=1e-4)


def test_accumulated_microbatches_give_the_step_of_the_full_batch(bench):
    # the last microbatch is smaller, and so is the last ghost batch: 14 = (4 + 4) + (4 + 2)
    engine = bench.engine(microbatch=8)
    engine.advance([task(1, until=1)])
    found = engine._population.member(1)
    assert_close(found, bench.after_one, rtol=1e-5)
    assert_close(found.model_state, bench.after_one.model_state, rtol=1e-5)


@pytest.mark.usefixtures("shared_programs")
def test_a_metaparameter_that_is_off_is_compiled_in_only_where_the_study_has_it(study_of):
    workload = make_tiny("fc_8")
    study = study_of(workload, batch_size=BATCH_SIZE, train_steps=STEPS, every=2)
    plan, settings = EvaluationPlan(examples={"val": 0}), EngineSettings(population=1)
    without = StudyEngine(workload, study, plan, settings)
    given = {"learning_rate": 0.1, "momentum": 0.9}
    with pytest.raises(SpecError, match="'l2_penalty' must be searched or fixed by the study"):
        without.advance([TrialTask(1, given | {"l2_penalty": 0.1}, 1, STEPS)])
    without.advance([TrialTask(1, given | {"l2_penalty": 0.0}, 1, STEPS)])
    having = StudyEngine(workload, replace(study, fixed={"l2_penalty": 0.0}), plan, settings)
    having.advance(
        [TrialTask(1, given | {"l2_penalty": 0.0}, 1, STEPS), TrialTask(2, given | {"l2_penalty": 0.1}, 1, STEPS)]
    )
    off, on = (having._population.member(trial_id).params for trial_id in (1, 2))
    assert_close(off, without._population.member(1).params, rtol=1e-6)
    assert not np.allclose(off["output"]["kernel"], on["output"]["kernel"])
