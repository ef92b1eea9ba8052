"""A disk that fills up and is freed during a run: the run goes on by itself, and its records are those of any other."""

import contextlib
import errno
import itertools
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fake_engine import METRIC
from small_disks import small_disk
from study_fakes import fake_space, read_studies, read_values, run_fake

from batchscale.errors import StorageError
from batchscale.records.durable import FileSystem
from batchscale.run.loop import RunResult
from batchscale.study import recorder

GROWING_CALLS = ("create", "write", "fsync", "fdatasync", "mkdir", "replace", "sync_directory")
"""The calls that a full disk may refuse."""


def refuse_now_and_then(monkeypatch, seed: int) -> list[str]:
    """Makes the disk full for some calls, then free for more, again and again; writes are torn at any byte."""
    chance, refused, left = random.Random(seed), [], {"full": 0, "free": 0}

    def is_full() -> bool:
        if not left["full"] and not left["free"]:
            left["full"], left["free"] = chance.randint(1, 12), chance.randint(1, 60)
        kind = "full" if left["full"] and not left["free"] else "free"
        left[kind] -= 1
        return kind == "full"

    def faulty(name: str):
        real = getattr(FileSystem, name)

        def call(self, *args):
            if not is_full():
                return real(self, *args)
            refused.append(name)
            if name == "write":
                handle, data = args
                real(self, handle, bytes(data)[: chance.randint(0, len(data) - 1)])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return call

    for name in GROWING_CALLS:
        monkeypatch.setattr(FileSystem, name, faulty(name))
    return refused


@pytest.mark.parametrize("seed", range(6))
def test_torn_journals_and_refused_commits_leave_the_records_of_a_run_with_room(tmp_path, monkeypatch, seed):
    monkeypatch.setattr(recorder, "JOURNAL_AFTER_S", 0.0)  # a journal for every answer
    monkeypatch.setattr("batchscale.run.loop.FULL_DISK_S", 0.0)
    options = {"space": fake_space(0.001, 30.0), "finishers": 2}
    run_fake(tmp_path / "whole", **options)
    refused = refuse_now_and_then(monkeypatch, seed)
    for _ in itertools.count():  # a disk that is full at the very start is refused: then the user runs it again
        with contextlib.suppress(StorageError):
            outcome = run_fake(tmp_path / "full", **options)
            break
    assert outcome.result is RunResult.FINISHED
    assert len(refused) > 3  # which calls these were is a matter of timing
    assert read_values(tmp_path / "full") == read_values(tmp_path / "whole")
    assert read_studies(tmp_path / "full") == read_studies(tmp_path / "whole")
    assert METRIC in next(iter(read_values(tmp_path / "full").values()))["rows"]


EXPERIMENT = """
goal = "val/loss < 1e-9"
batch_sizes = [1, 4, 16]
trials = 6
stop = "budget"
[workload]
dataset = "noisy_quadratic"
model = "quadratic"
optimizer = "momentum"
dataset_options = { dimension = 1000 }
[budget]
steps = 300000
[evaluation]
every = 250
[search]
repeats = 0
"""


def start_run(file: Path, out: Path) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    words = ["run", str(file), "--out", str(out), "--workers", "2", "--quiet"]
    return subprocess.Popen(
        [sys.executable, "-m", "batchscale", *words],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def fill(disk: Path) -> Path:
    """A file that takes all the room, to the last byte."""
    filler = disk / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (2**20, 2**12, 1):
            with contextlib.suppress(OSError):
                while file.write(bytes(size)):
                    pass
    return filler


def wait_for_journals(root: Path, driver: subprocess.Popen) -> None:
    """Until trials are under way."""
    while driver.poll() is None and not list((root / ".batchscale").rglob("journal-*")):
        time.sleep(0.05)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_a_disk_filled_and_freed_ten_times_during_a_run_leaves_the_records_of_one_with_room(tmp_path):
    file = tmp_path / "experiment.toml"
    file.write_text(EXPERIMENT)
    chance = random.Random(0)
    times = 0
    with small_disk(tmp_path / "disk", kilobytes=220_000):
        root = tmp_path / "disk" / "parts"
        driver = start_run(file, root)
        wait_for_journals(root, driver)
        while driver.poll() is None and times < 10:
            filler = fill(tmp_path / "disk")
            time.sleep(chance.uniform(1.0, 8.0))
            filler.unlink()
            times += 1
            time.sleep(chance.uniform(0.5, 2.0))
        _, words = driver.communicate(timeout=1800)
        assert driver.returncode == 0, words
        shutil.copytree(root, tmp_path / "parts")
    assert times == 10
    whole = start_run(file, tmp_path / "whole")
    _, words = whole.communicate(timeout=1800)
    assert whole.returncode == 0, words
    assert len(read_values(tmp_path / "whole")) >= 18
    assert read_values(tmp_path / "parts") == read_values(tmp_path / "whole")
