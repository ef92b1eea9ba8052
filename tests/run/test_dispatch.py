"""Which worker trains what next."""

import pytest
from protocol_fakes import fake_experiment, fake_study

from batchscale.run.dispatch import Dispatch
from batchscale.spec.durations import Budget, EvaluationPlan, Unit
from batchscale.spec.experiment import StopRule
from batchscale.study.resuming import open_study_run
from batchscale.study.tasks import TrialProgress


def test_the_first_job_of_a_study_goes_to_the_next_measurement_only(tmp_path):
    long = {"stop": StopRule.BUDGET, "budget": Budget(10**6, Unit.STEPS), "evaluation": EvaluationPlan(every=1000)}
    run = open_study_run(tmp_path, fake_study(**long), fake_experiment(**long))
    choice = Dispatch([run.state]).choose("one", workers=2)
    assert {need.until for need in choice.needs} == {1000}
    run.close()


@pytest.fixture
def run(tmp_path):
    found = open_study_run(tmp_path, fake_study(stop=StopRule.BUDGET), fake_experiment(stop=StopRule.BUDGET))
    found.set_population(1)
    yield found
    found.close()


def train(run, dispatch: Dispatch, worker: str) -> list[int]:
    """One job of a worker, a second long; its trials."""
    chosen = dispatch.choose(worker, workers=2)
    tasks = [run.begin(need) for need in chosen.needs]
    dispatch.note_given(worker, run.batch_size, [task.trial_id for task in tasks])
    for task in tasks:
        run.learn(
            TrialProgress(task.trial_id, ((task.until_step, {"val/error": 1.0}),), task.until_step, None), 1.0, None
        )
    dispatch.note_cost(run.batch_size, 1.0, sum(task.until_step for task in tasks), 1)
    return [task.trial_id for task in tasks]


def chosen_trials(run, dispatch: Dispatch, worker: str) -> set[int]:
    return {run.state.drawn.trial_id(need.point) for need in dispatch.choose(worker, workers=1).needs}


def test_a_trial_goes_on_with_the_worker_that_holds_it_until_that_one_is_gone(run):
    dispatch = Dispatch([run.state])
    held = train(run, dispatch, "one")
    assert set(held) & chosen_trials(run, dispatch, "one")
    assert not set(held) & chosen_trials(run, dispatch, "two")
    dispatch.keep_workers({"two"})
    assert set(held) & chosen_trials(run, dispatch, "two")


def test_trials_of_a_job_that_failed_are_trained_alone_until_they_are_trusted(run):
    dispatch = Dispatch([run.state])
    dispatch.suspect(run.batch_size, [2, 3])
    assert chosen_trials(run, dispatch, "one") == {2}
    dispatch.trust(run.batch_size, 2)
    assert chosen_trials(run, dispatch, "one") == {3}
    dispatch.trust(run.batch_size, 3)
    assert len(chosen_trials(run, dispatch, "one")) > 1
