"""Forked workers serve like those that the runner starts one by one, and end with their driver."""

import os
import time
from contextlib import closing
from dataclasses import replace

import psutil
import pytest
from study_fakes import fake_setup, fake_study

from batchscale.study.trial import TrialTask
from batchscale.workers import local
from batchscale.workers.fork_server import NEVER_STARTED, ForkedWorker, ForkServer, can_fork
from batchscale.workers.local import LocalRunner, LocalSettings
from batchscale.workers.runner import Event, Job, JobFailed, JobResult, LossReason, WorkerActivity

pytestmark = pytest.mark.skipif(not can_fork(), reason="workers are not forked here")


@pytest.fixture(autouse=True)
def _fake_engine_is_forked(monkeypatch):
    monkeypatch.setattr(local, "TRAINING_ENGINE", fake_setup().engine)


@pytest.fixture(scope="module")
def server():
    with closing(ForkServer()) as server:
        yield server


def fork_runner(server, folder, workers: int = 1, **options) -> LocalRunner:
    return LocalRunner(fake_setup(**options), LocalSettings(workers, folder, fork_server=server))


def train(runner: LocalRunner, *trials: int, worker: int = 0) -> Event:
    """The outcome of a job of these trials on a worker."""
    tasks = tuple(TrialTask(trial, {"learning_rate": 0.1 * trial}, trial, 50, -1) for trial in trials)
    runner.submit(runner.workers[worker].worker_id, Job(0, fake_study(), tasks))
    return next_outcome(runner)


def next_outcome(runner: LocalRunner) -> Event:
    end = time.monotonic() + 20
    while time.monotonic() < end:
        for event in runner.wait(0.1):
            if not isinstance(event, WorkerActivity):
                return event
    raise AssertionError("no outcome")


def processes_of(runner: LocalRunner) -> list[psutil.Process]:
    return [psutil.Process(worker.process.pid) for worker in runner._workers.values()]


def test_a_forked_worker_answers_jobs_like_one_that_was_started(server, tmp_path):
    with LocalRunner(fake_setup(), LocalSettings(1, tmp_path / "started")) as runner:
        expected = train(runner, 1, 2)
    with fork_runner(server, tmp_path / "forked") as runner:
        assert [process.ppid() for process in processes_of(runner)] == [server.pid]
        result = train(runner, 1, 2)
    assert isinstance(expected, JobResult)
    assert isinstance(result, JobResult)
    assert [replace(p, timing={}) for p in result.progress] == [replace(p, timing={}) for p in expected.progress]


def test_forked_workers_have_their_own_place_session_and_log(server, tmp_path):
    with fork_runner(server, tmp_path, 2, bad_trials="1", mischief="raise") as runner:
        first, second = processes_of(runner)
        assert os.getsid(first.pid) == first.pid != os.getsid(second.pid)
        assert isinstance(train(runner, 1, worker=1), JobFailed)
        assert "Traceback" in (tmp_path / "worker-1.log").read_text()
        assert (tmp_path / "worker-0.log").read_text() == ""


@pytest.mark.parametrize(("mischief", "reason"), [("kill", "signal SIGKILL"), ("exit", "code 3")])
def test_the_end_of_a_forked_worker_is_known_and_another_takes_its_place(server, tmp_path, mischief, reason):
    with fork_runner(server, tmp_path, bad_trials="1", mischief=mischief, once=str(tmp_path)) as runner:
        (before,) = processes_of(runner)
        lost = train(runner, 1)
        assert isinstance(lost, JobFailed)
        assert lost.loss is LossReason.DIED
        assert reason in str(lost.reason)
        assert "about to misbehave" in str(lost.reason)
        (after,) = processes_of(runner)
        assert after.pid != before.pid
        assert after.ppid() == server.pid
        assert isinstance(train(runner, 1), JobResult)


def test_close_ends_hanging_workers_at_once_and_leaves_none(server, tmp_path):
    runner = fork_runner(server, tmp_path, 2, bad_trials="1", mischief="hang")
    processes = processes_of(runner)
    runner.submit(runner.workers[0].worker_id, Job(0, fake_study(), (TrialTask(1, {"learning_rate": 0.1}, 1, 50, -1),)))
    runner.wait(1.0)
    started = time.monotonic()
    runner.close()
    assert time.monotonic() - started < 2
    assert not any(process.is_running() for process in processes)


def test_workers_and_server_end_when_the_driver_dies(tmp_path):
    server = ForkServer()
    runner = fork_runner(server, tmp_path)
    (worker,) = processes_of(runner)
    server._socket.close()  # what the death of the driver does
    next(iter(runner._workers.values())).pipe.close()
    psutil.wait_procs([worker, psutil.Process(server.pid)], timeout=10)
    server._process.wait(timeout=10)
    assert not worker.is_running()
    runner._workers.clear()


def test_workers_live_on_without_their_server_and_new_ones_are_started(tmp_path):
    with closing(ForkServer()) as server, fork_runner(server, tmp_path, bad_trials="2", mischief="kill") as runner:
        (worker,) = processes_of(runner)
        psutil.Process(server.pid).kill()
        assert isinstance(train(runner, 1), JobResult)
        lost = train(runner, 2)
        assert isinstance(lost, JobFailed)
        assert "signal SIGKILL" in str(lost.reason)
        assert worker.pid not in [process.pid for process in processes_of(runner)]
        assert isinstance(train(runner, 3), JobResult)


def test_a_server_that_ends_before_it_has_loaded_is_replaced_by_workers(tmp_path):
    with closing(ForkServer()) as server, fork_runner(server, tmp_path) as runner:
        (worker,) = runner._workers.values()
        assert isinstance(worker.process, ForkedWorker)
        worker.process.kill()  # before it was forked
        assert worker.process.wait(timeout=5) in (NEVER_STARTED, -9)
        while next(iter(runner._workers.values())) is worker:
            runner.wait(0.1)
        assert isinstance(train(runner, 1), JobResult)
    assert not psutil.pid_exists(server.pid)


def test_a_worker_of_another_engine_or_environment_is_not_forked(server, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    with fork_runner(server, tmp_path) as runner:
        assert not isinstance(next(iter(runner._workers.values())).process, ForkedWorker)
    monkeypatch.undo()
    monkeypatch.setattr(local, "TRAINING_ENGINE", "another:engine")
    with fork_runner(server, tmp_path) as runner:
        assert not isinstance(next(iter(runner._workers.values())).process, ForkedWorker)


def test_the_number_of_devices_is_that_of_the_worker(server, tmp_path):
    setup = replace(fake_setup(), num_devices=2)
    with LocalRunner(setup, LocalSettings(1, tmp_path, fork_server=server)) as runner:
        (process,) = processes_of(runner)
        assert process.ppid() == server.pid


def test_a_process_with_threads_is_not_forked(tmp_path, monkeypatch):
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    with closing(ForkServer()) as server:
        assert server._process.wait(timeout=20) == 1
        with fork_runner(server, tmp_path) as runner:
            assert isinstance(train(runner, 1), JobResult)
