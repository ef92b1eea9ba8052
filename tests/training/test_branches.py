"""Branches: each is, bit for bit, the trial that is trained alone with that schedule."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from real_workloads import make_tiny

from batchscale.spec.durations import EvaluationPlan
from batchscale.spec.experiment import WorkloadSpec
from batchscale.spec.horizon_free import Branches, Decay
from batchscale.spec.workload_name import WorkloadName
from batchscale.training.branches import annealing_factor, on_trunk
from batchscale.training.settings import EngineSettings
from batchscale.training.study_engine import StudyEngine, TrialTask
from batchscale.workloads.registry import get_workload

STEPS, EVERY, BATCH_SIZE = 12, 4, 14
ENDS, STARTS = (4, 8, 12), (2, 4, 6)  # half of each branch anneals
HALF = Branches(decay=0.5)
PLAN = EvaluationPlan(examples={"train": 0, "val": "all"})


@pytest.fixture(scope="module")
def tiny():
    """One hidden layer with ghost batch normalization: a branch has statistics of its own, too."""
    return make_tiny("ghost_fc")


def task(trial_id=1, until=STEPS, after=-1, rate=0.02):
    return TrialTask(trial_id, {"learning_rate": rate, "momentum": 0.9}, trial_id, until, after)


@pytest.fixture(scope="module")
def engine_of(tiny, study_of_module, shared_programs):
    def make(workload=tiny, train_steps=STEPS, every=EVERY, branches=HALF, **settings):
        study = study_of_module(workload, batch_size=BATCH_SIZE, train_steps=train_steps, every=every)
        settings = EngineSettings(**({"population": 1} | settings))
        return StudyEngine(workload, replace(study, branches=branches), PLAN, settings)

    return make


@pytest.fixture(scope="module")
def whole(engine_of):
    """The measurements and the last state of an uninterrupted trial."""
    engine = engine_of()
    (progress,) = engine.advance([task()])
    return dict(progress.rows), engine._population.member(1)


def assert_same_bits(found, expected):
    assert jax.tree.all(jax.tree.map(np.array_equal, found, expected))


@pytest.mark.parametrize(("start", "end"), list(zip(STARTS, ENDS, strict=True)))
def test_a_branch_is_the_trial_trained_alone_with_its_schedule(tiny, engine_of, whole, start, end):
    points = {"schedule_steps": (0, start, end), "schedule_factors": (1.0, 1.0, 0.0)}
    name = WorkloadName("mnist", "fc_8", "nesterov_momentum")
    options = {"schedule": "piecewise_linear", "optimizer_options": points, "model_options": {"tiny": True}}
    alone = replace(get_workload(WorkloadSpec(name, **options), dataset=tiny.dataset), model=tiny.model)
    engine = engine_of(alone, train_steps=end, every=end, branches=None)
    (progress,) = engine.advance([task(until=end)])
    assert dict(progress.rows)[end] == whole[0][end]
    branching = engine_of()
    branching.advance([task(until=end)])
    found, expected = branching._population.member(1), engine._population.member(1)
    for part in ("params", "model_state", "opt_state", "epoch", "offset", "step", "last_loss"):
        assert_same_bits(getattr(found, part), getattr(expected, part))


def test_only_the_start_and_the_ends_of_branches_are_measured(whole):
    rows, last = whole
    assert list(rows) == [0, *ENDS]
    assert int(last.step) == STEPS  # the annealed weights are the last state
    assert int(last.branch.trunk["step"]) == STARTS[-1]
    assert rows[4] != rows[8]


@pytest.mark.parametrize("at", range(1, STEPS))
def test_a_trial_interrupted_anywhere_gives_the_bits_of_an_uninterrupted_one(engine_of, whole, tmp_path, at):
    """At most steps the trial is in the middle of a branch, at some on its trunk."""
    first = engine_of(checkpoint_dir=tmp_path)
    first.advance([task(until=at)])
    first.save(1)
    second = engine_of(checkpoint_dir=tmp_path)
    second._programs.init = None  # nothing is begun from its seed
    (progress,) = second.advance([task()])
    assert dict(progress.rows) == whole[0]
    assert_same_bits(second._population.member(1), whole[1])


def test_a_trial_without_a_state_repeats_its_trunk_and_no_branch_that_was_measured(engine_of, whole):
    engine = engine_of()
    (progress,) = engine.advance([task(after=8)])
    assert dict(progress.rows) == {12: whole[0][12]}
    assert progress.timing["num_steps"] == 12  # six on the trunk, six on the last branch
    assert_same_bits(engine._population.member(1), whole[1])


def test_a_longer_budget_continues_from_the_trunk(engine_of, whole, tmp_path):
    short = engine_of(train_steps=8, checkpoint_dir=tmp_path)
    short.advance([task(until=8)])
    short.finish(1, 8)
    longer = engine_of(checkpoint_dir=tmp_path)
    longer._programs.init = None
    (progress,) = longer.advance([task(after=8)])
    assert dict(progress.rows) == {12: whole[0][12]}


def test_trials_of_a_population_branch_each_at_its_own_steps(engine_of, whole):
    engine = engine_of(population=2)
    engine.advance([task(2, until=4)])
    found = engine.advance([task(2), task(1), task(3, until=8)])
    assert [list(dict(progress.rows)) for progress in found] == [[0, 4, 8, 12], [0, 4, 8, 12], [0, 4, 8]]
    for step, row in whole[0].items():
        for name, value in row.items():  # float32 rounds to 6e-8; sums in another order, over 12 steps
            assert dict(found[1].rows)[step][name] == pytest.approx(value, rel=1e-4, abs=1e-7)


def test_a_trunk_that_diverges_does_so_after_the_branches_that_were_measured(engine_of):
    engine = engine_of()
    (progress,) = engine.advance([task(until=8)])
    trial = engine._population._trials[1]
    trial.diverged_at = 5
    (progress,) = engine.advance([task()])
    assert (list(dict(progress.rows)), progress.diverged_at) == ([0, 4, 8], 9)
    (early,) = engine.advance([task(2, rate=1e30)])
    assert early.diverged_at is not None and early.diverged_at <= 4


@pytest.mark.parametrize("shape", list(Decay))
def test_learning_rates_fall_by_their_formula_and_are_untouched_on_the_trunk(whole, shape):
    state = whole[1]
    branches = Branches(shape=shape, end_factor=0.1)
    formulas = {
        Decay.LINEAR: lambda x: x,
        Decay.COSINE: lambda x: (1 - np.cos(np.pi * x)) / 2,
        Decay.SQRT: np.sqrt,
    }
    for step in range(14):
        factor = annealing_factor(branches, state._replace(step=np.int32(step)))
        part = min(max((step - 6) / 6, 0), 1)
        assert float(factor) == pytest.approx(1 - 0.9 * formulas[shape](part), rel=1e-6)
        assert float(annealing_factor(branches, on_trunk(state)._replace(step=np.int32(step)))) == 1.0
