"""Whole experiments on a real small SLURM: the records are those of a local run, number for number."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from digits_race import EXPERIMENT
from small_slurm import is_there
from study_fakes import read_values

from batchscale.run.status import read_status

pytestmark = [pytest.mark.slurm, pytest.mark.skipif(not is_there(), reason="SLURM is not installed here")]

LONGER = EXPERIMENT.replace('"race"', '"budget"').replace("epochs = 6", "epochs = 60").replace("= 150", "= 3000")
LONGEST = LONGER.replace("= 3000", "= 30000")  # beyond the two minutes that a job has, on an idle machine too
TWO_MINUTES = "[run.slurm]\ntime = 2\nsave_s = 10\n"


class Run:
    """``batchscale run`` as a user starts it."""

    def __init__(self, tmp_path: Path, folder: str, runner: str = "slurm", text: str = EXPERIMENT) -> None:
        self.out = tmp_path / folder
        file = tmp_path / "experiment.toml"
        file.write_text(text)
        self.environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        words = ["run", str(file), "--out", str(self.out), "--runner", runner, "--workers", "2", "--retries", "50"]
        self.since = time.time()
        self.log = tmp_path / f"{folder}-{time.monotonic_ns()}.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "batchscale", *words], env=self.environment, stdout=log, stderr=log
            )

    def trained(self) -> bool:
        snapshot = read_status(self.out)
        return (
            snapshot is not None
            and snapshot.written_at > self.since
            and not snapshot.finished
            and any(study.trial_steps for study in snapshot.studies)
        )

    def await_training(self) -> bool:
        """Until trials of this very run have come back; False if the run ended before."""
        return self.await_so(self.trained)

    def await_so(self, is_so, timeout_s: float = 300.0) -> bool:
        end = time.monotonic() + timeout_s
        while self.process.poll() is None:
            if is_so():
                return True
            assert time.monotonic() < end, self.log.read_text()[-3000:]
            time.sleep(0.1)
        return False

    def finish(self, timeout_s: float = 900.0) -> None:
        assert self.process.wait(timeout_s) == 0, self.log.read_text()[-3000:]


def ask(*words: str) -> str:
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=60).stdout


def tasks(form: str = "%F_%K", *more: str) -> list[str]:
    return ask("squeue", "-h", "-r", "-o", form, *more).split()


def worker_processes(out: Path) -> list[psutil.Process]:
    """The processes of this run's workers on all nodes, which are this machine."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(word.startswith(str(out)) for word in words) and any("workers.slurm.worker" in word for word in words):
            found.append(process)
    return found


@pytest.fixture
def local(tmp_path):
    """The records of an uninterrupted local run, made after the test has had the machine for itself."""

    def compare(*folders: str, text: str = EXPERIMENT, at_least: int = 24) -> None:
        Run(tmp_path, "whole", "local", text).finish()
        expected = read_values(tmp_path / "whole")
        assert len(expected) >= at_least
        for folder in folders:
            assert read_values(tmp_path / folder) == expected

    return compare


@pytest.mark.timeout(1800)
def test_cancelled_out_of_time_and_on_a_drained_node_the_records_are_the_same(small_cluster, tmp_path, local):
    run = Run(tmp_path, "slurm", text=LONGEST + TWO_MINUTES)
    assert run.await_training()
    first = tasks("%F_%K", "-t", "RUNNING")
    assert len(first) == 2
    ask("scancel", first[0])  # by hand
    assert run.await_so(lambda: any(task not in first for task in tasks("%F_%K", "-t", "RUNNING")))

    ask("scontrol", "update", "nodename=n2", "state=drain", "reason=test")
    for task in tasks("%F_%K", "-w", "n2", "-t", "RUNNING"):
        ask("scancel", task)
    assert run.await_so(lambda: tasks("%N", "-t", "RUNNING") == ["n1"])  # the other place waits, the run goes on
    assert run.await_so(lambda: "wait in SLURM's queue" in (read_status(run.out).notice or ""))
    ask("scontrol", "update", "nodename=n2", "state=resume")
    assert run.await_so(lambda: sorted(tasks("%N", "-t", "RUNNING")) == ["n1", "n2"])

    restarts = "RestartCnt:5"
    assert run.await_so(lambda: any(int(n) for n in ask("squeue", "-h", "-r", "-O", restarts).split()))  # out of time
    assert run.await_so(lambda: any(int(n) for n in ask("squeue", "-h", "-r", "-t", "R", "-O", restarts).split()))
    run.finish()
    assert tasks() == []
    assert list((run.out / ".batchscale" / "exchange").iterdir()) == []
    assert read_status(run.out).given_up == 0
    local("slurm", text=LONGEST)


