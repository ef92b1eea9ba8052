"""The promises of `Runner` (tests/workers/test_runner_contract.py) hold for trials that a user's script trains."""

import time

import psutil
import pytest
from trainer_fakes import environment, expected, make_trainer_plan

from batchscale.study.trial import TrialTask
from batchscale.workers.inline import InlineRunner
from batchscale.workers.local import LocalRunner, LocalSettings
from batchscale.workers.runner import (
    TRAINER_ENGINE,
    Job,
    JobFailed,
    JobResult,
    LossReason,
    Setup,
    WorkerActivity,
    trainer_options,
)


@pytest.fixture(params=["inline", "local"])
def runner_of(request, tmp_path):
    """Makes runners of the fake script, and closes them."""
    made = []

    def make(*words: str):
        plan = make_trainer_plan(*words, folder=tmp_path, more="resume = true\n")
        options = trainer_options(environment(), workers=1)
        setup = Setup(plan.experiment, None, tmp_path / "trials", TRAINER_ENGINE, 10**9, options)
        inline = request.param == "inline"
        made.append(InlineRunner(setup) if inline else LocalRunner(setup, LocalSettings(1, tmp_path / "logs")))
        return made[-1], plan.studies[0]

    yield make
    for runner in made:
        runner.close()


def job(study, job_id: int, *trials: int, until: int = 30, after: int = -1, **rest) -> Job:
    return Job(job_id, study, tuple(TrialTask(t, {"learning_rate": 0.01 * t}, t, until, after) for t in trials), **rest)


def collect(runner, count: int) -> dict[int, JobResult | JobFailed]:
    outcomes, end = [], time.monotonic() + 60
    while len(outcomes) < count and time.monotonic() < end:
        outcomes += [event for event in runner.wait(0.1) if not isinstance(event, WorkerActivity)]
    assert len(outcomes) == count
    return {outcome.job_id: outcome for outcome in outcomes}


def test_every_job_is_answered_once_in_order_and_a_failure_does_not_stop_the_next(runner_of):
    runner, study = runner_of("mischief=raise", "at=5", "bad=2")
    worker = runner.workers[0].worker_id
    for number, trials in enumerate([(3, 1), (2,), (4,)]):
        runner.submit(worker, job(study, number, *trials))
    outcomes = collect(runner, 3)
    assert [progress.trial_id for progress in outcomes[0].progress] == [3, 1]
    assert list(outcomes[0].progress[1].rows) == expected(0.01, (10, 20, 30))
    assert outcomes[1].loss is LossReason.ERROR and "this trial cannot be trained" in str(outcomes[1].reason)
    assert outcomes[2].progress[0].step == 30


def test_a_lost_job_gives_the_same_answer_when_submitted_again(runner_of, tmp_path):
    runner, study = runner_of("mischief=kill", "at=5", f"once={tmp_path}")
    worker = runner.workers[0].worker_id
    runner.submit(worker, job(study, 0, 1))
    assert collect(runner, 1)[0].loss is LossReason.ERROR
    runner.submit(worker, job(study, 1, 1))
    assert list(collect(runner, 1)[1].progress[0].rows) == expected(0.01, (10, 20, 30))


def test_out_of_memory_is_told_apart(runner_of):
    runner, study = runner_of("mischief=memory", "at=5")
    runner.submit(runner.workers[0].worker_id, job(study, 0, 1))
    assert collect(runner, 1)[0].loss is LossReason.OUT_OF_MEMORY


def test_closing_leaves_no_script(runner_of, tmp_path):
    runner, study = runner_of()
    runner.submit(runner.workers[0].worker_id, job(study, 0, 1, 2))
    collect(runner, 1)
    runner.close()
    runner.close()
    deadline = time.monotonic() + 10
    while _scripts(tmp_path) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _scripts(tmp_path) == []


def _scripts(folder) -> list[int]:
    found = []
    for process in psutil.process_iter(["environ", "status"]):
        variable = (process.info["environ"] or {}).get("BATCHSCALE_TRIAL", "")
        if variable.startswith(str(folder)) and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found
