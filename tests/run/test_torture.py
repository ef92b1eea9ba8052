"""SIGKILLs at random moments during a real experiment on digits, against an uninterrupted run, number for number."""

import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from digits_race import EXPERIMENT
from study_fakes import read_values

from batchscale.run.status import read_status

LONGER = EXPERIMENT.replace("epochs = 6", "epochs = 12").replace("at_least_steps = 150", "at_least_steps = 400")
ALL_THE_WAY = ('"race"', '"budget"')


def start(tmp_path: Path, folder: str, text: str = EXPERIMENT, runner: str = "local") -> subprocess.Popen:
    file = tmp_path / "experiment.toml"
    file.write_text(text)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    words = ["run", str(file), "--out", str(tmp_path / folder), "--runner", runner, "--retries", "50", "--quiet"]
    words += ["--workers", "2"] if runner == "local" else []
    return subprocess.Popen(
        [sys.executable, "-m", "batchscale", *words], env=environment, stdout=subprocess.DEVNULL, start_new_session=True
    )


def wait_for_training(root: Path, driver: subprocess.Popen, since: float) -> bool:
    """Until trials of this very run have come back; False if the run ended before."""
    while driver.poll() is None:
        snapshot = read_status(root)
        # a snapshot counts the steps of its own run only, so one of an earlier run must not be taken for this one's
        if snapshot is not None and snapshot.written_at > since and any(s.trial_steps for s in snapshot.studies):
            return True
        time.sleep(0.02)
    return False


def torture(
    tmp_path: Path, driver_kills: int, worker_kills: int, text: str = EXPERIMENT, first: Path | None = None
) -> int:
    """Kill until both counts are reached, starting again whenever a run ends; gives how many runs ended by themselves.

    With ``first``, what is run goes on from a copy of that tree. Three of four kills come while trials train, the rest
    at any moment, starting up included: kills at plainly random moments on a busy machine nearly all hit processes that
    are still loading.
    """
    chance = random.Random(0)
    left = ["driver"] * driver_kills + ["worker"] * worker_kills
    chance.shuffle(left)
    rounds = in_training = 0

    def begin() -> tuple[subprocess.Popen, float]:
        if first is not None and not (tmp_path / "parts").exists():
            shutil.copytree(first, tmp_path / "parts")
        return start(tmp_path, "parts", text), time.time()

    driver, since = begin()
    while left:
        trained = chance.random() < 0.75 and wait_for_training(tmp_path / "parts", driver, since)
        time.sleep(chance.uniform(0.0, 1.0 if trained else 4.0))
        if driver.poll() is not None:
            assert driver.returncode == 0
            rounds += 1
            (tmp_path / "parts").rename(tmp_path / f"finished-{rounds}")  # another one takes the remaining kills
            driver, since = begin()
            continue
        victims = (
            [psutil.Process(driver.pid)]
            if left[-1] == "driver"
            else psutil.Process(driver.pid).children(recursive=True)
        )
        if not victims:
            continue
        try:
            chance.choice(victims).kill()
        except psutil.NoSuchProcess:  # it ended by itself in this very moment
            continue
        in_training += trained
        if left.pop() == "driver":
            driver.wait()
            driver, since = begin()
    assert driver.wait(timeout=600) == 0
    assert in_training >= (driver_kills + worker_kills) // 3
    return rounds


def compare(tmp_path: Path, rounds: int, text: str = EXPERIMENT, at_least: int = 24) -> None:
    if not (tmp_path / "whole").exists():
        assert start(tmp_path, "whole", text).wait(timeout=600) == 0
    expected = read_values(tmp_path / "whole")
    assert len(expected) >= at_least
    for folder in ["parts", *(f"finished-{n}" for n in range(1, rounds + 1))]:
        assert read_values(tmp_path / folder) == expected


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("full_programs")
def test_a_kill_of_each_leaves_the_records_of_an_uninterrupted_run(tmp_path):
    text = EXPERIMENT.replace("[2, 32, 256]", "[2, 32]")
    rounds = torture(tmp_path, driver_kills=1, worker_kills=1, text=text)
    assert start(tmp_path, "whole", text, runner="inline").wait(timeout=600) == 0
    compare(tmp_path, rounds, at_least=16)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_some_kills_leave_the_records_of_an_uninterrupted_run(tmp_path):
    rounds = torture(tmp_path, driver_kills=5, worker_kills=5)
    compare(tmp_path, rounds)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_some_kills_while_finished_trials_train_longer_leave_the_same_records(tmp_path):
    short, longer = (text.replace(*ALL_THE_WAY) for text in (EXPERIMENT, LONGER))
    assert start(tmp_path, "short", short).wait(timeout=600) == 0
    shutil.copytree(tmp_path / "short", tmp_path / "whole")
    assert start(tmp_path, "whole", longer).wait(timeout=600) == 0
    rounds = torture(tmp_path, driver_kills=5, worker_kills=5, text=longer, first=tmp_path / "short")
    compare(tmp_path, rounds, longer)


@pytest.mark.torture
@pytest.mark.timeout(7200)
def test_a_hundred_kills_of_each_leave_the_records_of_an_uninterrupted_run(tmp_path):
    rounds = torture(tmp_path, driver_kills=100, worker_kills=100)
    compare(tmp_path, rounds)
