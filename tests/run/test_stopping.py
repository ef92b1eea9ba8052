"""Signals and sudden death of the driver process: nothing is left behind, and the next run goes on."""

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from study_fakes import fake_space, read_values, run_fake

from batchscale.errors import REQUEUE, SpecError
from batchscale.run.signals import StopFlag
from batchscale.run.status import is_running, read_status
from batchscale.workers.runner import LossReason
from batchscale.workers.worker import explain_error

SCRIPT = Path(__file__).parents[1] / "fakes" / "run_fake_experiment.py"


def start(root: Path, **options) -> subprocess.Popen:
    words = [f"{key}={value}" for key, value in options.items()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    return subprocess.Popen([sys.executable, str(SCRIPT), str(root), *words], env=environment, start_new_session=True)


def wait_for_training(root: Path, driver: subprocess.Popen) -> list[psutil.Process]:
    """Until a trial has come back from a worker; gives the workers."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        snapshot = read_status(root)
        if snapshot is not None and sum(study.trial_steps for study in snapshot.studies) > 0:
            return psutil.Process(driver.pid).children()
        assert driver.poll() is None
        time.sleep(0.02)
    raise AssertionError("nothing was trained")


def gone(processes: list[psutil.Process], within_s: float) -> bool:
    """Whether they have ended in time. That the system has not yet collected what is left of one is not its doing."""
    return all(has_ended(process) for process in psutil.wait_procs(processes, timeout=within_s)[1])


def has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def whole(tmp_path: Path):
    run_fake(tmp_path / "whole", space=fake_space(0.001, 30.0), trials=20)
    return read_values(tmp_path / "whole")


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "number", [signal.SIGINT, *(pytest.param(number, marks=SLOW) for number in (signal.SIGTERM, signal.SIGUSR1))]
)
def test_a_signal_stops_soon_with_the_code_for_requeue_and_the_run_can_go_on(tmp_path, number):
    driver = start(tmp_path / "parts", sleep_s=0.1)
    workers = wait_for_training(tmp_path / "parts", driver)
    began = time.monotonic()
    driver.send_signal(number)
    assert gone(workers, within_s=2.0 if number == signal.SIGINT else 24.0)
    assert driver.wait(timeout=25) == REQUEUE
    assert time.monotonic() - began < 25.0
    assert not is_running(tmp_path / "parts")
    assert start(tmp_path / "parts").wait(timeout=60) == 0
    assert read_values(tmp_path / "parts") == whole(tmp_path)


@pytest.mark.slow
def test_ctrl_c_ends_hanging_workers_within_two_seconds(tmp_path):
    driver = start(tmp_path, mischief="hang", bad_trials="15")
    workers = wait_for_training(tmp_path, driver)
    time.sleep(0.3)
    driver.send_signal(signal.SIGINT)
    assert gone(workers, within_s=2.0)
    assert driver.wait(timeout=10) == REQUEUE


@pytest.mark.slow
def test_a_second_ctrl_c_leaves_now(tmp_path):
    driver = start(tmp_path, mischief="hang", bad_trials="15")
    workers = wait_for_training(tmp_path, driver)
    driver.send_signal(signal.SIGTERM)
    time.sleep(0.2)
    driver.send_signal(signal.SIGINT)
    assert gone(workers, within_s=1.5)  # the first signal alone would have given them twenty seconds
    driver.wait(timeout=10)


def test_workers_end_with_a_killed_driver_and_its_lock_is_free_at_once(tmp_path):
    driver = start(tmp_path, sleep_s=0.1)
    workers = wait_for_training(tmp_path, driver)
    assert is_running(tmp_path)
    driver.kill()
    driver.wait()
    assert not is_running(tmp_path)
    assert gone(workers, within_s=2.0)


@pytest.mark.slow
def test_a_driver_that_was_asleep_keeps_its_folder_and_goes_on(tmp_path):
    driver = start(tmp_path / "parts", sleep_s=0.1)
    wait_for_training(tmp_path / "parts", driver)
    driver.send_signal(signal.SIGSTOP)
    try:
        assert driver.poll() is None
        second = start(tmp_path / "parts")
        assert second.wait(timeout=60) not in (0, REQUEUE)
    finally:
        driver.send_signal(signal.SIGCONT)
    assert driver.wait(timeout=60) == 0
    assert read_values(tmp_path / "parts") == whole(tmp_path)


@pytest.mark.slow
def test_random_kills_of_driver_and_workers_leave_the_records_of_an_uninterrupted_run(tmp_path):
    chance = random.Random(4)
    for _ in range(4):
        driver = start(tmp_path / "parts", sleep_s=0.004)
        time.sleep(chance.uniform(0.8, 2.5))
        workers = psutil.Process(driver.pid).children() if driver.poll() is None else []
        if workers:
            chance.choice(workers).kill()
            time.sleep(chance.uniform(0.0, 0.3))
        driver.kill()
        driver.wait()
    assert start(tmp_path / "parts").wait(timeout=60) == 0
    assert read_values(tmp_path / "parts") == whole(tmp_path)


def test_a_signal_that_is_ignored_from_the_start_stays_so():
    """As under ``nohup``, which lets a run outlive its terminal."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopFlag() as flag:
            signal.raise_signal(signal.SIGHUP)
            assert not flag.is_set
            signal.raise_signal(signal.SIGTERM)
            assert flag.is_set
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    ("error", "loss"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), LossReason.DISK_FULL),
        (ValueError("RESOURCE_EXHAUSTED: No space left on device [os_error_code='28']"), LossReason.DISK_FULL),
        (ValueError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes"), LossReason.OUT_OF_MEMORY),
        (MemoryError(), LossReason.OUT_OF_MEMORY),
        (SpecError("no such thing"), LossReason.REFUSED),
        (ZeroDivisionError(), LossReason.ERROR),
    ],
)
def test_what_a_trial_raises_is_told_apart(error, loss):
    assert explain_error(error)[0] is loss
