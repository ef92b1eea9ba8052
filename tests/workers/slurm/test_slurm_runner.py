"""What only workers of SLURM go through: limits of time, cancelling, waiting, dead drivers. On a SLURM of our own."""

import signal
import time
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from fake_slurm import QUICK, fake_slurm, fake_slurm_runner
from study_fakes import fake_experiment, fake_setup, fake_study

from batchscale.errors import RunError
from batchscale.spec.trainer import TrainerSpec
from batchscale.study.trial import TrialTask
from batchscale.workers import handle
from batchscale.workers.runner import Job, JobFailed, JobResult, LossReason, Setup, WorkerActivity
from batchscale.workers.slurm.client import SlurmError

STUDY = fake_study()


def job(job_id: int, trial: int = 1) -> Job:
    return Job(job_id, STUDY, (TrialTask(trial, {"learning_rate": 0.1}, trial, 200, -1),))


@pytest.fixture
def slurm(tmp_path):
    with fake_slurm(tmp_path) as slurm:
        yield slurm


def until(runner, is_so, timeout_s: float = 30.0) -> list:
    """What came until it is so."""
    events, end = [], time.monotonic() + timeout_s
    while not is_so(events):
        assert time.monotonic() < end, events
        events += [event for event in runner.wait(0.05) if not isinstance(event, WorkerActivity)]
    return events


def with_worker(runner):
    until(runner, lambda _: runner.workers)
    return runner.workers[0].worker_id


def begin_training(runner, worker: str, *jobs: Job) -> None:
    for one in jobs:
        runner.submit(worker, one)
    end = time.monotonic() + 20
    while not any(isinstance(event, WorkerActivity) for event in runner.wait(0.05)):
        assert time.monotonic() < end


def processes(slurm) -> list[int]:
    return [task.process.pid for task in slurm.tasks.values() if task.process is not None]


def await_exit(slurm, timeout_s: float) -> float:
    """How long it took until no process of a worker was left."""
    started = time.monotonic()
    for task in slurm.tasks.values():
        task.process.wait(timeout_s)
    return time.monotonic() - started


@pytest.mark.slow
def test_before_the_time_limit_a_worker_saves_and_is_put_in_the_queue_again(slurm, tmp_path):
    saved = tmp_path / "saved"
    with fake_slurm_runner(fake_setup(sleep_s=0.1, save_log=saved), tmp_path, slurm) as runner:
        worker = with_worker(runner)
        begin_training(runner, worker, job(0), job(1, trial=2))
        time.sleep(0.7)
        slurm.kill(signal.SIGUSR1)
        events = until(runner, lambda events: len(events) == 2)
        done, lost = events
        assert isinstance(done, JobResult)
        assert done.cut_short
        assert 0 < len(done.progress[0].rows) < 21
        assert (lost.loss, lost.job_id) == (LossReason.NOT_STARTED, 1)
        assert saved.read_text() == "1\n"
        again = with_worker(runner)
        assert again != worker
        assert [str(key.place) for key in slurm.requeued] == ["0"]
        assert len(slurm.asked) == 1  # no other job was submitted
        runner.submit(again, job(2))
        assert isinstance(until(runner, lambda events: events)[0], JobResult)


@pytest.mark.slow
def test_a_cancelled_worker_is_replaced_and_nothing_is_held_against_its_trials(slurm, tmp_path):
    with fake_slurm_runner(fake_setup(bad_trials="1", mischief="hang"), tmp_path, slurm) as runner:
        worker = with_worker(runner)
        begin_training(runner, worker, job(0))
        task = next(iter(slurm.tasks.values()))
        task.cancelled = True
        slurm.kill(signal.SIGTERM)  # the trial hangs, so that it cannot save in time
        runner.wait(0.5)
        slurm.kill(signal.SIGKILL)
        (lost,) = until(runner, lambda events: events)
        assert isinstance(lost, JobFailed)
        assert lost.loss is LossReason.PREEMPTED
        assert not lost.loss.is_fault
        assert with_worker(runner) != worker
        assert len(slurm.asked) == 2


def test_jobs_that_wait_are_a_matter_of_patience(slurm, tmp_path):
    slurm.held = True
    with fake_slurm_runner(fake_setup(), tmp_path, slurm, workers=2) as runner:
        until(runner, lambda _: runner.notices)
        assert runner.notices[-1] == "2 of 2 workers wait in SLURM's queue (Resources)."
        assert runner.workers == ()
        assert len(slurm.asked) == 1


def test_a_slurm_that_does_not_answer_is_a_matter_of_patience(slurm, tmp_path):
    slurm.held = True
    with fake_slurm_runner(fake_setup(), tmp_path, slurm) as runner:
        slurm.broken = "SLURM refused 'squeue': it is asleep."
        until(runner, lambda _: runner.notices and "asleep" in runner.notices[-1])
        slurm.broken = ""
        until(runner, lambda _: "asleep" not in runner.notices[-1])


def test_a_first_submission_that_is_refused_is_the_users_to_mend(slurm, tmp_path):
    slurm.broken = "SLURM refused 'sbatch': no such partition."
    with pytest.raises(SlurmError, match="no such partition"):
        fake_slurm_runner(fake_setup(), tmp_path, slurm)
    assert list((tmp_path / "exchange").iterdir()) == []


def test_close_ends_workers_at_once_and_leaves_no_file(slurm, tmp_path):
    runner = fake_slurm_runner(fake_setup(bad_trials="1", mischief="hang"), tmp_path, slurm)
    begin_training(runner, with_worker(runner), job(0))
    started = time.monotonic()
    runner.close()
    assert time.monotonic() - started < 5
    assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in processes(slurm))
    assert list((tmp_path / "exchange").iterdir()) == []


