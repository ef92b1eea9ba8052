"""A run without an address: a cluster of its own, reachable from this machine alone and gone with the run."""

import os
import shutil
import signal
import stat
import tempfile
from pathlib import Path

import psutil
import pytest
from protocol_fakes import read_values
from ray_cluster import wait_for
from ray_runs import EXPERIMENT, LONG_TRIAL, Command

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
ON_RAY = ("--runner", "ray", "--workers", "2")


@pytest.fixture(autouse=True)
def _own_temporary_files(monkeypatch):
    """Short, as paths of sockets must be, and empty, so that what is left behind is seen."""
    folder = tempfile.mkdtemp(prefix="t-", dir="/tmp")
    monkeypatch.setenv("TMPDIR", folder)
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)
    yield
    shutil.rmtree(folder)


def family(run: Command) -> list[psutil.Process]:
    """All processes of the cluster, which end up as children of its keeper."""
    return psutil.Process(run.process.pid).children(recursive=True)


def listening(process: psutil.Process) -> list:
    return [found.laddr for found in process.net_connections("inet") if found.status == psutil.CONN_LISTEN]


def private_folders() -> list[Path]:
    return list(Path(os.environ["TMPDIR"]).glob("bs-ray-*"))


def start_and_look(tmp_path: Path, text: str = EXPERIMENT) -> tuple[Command, list[psutil.Process]]:
    run = Command(tmp_path, text, "parts", *ON_RAY)
    run.wait_for_training()
    return run, family(run)


def test_it_listens_on_loopback_asks_for_a_token_and_ends_with_the_driver(tmp_path):
    run, processes = start_and_look(tmp_path)
    names = {process.name() for process in processes}
    assert {"gcs_server", "raylet"} <= names
    addresses = [address for process in [psutil.Process(run.process.pid), *processes] for address in listening(process)]
    assert len(addresses) >= 5
    assert {address.ip.removeprefix("::ffff:") for address in addresses} == {"127.0.0.1"}
    # Ray starts the process of its dashboard whatever one says; without the dashboard it serves nobody
    boards = [process for process in processes if "dashboard/dashboard.py" in " ".join(process.cmdline())]
    assert [address for process in boards for address in listening(process)] == []
    for process in processes:
        if process.name() in ("gcs_server", "raylet"):
            variables = process.environ()
            assert variables["RAY_AUTH_MODE"] == "token" and len(variables["RAY_AUTH_TOKEN"]) == 64
            assert variables["RAY_USAGE_STATS_ENABLED"] == "0"
    (folder,) = private_folders()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    run.process.kill()
    run.process.wait()
    _, alive = psutil.wait_procs(processes, timeout=15)
    assert alive == []
    assert private_folders() == []


def test_a_run_that_is_stopped_by_ctrl_c_and_continued_leaves_a_local_runs_records_and_no_process(tmp_path):
    run, processes = start_and_look(tmp_path)
    assert run.stop() < 10
    assert psutil.wait_procs(processes, timeout=1)[1] == []
    Command(tmp_path, EXPERIMENT, "parts", *ON_RAY).finish()
    assert private_folders() == []
    Command(tmp_path, EXPERIMENT, "whole", "--workers", "2").finish()
    assert read_values(tmp_path / "parts") == read_values(tmp_path / "whole")


def test_ctrl_c_while_the_cluster_starts_ends_at_once(tmp_path):
    run = Command(tmp_path, EXPERIMENT, "parts", *ON_RAY)
    wait_for(lambda: any("keeper" in " ".join(child.cmdline()) for child in family(run)), what="the keeper")
    wait_for(lambda: any(child.name() == "gcs_server" for child in family(run)), what="the cluster's first process")
    processes = family(run)
    assert run.stop(signal.SIGINT) < 10
    assert psutil.wait_procs(processes, timeout=15)[1] == []
    assert private_folders() == []


def test_a_cluster_that_lost_its_node_ends_the_run_with_a_message_and_leaves_nothing(tmp_path):
    run, processes = start_and_look(tmp_path, LONG_TRIAL)  # not over before Ray notices
    next(process for process in processes if process.name() == "raylet").kill()
    assert run.process.wait(timeout=120) != 0
    assert "It was lost: no node of it is left" in " ".join(run.log.read_text().split())
    assert psutil.wait_procs(processes, timeout=15)[1] == []
    assert private_folders() == []
