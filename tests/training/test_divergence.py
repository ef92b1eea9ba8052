"""What counts as diverged: a loss far above that of the start, which is taken as training takes it."""

import sys
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

from batchscale.spec.durations import EvaluationPlan
from batchscale.spec.experiment import StopRule
from batchscale.spec.goal import Goal
from batchscale.spec.plan import Study
from batchscale.spec.space import SearchSpace
from batchscale.training.settings import EngineSettings
from batchscale.training.state import init_trial
from batchscale.training.study_engine import StudyEngine, TrialTask
from batchscale.training.training_data import make_probe

sys.path.insert(0, str(Path(__file__).parent))
from real_workloads import make_tiny

FACTOR = 1000.0


@pytest.fixture(scope="module")
def workload():
    """A network with ghost batch normalization on inputs of pixels' size."""
    tiny = make_tiny("ghost_fc")
    wide = replace(tiny.dataset, prepare=lambda batch: {**batch, "inputs": 1000.0 * batch["inputs"]})
    return replace(tiny, dataset=wide)


def start_loss(workload, train):
    params, state = workload.model.init(jax.random.key(0))
    batch = workload.dataset.prepare(make_probe(workload.dataset))
    outputs, _ = workload.model.apply(params, state, batch["inputs"], train=train, key=jax.random.key(0))
    loss = workload.loss(outputs, batch, {})
    return float(loss.total / loss.weight)


def test_the_limit_of_a_network_with_batch_statistics_is_that_of_its_training_loss(workload):
    assert start_loss(workload, train=False) > 100  # without statistics: nothing that training would ever see
    values = {"learning_rate": jnp.float32(0.1), "momentum": jnp.float32(0.9)}
    state = init_trial(workload, jnp.uint32(0), values, make_probe(workload.dataset), FACTOR)
    assert 1 < float(state.last_loss) < 10  # ln 10 is 2.3
    assert float(state.loss_limit) == pytest.approx(FACTOR * float(state.last_loss))


def test_a_trial_with_an_absurd_learning_rate_diverges_and_does_not_win(workload):
    study = Study(
        workload=workload.name,
        batch_size=8,
        train_steps=40,
        evaluation_steps=(0, 20, 40),
        space=SearchSpace(()),
        fixed={},
        trials=1,
        max_attempts=1,
        goal=Goal.parse("val/classification_error < 0.99"),
        stop=StopRule.BUDGET,
        seed=0,
    )
    engine = StudyEngine(workload, study, EvaluationPlan(count=2), EngineSettings(population=1))
    tasks = [
        TrialTask(1, {"learning_rate": 1e6, "momentum": 0.9}, 1, 40, -1),
        TrialTask(2, {"learning_rate": 0.01, "momentum": 0.9}, 1, 40, -1),
    ]
    absurd, sound = engine.advance(tasks)
    assert absurd.diverged_at is not None
    assert sound.diverged_at is None