@pytest.mark.slow
def test_workers_of_a_driver_that_died_leave_by_themselves(slurm, tmp_path):
    runner = fake_slurm_runner(fake_setup(bad_trials="1", mischief="hang"), tmp_path, slurm)
    begin_training(runner, with_worker(runner), job(0))
    runner._heartbeat._ended.set()  # what a SIGKILL does: no beat any more, and the file stays
    assert QUICK.leave_s - 1 < await_exit(slurm, 20) < QUICK.leave_s + 5
    runner.close()


@pytest.mark.slow
def test_a_new_driver_ends_what_a_dead_one_left_before_it_submits(slurm, tmp_path):
    dead = fake_slurm_runner(fake_setup(bad_trials="1", mischief="hang"), tmp_path, slurm)
    begin_training(dead, with_worker(dead), job(0))
    before = processes(slurm)
    with fake_slurm_runner(fake_setup(), tmp_path, slurm) as runner:
        assert not any(psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie" for pid in before)
        assert len(list((tmp_path / "exchange").iterdir())) == 1
        assert "an earlier run had left" in runner.notices[0]
        runner.submit(with_worker(runner), job(0))
        assert isinstance(until(runner, lambda events: events)[0], JobResult)
    dead.close()


@pytest.mark.slow
def test_a_worker_that_is_not_responding_is_cancelled_before_its_jobs_go_to_another(slurm, tmp_path):
    quick = replace(QUICK, cancel_s=1.0)
    with fake_slurm_runner(fake_setup(sleep_s=0.2), tmp_path, slurm) as runner:
        runner._settings = replace(runner._settings, heartbeat=quick)
        begin_training(runner, with_worker(runner), job(0))
        slurm.kill(signal.SIGSTOP)
        until(runner, lambda _: any("not responding" in notice for notice in runner.notices))
        task = next(iter(slurm.tasks.values()))
        assert until(runner, lambda _: task.cancelled) == []
        assert runner.waiting("slurm-0") == 1  # it may still live: nobody else gets its job
        slurm.kill(signal.SIGKILL)
        (lost,) = until(runner, lambda events: events)
        assert lost.loss is LossReason.PREEMPTED


@pytest.mark.slow
def test_a_worker_is_recycled_in_its_job(slurm, tmp_path, monkeypatch):
    monkeypatch.setattr(handle, "RESTART_AFTER_TRIALS", 1)
    with fake_slurm_runner(fake_setup(), tmp_path, slurm) as runner:
        worker = with_worker(runner)
        runner.submit(worker, job(0))
        until(runner, lambda events: events)
        assert with_worker(runner) != worker
        assert len(slurm.asked) == 1
        assert len(slurm.tasks) == 1


def test_out_of_memory_makes_workers_no_fewer_because_each_has_memory_of_its_own(slurm, tmp_path):
    with fake_slurm_runner(fake_setup(bad_trials="1", mischief="memory"), tmp_path, slurm, workers=2) as runner:
        until(runner, lambda _: len(runner.workers) == 2)
        before = runner.workers
        runner.submit(before[0].worker_id, job(0))
        (lost,) = until(runner, lambda events: events)
        assert lost.loss is LossReason.OUT_OF_MEMORY
        runner.submit(before[0].worker_id, job(1, trial=2))
        assert isinstance(until(runner, lambda events: events)[0], JobResult)
        assert (runner.workers, runner.notices) == (before, ())


def test_a_node_that_cannot_train_ends_a_run_that_has_trained_nothing(slurm, tmp_path):
    trainer = TrainerSpec(("no-such-program",), tmp_path)
    setup = Setup(fake_experiment(trainer=trainer), engine="fake_engine:make_engine")
    with (
        fake_slurm_runner(setup, tmp_path, slurm) as runner,
        pytest.raises(RunError, match=r"Node node0 .*no-such-program"),
    ):
        until(runner, lambda _: False)


@pytest.mark.slow
def test_workers_that_cannot_start_end_the_run_with_their_last_lines(slurm, tmp_path):
    broken = replace(fake_setup(), engine="no_such_module:make_engine")
    with fake_slurm_runner(broken, tmp_path, slurm) as runner, pytest.raises(RunError, match="no_such_module"):
        until(runner, lambda _: False)
    assert len(slurm.asked) == 3


def test_a_full_disk_delays_messages_and_loses_none(slurm, tmp_path, monkeypatch):
    from batchscale.workers.slurm import channel

    with fake_slurm_runner(fake_setup(), tmp_path, slurm) as runner:
        worker = with_worker(runner)
        write = channel.os.write

        def refuse(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(channel.os, "write", refuse)
        runner.submit(worker, job(0))
        runner.submit(worker, job(1, trial=2))
        assert runner.wait(0.3) == []
        monkeypatch.setattr(channel.os, "write", write)
        events = until(runner, lambda events: len(events) == 2)
    assert [event.job_id for event in events] == [0, 1]


def test_what_lies_in_the_folder_is_for_the_user_alone(slurm, tmp_path):
    with fake_slurm_runner(fake_setup(), tmp_path, slurm) as runner:
        with_worker(runner)
        (session,) = (tmp_path / "exchange").iterdir()
        assert session.stat().st_mode & 0o077 == 0
        (worker,) = (session / "workers").iterdir()
        assert sorted(path.name for path in worker.iterdir()) == ["in.0", "out.0"]
        assert all(path.stat().st_mode & 0o077 == 0 for path in worker.iterdir())
        assert not Path(worker, "in.0").read_bytes().startswith(b"\x80")
