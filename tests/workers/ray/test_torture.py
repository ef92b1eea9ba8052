"""SIGKILLs of actors, drivers and whole nodes at random moments, against an uninterrupted local run."""

import contextlib
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from ray_cluster import wait_for
from study_fakes import read_values

from batchscale.run.status import read_status

pytestmark = [pytest.mark.ray, pytest.mark.timeout(3600)]
DRIVE = Path(__file__).parents[2] / "fakes" / "run_fake_experiment.py"
WORK = ("sleep_s=0.05", "trials=60")


def drive(out: Path, *words: str) -> subprocess.Popen:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    with out.with_suffix(".log").open("ab") as log:
        command = [sys.executable, str(DRIVE), str(out), *WORK, *words]
        return subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)


def actors_of(node) -> list[psutil.Process]:
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):  # of which zombies are a kind
        for child in psutil.Process(node.all_processes["raylet"][0].process.pid).children():
            if child.status() != psutil.STATUS_ZOMBIE and child.cmdline()[:1] == ["ray::WorkerActor"]:
                found.append(child)
    return found


def torture(cluster, folder: Path, kills: dict[str, int]) -> tuple[int, dict[str, int]]:
    """Kill until all counts are reached, beginning anew whenever a run ends; the runs that ended, and what was hit."""
    chance = random.Random(0)
    left = [kind for kind, count in kills.items() for _ in range(count)]
    chance.shuffle(left)
    words = ("runner=ray", f"ray_address={cluster.address}")
    rounds, hit = 0, dict.fromkeys(kills, 0)
    out = folder / "parts"
    driver, since = drive(out, *words), time.time()

    def has_trained() -> bool:
        snapshot = read_status(out)
        trained = snapshot is not None and snapshot.written_at > since and any(s.trial_steps for s in snapshot.studies)
        return trained or driver.poll() is not None

    while left:
        if chance.random() < 0.75:
            wait_for(has_trained, 300, "training")
        time.sleep(chance.uniform(0.0, 1.0))
        if driver.poll() is not None:
            assert driver.returncode == 0, out.with_suffix(".log").read_text()[-3000:]
            rounds += 1
            out.rename(folder / f"finished-{rounds}")
            driver, since = drive(out, *words), time.time()
            continue
        kind = left[-1]
        if kind == "actor":
            actors = [actor for node in cluster.nodes for actor in actors_of(node)]
            if not actors:
                continue
            chance.choice(actors).kill()
        elif kind == "raylet":
            cluster.kill(chance.choice(cluster.nodes))
            cluster.add(2)
        else:
            driver.kill()
            driver.wait()
            driver, since = drive(out, *words), time.time()
        hit[left.pop()] += 1
        (folder / "kills.log").write_text(f"{hit} in {rounds + 1} runs\n")
    assert driver.wait(timeout=600) == 0, out.with_suffix(".log").read_text()[-3000:]
    return rounds, hit


def compare(folder: Path, rounds: int) -> None:
    assert drive(folder / "whole").wait(timeout=600) == 0
    expected = read_values(folder / "whole")
    assert len(expected) >= 120
    for name in ["parts", *(f"finished-{number}" for number in range(1, rounds + 1))]:
        assert read_values(folder / name) == expected


def test_a_few_kills_of_each_leave_the_records_of_an_uninterrupted_run(ray_cluster, tmp_path):
    rounds, _ = torture(ray_cluster, tmp_path, {"actor": 3, "driver": 1, "raylet": 1})
    compare(tmp_path, rounds)


@pytest.mark.torture
def test_many_kills_of_each_leave_the_records_of_an_uninterrupted_run(ray_cluster, tmp_path):
    ray_cluster.add(2)
    rounds, hit = torture(ray_cluster, tmp_path, {"actor": 50, "driver": 10, "raylet": 5})
    compare(tmp_path, rounds)
    assert hit == {"actor": 50, "driver": 10, "raylet": 5}
