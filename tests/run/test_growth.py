"""The cost of a trial in the loop does not grow with the number of trials, studies or workers.

Seconds say little on a busy machine: the lines of our own code that run are counted.
"""

import sys
from collections import deque
from pathlib import Path

import pytest
from study_fakes import fake_experiment, fake_facts

import batchscale
from batchscale.run.scheduler import Scheduler
from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.durations import EvaluationPlan
from batchscale.spec.experiment import StopRule
from batchscale.spec.plan import make_plan
from batchscale.study.identity import SavedStudy
from batchscale.study.study_state import StudyState
from batchscale.study.trial import TrialSummary

OURS = tuple(str(Path(batchscale.__file__).parent / package) for package in ("run", "study"))
DIVERGES_ABOVE = 0.3
"""The fake space reaches to 0.5: about one trial in twelve diverges."""


def make_states(trials: int, studies: int, rule: StopRule) -> list[StudyState]:
    sizes = BatchSizes(tuple(range(1, studies + 1)))
    experiment = fake_experiment(
        trials=trials // studies, batch_sizes=sizes, stop=rule, evaluation=EvaluationPlan(every=50)
    )
    states = []
    for study in make_plan(experiment, fake_facts()).studies:
        saved = SavedStudy(budgets=[study.train_steps], population=1)
        saved.history.add_search(study.space, first_trial_id=1)
        states.append(StudyState(study, experiment, saved, {}))
    return states


def train(state: StudyState, task) -> None:
    rate = task.parameters["learning_rate"]
    diverged_at = 25 if rate > DIVERGES_ABOVE else None
    last = task.until_step if diverged_at is None else 0
    steps = [step for step in state.study.evaluation_steps if task.from_step < step <= last]
    # only the last measurement reaches the goal, so that a race trains all its rounds
    rows = [(step, {"val/error": 0.1 if step == state.study.train_steps else 1 - rate}) for step in steps]
    state.update(task.trial_id, rows, diverged_at)


def settle(state: StudyState, scheduler: Scheduler) -> int:
    """Record what came to its end, without a disk; how many trials that were."""
    state.refresh()
    recorded = 0
    while state.outcomes:
        point, outcome = state.outcomes[0]
        trial = state.current.points[point]
        summary = TrialSummary(outcome.step, trial.reached_at, trial.diverged_at, trial.best)
        scheduler.release(state.study.batch_size, [state.sampled.trial_id(point)])
        state.mark_recorded(point, outcome, summary)
        recorded += 1
    return recorded


def run(states: list[StudyState], workers: int) -> int:
    """Train all studies to their end, one trial per job, each job about half a trial; the number of trials."""
    scheduler = Scheduler(states, stretch_s=10.0)
    idle, jobs, recorded = deque(f"worker-{number}" for number in range(workers)), deque(), 0
    while True:
        for _ in range(len(idle)):
            worker = idle.popleft()
            assignment = scheduler.next_assignment(worker, workers)
            if assignment is None:
                idle.append(worker)
                continue
            tasks = [assignment.state.start(request) for request in assignment.requests]
            scheduler.mark_assigned(worker, assignment.state.study.batch_size, [task.trial_id for task in tasks])
            jobs.append((worker, assignment.state, tasks))
        if not jobs:
            assert all(state.current.decided for state in states)
            return recorded
        worker, state, tasks = jobs.popleft()
        for task in tasks:
            train(state, task)
        steps = sum(task.until_step - max(0, task.from_step) for task in tasks)
        scheduler.add_cost(state.study.batch_size, 0.1 * steps, steps, population=1)
        recorded += settle(state, scheduler)
        idle.append(worker)


def lines_per_trial(trials: int, studies: int, workers: int, rule: StopRule) -> float:
    states = make_states(trials, studies, rule)
    for state in states:
        state.sampled.values(0)  # points are drawn by the study, not by the trial
    count = 0

    def count_line(_frame, _event, _argument):
        nonlocal count
        count += 1
        return count_line

    def enter(frame, _event, _argument):
        return count_line if frame.f_code.co_filename.startswith(OURS) else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        recorded = run(states, workers)
    finally:
        sys.settrace(before)
    assert recorded >= trials
    return count / recorded


@pytest.mark.parametrize(
    ("rule", "few", "many"),
    [
        pytest.param(StopRule.BUDGET, (50, 1, 4), (500, 1, 4), id="trials of a study"),
        pytest.param(StopRule.GOAL, (50, 5, 4), (500, 50, 4), id="studies"),
        pytest.param(StopRule.RACE, (50, 5, 4), (500, 50, 4), id="studies that are races"),
        pytest.param(StopRule.RACE, (50, 1, 4), (500, 1, 4), id="trials of a race"),
        pytest.param(StopRule.BUDGET, (400, 10, 8), (400, 10, 80), id="workers"),
    ],
)
def test_ten_times_as_many_cost_no_more_each(rule, few, many):
    # orders are kept by bisection, which takes a few steps more among ten times as many: hence not exactly one
    assert lines_per_trial(*many, rule) < 1.6 * lines_per_trial(*few, rule)
