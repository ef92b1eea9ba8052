"""Hosts as network namespaces: two of them, joined by a cable that is pulled. Needs root and iproute2."""

import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from batchscale.cli.app import make_app

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2"),
]
TRAIN = [
    *("train", "digits/linear/sgd", "-b", "50", "--set", "learning_rate=0.01", "--steps", "300"),
    *("--evaluate-every", "20", "--exact", "--checkpoint-every", "0.2"),
]
TABLE = "digits/linear/sgd/50/1/measurements.csv"
LOST_AFTER_S = 5
LOG = logging.getLogger(__name__)  # shown by pytest --log-cli-level INFO


def ip(*words):
    return subprocess.run(["ip", *words], check=False, capture_output=True, text=True)


@pytest.fixture
def hosts():
    """Two namespaces with an address each, and the name of the machine pointing to it."""
    names = [f"bs{os.getpid()}{letter}" for letter in "ab"]
    made = [ip("netns", "add", name) for name in names]
    if any(one.returncode for one in made):
        pytest.skip(f"network namespaces cannot be made here: {made[0].stderr.strip()}")
    ip("link", "add", "left", "netns", names[0], "type", "veth", "peer", "name", "right", "netns", names[1])
    for place, (name, cable) in enumerate(zip(names, ("left", "right"), strict=True)):
        ip("-n", name, "addr", "add", f"10.77.0.{place + 1}/24", "dev", cable)
        ip("-n", name, "link", "set", cable, "up")
        ip("-n", name, "link", "set", "lo", "up")
        folder = Path("/etc/netns") / name
        folder.mkdir(parents=True)
        (folder / "hosts").write_text(f"127.0.0.1 localhost\n10.77.0.{place + 1} {os.uname().nodename}\n")
    yield names
    for name in names:
        ip("netns", "del", name)
        shutil.rmtree(Path("/etc/netns") / name, ignore_errors=True)


def start(hosts, folder, *options):
    path = os.pathsep.join(entry for entry in sys.path if entry)
    processes = []
    for place, name in enumerate(hosts):
        cluster = {"processes": ["10.77.0.1:8476", "10.77.0.2:8476"], "process": place, "lost_after_s": LOST_AFTER_S}
        command = ["ip", "netns", "exec", name, sys.executable, "-m", "batchscale", *TRAIN, *options]
        command += ["--cluster", json.dumps(cluster), "--out", str(folder / str(place))]
        with (folder / f"{place}.log").open("ab") as log:
            environment = os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
            processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment))
    return processes


def end(processes):
    for process in processes:
        process.kill()
        process.wait()


def await_row(folder, processes, seconds=600):
    until = time.monotonic() + seconds
    while "examples/s" not in (folder / "0.log").read_text():
        assert time.monotonic() < until, (folder / "0.log").read_text()
        assert processes[0].poll() is None, (folder / "0.log").read_text()
        time.sleep(0.05)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What one host measures that nothing happens to."""
    folder = tmp_path_factory.mktemp("alone")
    result = CliRunner().invoke(make_app(), [*TRAIN, "--out", str(folder), "--cluster", "none"])
    assert result.exit_code == 0, result.output
    return (folder / TABLE).read_bytes()


CHIEF, OTHER = "process 0 (the chief, 10.77.0.1:8476)", "process 1 (10.77.0.2:8476)"
SILENT, CLOSED = "sent nothing for", "closed its connection"


def pull_cable(hosts, _process):
    ip("-n", hosts[1], "link", "set", "right", "down")


def kill(_hosts, process):
    process.kill()


def freeze(_hosts, process):
    process.send_signal(signal.SIGSTOP)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("happen", "place", "said", "seconds"),
    [
        (pull_cable, 1, {0: f"{OTHER} {SILENT}", 1: f"{CHIEF} {SILENT}"}, (LOST_AFTER_S - 1.5, LOST_AFTER_S + 10)),
        (kill, 1, {0: f"{OTHER} {CLOSED}"}, (0, LOST_AFTER_S - 0.5)),
        (kill, 0, {1: f"{CHIEF} {CLOSED}"}, (0, LOST_AFTER_S - 0.5)),
        (freeze, 1, {0: f"{OTHER} {SILENT}"}, (LOST_AFTER_S - 1.5, LOST_AFTER_S + 10)),
        (freeze, 0, {1: f"{CHIEF} {SILENT}"}, (LOST_AFTER_S - 1.5, LOST_AFTER_S + 10)),
    ],
)
def test_a_host_that_is_lost_is_named_in_the_stated_time_and_the_trial_continues(
    alone, hosts, tmp_path, happen, place, said, seconds
):
    processes = start(hosts, tmp_path)
    try:
        await_row(tmp_path, processes)
        began = time.monotonic()
        happen(hosts, processes[place])
        for other in said:
            assert processes[other].wait(60) == 75
            noticed_s = time.monotonic() - began
            LOG.info("%s %d: process %d noticed after %.1f s", happen.__name__, place, other, noticed_s)
            assert seconds[0] < noticed_s < seconds[1]
    finally:
        end(processes)
    for other, words in said.items():
        assert words in (tmp_path / f"{other}.log").read_text()
    ip("-n", hosts[1], "link", "set", "right", "up")
    processes = start(hosts, tmp_path)
    try:
        assert [process.wait(600) for process in processes] == [0, 0], (tmp_path / "0.log").read_text()
    finally:
        end(processes)
    assert (tmp_path / "0" / TABLE).read_bytes() == alone
    assert not (tmp_path / "1").exists()
