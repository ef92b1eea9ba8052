"""The handle of a worker: its jobs and replies, and when a fresh process replaces it."""

from dataclasses import dataclass, field

import pytest
from study_fakes import fake_study

from batchscale.study.failure import Failure
from batchscale.study.trial import Activity, TrialProgress
from batchscale.workers import handle
from batchscale.workers.handle import WorkerHandle, is_out_of_memory
from batchscale.workers.messages import Answered, Drain, Raised, Ready, Refused, Saved, Started
from batchscale.workers.runner import Job, JobFailed, JobResult, LossReason, WorkerActivity, WorkerInfo


@dataclass(eq=False)
class FakeWorker(WorkerHandle):
    sent: list = field(default_factory=list)

    def send(self, message):
        self.sent.append(message)


def job(number: int) -> Job:
    return Job(number, fake_study(), ())


def answer(number: int, trials: int = 1, memory_bytes: int = 0) -> Answered:
    progress = tuple(TrialProgress(one, (), 0, None) for one in range(trials))
    return Answered(JobResult(number, "w", progress, 0.1), memory_bytes)


@pytest.fixture
def worker() -> FakeWorker:
    made = FakeWorker(WorkerInfo("w"))
    for number in range(3):
        made.submit(job(number))
    return made


def test_jobs_are_sent_in_order_and_wait_for_their_answers(worker):
    assert worker.sent == list(worker.jobs) == [job(0), job(1), job(2)]
    assert worker.handle_reply(Started(0)) == []
    assert worker.started == 0
    done = answer(0, trials=2)
    assert worker.handle_reply(done) == [done.result]
    assert (list(worker.jobs), worker.started, worker.trials) == ([job(1), job(2)], None, 2)
    assert worker.handle_reply(Raised(1, LossReason.ERROR, Failure("why"))) == [
        JobFailed(1, "w", LossReason.ERROR, Failure("why"))
    ]
    assert (list(worker.jobs), worker.trials) == ([job(2)], 2)


@pytest.mark.parametrize("loss", [LossReason.DIED, LossReason.OUT_OF_MEMORY, LossReason.PREEMPTED])
def test_only_the_job_that_was_begun_shares_the_fate_of_its_worker(worker, loss):
    worker.handle_reply(Started(0))
    losses = [(lost.job_id, lost.loss) for lost in worker.fail_jobs(loss, Failure("why"))]
    assert losses == [(0, loss), (1, LossReason.NOT_STARTED), (2, LossReason.NOT_STARTED)]


def test_activity_is_passed_on_and_changes_nothing(worker):
    doing = WorkerActivity("w", Activity.TRAINING, 8, (1,))
    assert worker.handle_reply(doing) == [doing]
    assert worker.handle_reply(Refused("n", "why")) == []
    assert (worker.ready, worker.saved, worker.started) == (False, False, None)


def test_a_worker_is_at_rest_when_it_has_saved_its_states_and_answered_its_jobs(worker):
    assert worker.handle_reply(Ready()) == worker.handle_reply(Saved()) == []
    assert worker.ready
    assert not worker.at_rest
    for number in range(3):
        worker.handle_reply(answer(number))
    assert worker.at_rest


def test_a_worker_is_drained_once_and_takes_no_jobs_from_then_on(worker):
    assert worker.takes_jobs
    worker.drain()
    worker.drain()
    assert worker.sent.count(Drain()) == 1
    assert not worker.takes_jobs


@pytest.mark.parametrize(
    ("memory_bytes", "max_bytes", "expected"), [(5, None, False), (5, 5, False), (6, 5, True), (0, 5.0, False)]
)
def test_a_worker_needs_a_restart_above_its_memory(worker, memory_bytes, max_bytes, expected):
    reply = answer(0, memory_bytes=memory_bytes)
    worker.handle_reply(reply)
    assert (worker.find_restart_reason(reply, max_bytes) is not None) == expected


def test_a_worker_needs_a_restart_after_its_trials_and_only_by_an_answer(worker, monkeypatch):
    monkeypatch.setattr(handle, "RESTART_AFTER_TRIALS", 3)
    for number, expected in ((0, False), (1, True)):
        reply = answer(number, trials=2)
        worker.handle_reply(reply)
        assert (worker.find_restart_reason(reply, None) == "It has trained 4 trials.") == expected
    assert worker.find_restart_reason(Started(2), None) is None


def test_out_of_memory_is_a_reply_about_a_job():
    assert is_out_of_memory(Raised(0, LossReason.OUT_OF_MEMORY, Failure("why")))
    assert not is_out_of_memory(Raised(0, LossReason.ERROR, Failure("why")))
    assert not is_out_of_memory(Saved())
