"""What users bring along, on Ray: their own Python file, their own training script, a driver outside of the cluster."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ray_cluster import wait_for
from ray_runs import EXPERIMENT, Command
from study_fakes import read_studies, read_values

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
EXAMPLES = Path(__file__).parents[3] / "examples"
SCRIPT = """
goal = "val/error < 0.05"
batch_sizes = [4, 8]
trials = 3
stop = "budget"
[workload]
dataset = "own"
model = "script"
optimizer = "sgd"
[trainer]
command = ["{python}", "{script}"]
resume = true
workers = 2
[budget]
steps = 30
[evaluation]
every = 10
[search]
repeats = 0
space = {{ learning_rate = {{ min_value = 0.01, max_value = 0.5, scale = "LOG_SCALE" }} }}
"""


def on_ray(cluster) -> tuple[str, ...]:
    return ("--runner", "ray", "--ray-address", cluster.address)


def records(out: Path):
    return read_values(out), read_studies(out)


def test_the_users_own_file_trains_on_the_nodes_as_it_does_here(ray_cluster, tmp_path):
    text = (EXAMPLES / "two_moons.toml").read_text()
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        shutil.copy(EXAMPLES / "two_moons.py", tmp_path / name)
    Command(tmp_path / "here", text, "out", "--workers", "2").finish()
    run = Command(tmp_path / "there", text, "out", *on_ray(ray_cluster))
    run.wait_for(lambda snapshot: snapshot.doing, what="workers")
    run.finish()
    assert records(tmp_path / "there" / "out") == records(tmp_path / "here" / "out")


def test_a_script_of_the_users_own_trains_on_the_nodes(ray_cluster, tmp_path):
    script = Path(__file__).parents[2] / "fakes" / "fake_script.py"
    text = SCRIPT.format(python=sys.executable, script=script)
    Command(tmp_path, text, "local").finish()
    Command(tmp_path, text, "ray", *on_ray(ray_cluster)).finish()
    assert len(records(tmp_path / "ray")[0]) >= 6
    assert records(tmp_path / "ray") == records(tmp_path / "local")


def test_a_driver_outside_of_the_cluster_comes_in_by_rays_client(ray_cluster, tmp_path):
    port = 20001
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "ray.util.client.server", "--host", "127.0.0.1", "--port", str(port)),
            *("--mode", "proxy", "--address", ray_cluster.address),
        ],
        env=os.environ,
        start_new_session=True,
    )
    try:
        wait_for(lambda: _listens(port), what="the client's server")
        Command(tmp_path, EXPERIMENT, "ray", "--runner", "ray", "--ray-address", f"ray://127.0.0.1:{port}").finish()
        Command(tmp_path, EXPERIMENT, "local", "--workers", "2").finish()
        assert records(tmp_path / "ray") == records(tmp_path / "local")
    finally:
        server.kill()
        server.wait()


def _listens(port: int) -> bool:
    import socket

    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
