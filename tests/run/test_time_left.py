"""The time left is shown once it is known within a factor: whole runs on simulated workers with a clock of ours."""

import heapq
import math
import random

import pytest
from fake_engine import METRIC, FakeEngine
from study_fakes import fake_experiment, fake_facts, fake_setup, fake_space

from batchscale.run import session
from batchscale.run.loop import RunLoop
from batchscale.run.settings import RunSettings
from batchscale.run.time_left import MeasuredCost, StudyWork, estimate_time_left, finish_bounds
from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.durations import Budget, EvaluationPlan, Unit
from batchscale.spec.experiment import StopRule
from batchscale.spec.plan import make_plan
from batchscale.study.search import Work
from batchscale.study.trial import TrialProgress
from batchscale.workers.runner import JobResult, Runner, WorkerInfo

FACTOR = 3.0
LEAST_S = 60.0  # below, people read "less than a minute"


class SimulatedRunner(Runner):
    """Workers whose jobs take the time of a formula: a step, an evaluation, a message, and setting up a study."""

    def __init__(self, workers: int, costs: dict[str, float], seed: int) -> None:
        self.now = 0.0
        self._ids = [f"w{number}" for number in range(workers)]
        self._free_at = dict.fromkeys(self._ids, 0.0)
        self._waiting = dict.fromkeys(self._ids, 0)
        self._queue: list[tuple[float, int, JobResult]] = []
        self._costs, self._opened, self._random = costs, set(), random.Random(seed)
        self._is_stopped = False

    @property
    def workers(self):
        return tuple(WorkerInfo(name) for name in self._ids)

    def waiting(self, worker_id):
        return self._waiting[worker_id]

    def submit(self, worker_id, job):
        progress = [ScalingEngine(fake_setup(), job.study, 1).advance_one(task, job.goal) for task in job.tasks]
        steps = sum(max(0, item.step - max(0, task.from_step)) for task, item in zip(job.tasks, progress, strict=True))
        size = job.study.batch_size
        step_s = self._costs["step"] * (1 + size / 64) * self._random.uniform(0.8, 1.3)
        seconds = steps * step_s + sum(len(item.rows) for item in progress) * self._costs["evaluation"] + 0.02
        if (worker_id, size) not in self._opened:
            self._opened.add((worker_id, size))
            seconds += self._costs["setup"]
        end = max(self.now, self._free_at[worker_id]) + seconds
        self._free_at[worker_id] = end
        self._waiting[worker_id] += 1
        heapq.heappush(self._queue, (end, job.job_id, JobResult(job.job_id, worker_id, tuple(progress), seconds)))

    def wait(self, timeout_s):
        if not self._queue:
            return []
        self.now, _, result = heapq.heappop(self._queue)
        self._waiting[result.worker_id] -= 1
        return [result]

    def discard(self, batch_size, trial_ids=()): ...
    def finish(self, batch_size, steps): ...
    def kill(self): ...
    def close(self): ...

    def stop(self):
        self._is_stopped = True

    @property
    def at_rest(self):
        return True


class ScalingEngine(FakeEngine):
    """Trials of which larger batches need fewer steps, up to a critical batch size."""

    def advance_one(self, task, goal):
        size = self.study.batch_size
        rate = task.parameters["learning_rate"] * size / (size + 32)
        rows, step = [], max(0, task.from_step)
        for step in self.study.evaluation_steps:
            if step > task.until_step:
                break
            value = 1.0 / (1.0 + rate * step)
            if step > task.from_step:
                rows.append((step, {METRIC: value, "train/error": value / 2}))
            if goal is not None and goal.is_reached_by(value):
                break
        return TrialProgress(task.trial_id, tuple(rows), rows[-1][0] if rows else 0, None)


def simulate(folder, monkeypatch, *, workers=2, costs, seed=0, **changes):
    """Returns (time, estimate) of every status of a run, and the time at its end."""
    runner = SimulatedRunner(workers, costs, seed)
    monkeypatch.setattr(session, "make_runner", lambda *_: runner)
    monkeypatch.setattr(session, "write_status", lambda *_: None)
    monkeypatch.setattr(RunLoop, "_report_if_due", lambda loop: loop._report(loop))  # at every event: real time is none
    plan = make_plan(fake_experiment(seed=seed, **changes), fake_facts(fake_space(0.003, 0.3)))
    estimates = []
    session.run_plan(plan, folder, RunSettings("local"), lambda s: estimates.append((runner.now, s.time_left_s)))
    return estimates, runner.now