@pytest.mark.timeout(1200)
def test_begun_locally_continued_on_slurm_and_finished_locally(small_cluster, tmp_path, local):
    for runner in ("local", "slurm"):
        run = Run(tmp_path, "parts", runner, LONGER)
        assert run.await_training()
        time.sleep(1)
        started = time.monotonic()
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(60) == 75, run.log.read_text()[-3000:]
        assert time.monotonic() - started < 20
        assert "nothing is lost" in run.log.read_text()
        assert ("--runner slurm --workers 2" in run.log.read_text()) == (runner == "slurm")
        assert tasks() == []
        assert worker_processes(run.out) == []
        status = subprocess.run(
            [sys.executable, "-m", "batchscale", "status", str(run.out)],
            env=run.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "digits" in status.stdout, status.stderr
    Run(tmp_path, "parts", "local", LONGER).finish()
    local("parts", text=LONGER)


@pytest.mark.timeout(600)
def test_workers_of_a_killed_driver_are_gone_before_the_next_begins(small_cluster, tmp_path, local):
    run = Run(tmp_path, "slurm")
    assert run.await_training()
    left = {process.pid for process in worker_processes(run.out)}
    assert left
    run.process.kill()
    run.process.wait()
    again = Run(tmp_path, "slurm")
    if again.await_so(lambda: {process.pid for process in worker_processes(run.out)} - left):
        assert not left & {process.pid for process in worker_processes(run.out)}
    again.finish()
    local("slurm")


def kill_and_go_on(tmp_path: Path, driver_kills: int, worker_kills: int) -> list[str]:
    """Kill until both counts are reached, beginning another run when one ends; the folders of finished runs."""
    chance = random.Random(0)
    left = ["driver"] * driver_kills + ["worker"] * worker_kills
    chance.shuffle(left)
    finished: list[str] = []
    in_training = 0
    run = Run(tmp_path, "run-0")
    while left:
        trained = chance.random() < 0.75 and run.await_training()
        time.sleep(chance.uniform(0.0, 1.0 if trained else 4.0))
        if run.process.poll() is not None:
            run.finish()
            finished.append(run.out.name)
            run = Run(tmp_path, f"run-{len(finished)}")
            continue
        if left[-1] == "driver":
            run.process.kill()
            run.process.wait()
            run = Run(tmp_path, run.out.name)
        else:
            victims = worker_processes(run.out)
            if not victims:
                continue
            try:
                chance.choice(victims).kill()
            except psutil.NoSuchProcess:
                continue
        in_training += trained
        left.pop()
    run.finish()
    assert in_training >= (driver_kills + worker_kills) // 3
    return [*finished, run.out.name]


@pytest.mark.timeout(1200)
def test_a_few_kills_leave_the_records_of_an_uninterrupted_run(small_cluster, tmp_path, local):
    local(*kill_and_go_on(tmp_path, driver_kills=1, worker_kills=2))


@pytest.mark.torture
@pytest.mark.timeout(7200)
def test_many_kills_leave_the_records_of_an_uninterrupted_run(small_cluster, tmp_path, local):
    local(*kill_and_go_on(tmp_path, driver_kills=10, worker_kills=20))
