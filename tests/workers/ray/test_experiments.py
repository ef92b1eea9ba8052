"""Whole experiments on Ray: nodes come and go, other runners before and after; always the records of a local run."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ray_runs import LONG_TRIAL, LONGER, Command
from study_fakes import read_studies, read_values

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
LOCALLY = ("--workers", "2")


@pytest.fixture(scope="module")
def local_records(tmp_path_factory):
    """What a local run without interruption records."""
    folder = tmp_path_factory.mktemp("local")
    Command(folder, LONGER, "out", *LOCALLY).finish()
    found = read_values(folder / "out"), read_studies(folder / "out")
    assert len(found[0]) >= 48
    return found


def on_ray(cluster) -> tuple[str, ...]:
    return ("--runner", "ray", "--ray-address", cluster.address)


def test_a_node_killed_in_the_middle_and_another_joining_change_no_record(ray_cluster, local_records, tmp_path):
    second = ray_cluster.add(1)
    run = Command(tmp_path, LONGER, "parts", *on_ray(ray_cluster))
    run.wait_for(lambda snapshot: snapshot.workers == 3, what="workers on both nodes")
    run.wait_for_training()
    ray_cluster.kill(second)
    run.wait_for(lambda snapshot: snapshot.workers == 2, what="the loss of a node")
    third = ray_cluster.add(1)
    run.wait_for(lambda snapshot: snapshot.workers == 3, what="a worker on the new node")
    run.finish()
    ray_cluster.kill(third)
    assert (read_values(run.out), read_studies(run.out)) == local_records


def test_a_run_goes_from_local_to_ray_and_back_with_the_same_records(ray_cluster, local_records, tmp_path):
    places = [LOCALLY, on_ray(ray_cluster), LOCALLY, on_ray(ray_cluster)]
    for place, number in zip(places[:3], (signal.SIGINT, signal.SIGINT, signal.SIGTERM), strict=True):
        run = Command(tmp_path, LONGER, "parts", *place)
        run.wait_for_training()
        run.stop(number)
    Command(tmp_path, LONGER, "parts", *places[3]).finish()
    assert (read_values(tmp_path / "parts"), read_studies(tmp_path / "parts")) == local_records


def test_states_at_a_remote_path_take_the_place_of_a_shared_folder(ray_cluster, tmp_path):
    """A run is stopped after a state was sent away: another goes on from there, to the records of a local run."""
    states = tmp_path / "states"
    text = f'{LONG_TRIAL}[run.ray]\ncheckpoints = "file://{states}"\n'
    Command(tmp_path, text, "whole", "--workers", "1").finish()
    run = Command(tmp_path, text, "parts", *on_ray(ray_cluster), "--workers", "1")
    run.wait_for(lambda _snapshot: any(states.glob("*/*.npz")), what="a state at the remote path")
    run.stop()
    assert [path.relative_to(states) for path in states.rglob("*.npz")] == [Path("16/1.npz")]
    assert not (run.out / ".batchscale" / "checkpoints").exists()
    again = Command(tmp_path, text, "parts", *on_ray(ray_cluster), "--workers", "1")
    again.finish()
    assert f"in file://{states} on nodes that reach it" in again.log.read_text()
    assert not list(states.rglob("*.npz")), "states of ended trials are removed"
    assert (read_values(run.out), read_studies(run.out)) == (
        read_values(tmp_path / "whole"),
        read_studies(tmp_path / "whole"),
    )


def test_ctrl_c_status_and_the_closing_words_are_those_of_a_local_run(ray_cluster, local_records, tmp_path):
    run = Command(tmp_path, LONGER, "parts", *on_ray(ray_cluster))
    run.wait_for(lambda snapshot: any(worker.activity == "training" for worker in snapshot.doing), what="news")
    assert status(run.out)["state"] == "running"
    assert all(worker.worker.startswith("ray-") for worker in run.snapshot.doing)
    assert run.stop() < 10
    assert status(run.out)["state"] == "stopped"
    assert f"--runner ray --ray-address {ray_cluster.address}" in run.log.read_text()
    again = Command(tmp_path, LONGER, "parts", *on_ray(ray_cluster))
    again.finish()
    assert "on nodes that see this folder" in again.log.read_text()
    assert status(run.out)["state"] == "finished"
    assert (read_values(run.out), read_studies(run.out)) == local_records


def status(out) -> dict:
    words = [sys.executable, "-m", "batchscale", "status", str(out), "--json"]
    return json.loads(subprocess.run(words, capture_output=True, check=True, timeout=60).stdout)