LONG = {
    "batch_sizes": BatchSizes((1, 4, 16, 64, 256, 512)), "trials": 24, "budget": Budget(20_000, Unit.STEPS),
    "finishers": 5,
}  # fmt: skip
EVERY = EvaluationPlan(every=50)
LOG = EvaluationPlan(count=80, spacing="log")
SLOW_STEPS = {"step": 0.03, "evaluation": 0.1, "setup": 30.0}
SLOW_EVALUATIONS = {"step": 0.005, "evaluation": 2.0, "setup": 60.0}


@pytest.mark.parametrize("evaluation", [EVERY, LOG], ids=["evenly", "log"])
@pytest.mark.parametrize("costs", [SLOW_STEPS, SLOW_EVALUATIONS], ids=["slow steps", "slow evaluations"])
@pytest.mark.parametrize("rule", [StopRule.RACE, StopRule.BUDGET], ids=["race", "budget"])
def test_an_estimate_is_within_a_factor_of_the_truth_once_it_is_shown(tmp_path, monkeypatch, rule, costs, evaluation):
    changes = LONG if rule is StopRule.RACE else LONG | {"trials": 4}
    estimates, end = simulate(tmp_path, monkeypatch, costs=costs, stop=rule, evaluation=evaluation, **changes)
    shown = [(now, left, end - now) for now, left in estimates if left is not None]
    wrong = [
        (round(now), round(left), round(truth))
        for now, left, truth in shown
        if not max(truth, LEAST_S) / FACTOR <= max(left, LEAST_S) <= max(truth, LEAST_S) * FACTOR
    ]
    assert not wrong, (round(end), wrong[:10])
    assert shown and shown[0][0] < 0.7 * end  # a race knows late when it ends, but before it does


def test_nothing_is_said_before_something_was_timed(tmp_path, monkeypatch):
    estimates, _ = simulate(tmp_path, monkeypatch, costs=SLOW_STEPS, evaluation=LOG, **LONG)
    assert estimates[0] == (0.0, None)
    assert estimates[-1][1] == 0.0


def test_bounds_that_are_far_apart_give_no_figure():
    work = Work(1000, 10, 1000)
    assert estimate_time_left([StudyWork(8, work, work, None)], 1, {}) is None
    unclear = MeasuredCost(seconds=1.0, steps=10, evaluations=10)  # every step was evaluated: which of them costs?
    assert estimate_time_left([StudyWork(8, work, work, unclear)], 1, {8: unclear}) is None
    clear = MeasuredCost(seconds=10.0, steps=1000, evaluations=10)
    assert estimate_time_left([StudyWork(8, work, work, clear)], 1, {8: clear}).seconds == pytest.approx(10.0)


def test_workers_share_the_work_but_not_a_trial():
    cost = MeasuredCost(1.0, 100, 10)
    studies = [StudyWork(8, Work(1000, 100, 50), Work(1000, 100, 50), cost)]
    assert estimate_time_left(studies, 4, {8: cost}).seconds == pytest.approx(10 / 4)
    assert estimate_time_left(studies, 1000, {8: cost}, may_repeat=True).seconds == pytest.approx(0.5)
    assert estimate_time_left(studies, 4, {8: cost}, may_repeat=True).assumes == ("no study is searched again",)


def test_a_batch_size_that_was_not_timed_lies_between_its_neighbours_cost_by_step_and_by_example():
    cost = MeasuredCost(1.0, 100, 10)
    work = Work(100, 10, 100)
    left = estimate_time_left([StudyWork(32, work, work, None)], 1, {8: cost}, setup_s=0.0)
    assert left.seconds == pytest.approx(math.sqrt(1.0 * 4.0))
    assert estimate_time_left([StudyWork(512, work, work, None)], 1, {8: cost}) is None  # 64 times: too far


def test_a_race_ends_between_no_scaling_and_perfect_scaling_of_its_neighbours():
    assert finish_bounds(16, 0, 20_000, []) == (0, 20_000)
    assert finish_bounds(16, 0, 20_000, [(4, 1000), (64, 300)]) == (300, 1000)
    assert finish_bounds(16, 5000, 20_000, [(64, 300)]) == (5000, 5000)  # it goes on already where it should have ended
