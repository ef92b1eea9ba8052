"""The scheduler: which worker trains which trials next."""

import pytest
from study_fakes import fake_experiment, fake_study

from batchscale.run.scheduler import Scheduler
from batchscale.spec.durations import Budget, EvaluationPlan, Unit
from batchscale.spec.experiment import StopRule
from batchscale.study.study import open_study_run
from batchscale.study.trial import TrialProgress


def test_the_first_job_of_a_study_goes_to_the_next_measurement_only(tmp_path):
    long = {"stop": StopRule.BUDGET, "budget": Budget(10**6, Unit.STEPS), "evaluation": EvaluationPlan(every=1000)}
    run = open_study_run(tmp_path, fake_study(**long), fake_experiment(**long))
    assignment = Scheduler([run.state]).next_assignment("one", num_workers=2)
    assert {request.until for request in assignment.requests} == {1000}
    run.close()


@pytest.fixture
def run(tmp_path):
    study_run = open_study_run(tmp_path, fake_study(stop=StopRule.BUDGET), fake_experiment(stop=StopRule.BUDGET))
    study_run.set_population(1)
    yield study_run
    study_run.close()


def train(run, scheduler: Scheduler, worker: str) -> list[int]:
    """One job of a worker, a second long; its trials."""
    assignment = scheduler.next_assignment(worker, num_workers=2)
    tasks = [run.start(request) for request in assignment.requests]
    scheduler.mark_assigned(worker, run.batch_size, [task.trial_id for task in tasks])
    for task in tasks:
        run.handle_progress(
            TrialProgress(task.trial_id, ((task.until_step, {"val/error": 1.0}),), task.until_step, None), 1.0, None
        )
    scheduler.add_cost(run.batch_size, 1.0, sum(task.until_step for task in tasks), 1)
    return [task.trial_id for task in tasks]


def assigned_trials(run, scheduler: Scheduler, worker: str) -> set[int]:
    assignment = scheduler.next_assignment(worker, num_workers=1)
    return {run.state.sampled.trial_id(request.point) for request in assignment.requests}


def test_a_trial_continues_on_the_worker_that_holds_it_until_that_one_is_gone(run):
    scheduler = Scheduler([run.state])
    held = train(run, scheduler, "one")
    assert set(held) & assigned_trials(run, scheduler, "one")
    assert not set(held) & assigned_trials(run, scheduler, "two")
    scheduler.set_workers({"two"})
    assert set(held) & assigned_trials(run, scheduler, "two")


def test_trials_of_a_job_that_failed_are_trained_alone_until_they_make_progress(run):
    scheduler = Scheduler([run.state])
    scheduler.isolate(run.batch_size, [2, 3])
    assert assigned_trials(run, scheduler, "one") == {2}
    scheduler.end_isolation(run.batch_size, 2)
    assert assigned_trials(run, scheduler, "one") == {3}
    scheduler.end_isolation(run.batch_size, 3)
    assert len(assigned_trials(run, scheduler, "one")) > 1
