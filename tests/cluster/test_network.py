"""Hosts as network namespaces: two of them, joined by a cable that is pulled. Needs root and iproute2."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root and iproute2"),
]
TRAIN = ["train", "digits/fc_32/sgd", "-b", "50", "--set", "learning_rate=0.01", "--exact", "--checkpoint-every", "0.2"]
LOST_AFTER_S = 5


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


def start(hosts, folder, *options, steps=10**7):
    path = os.pathsep.join(entry for entry in sys.path if entry)
    processes = []
    for place, name in enumerate(hosts):
        cluster = {"processes": ["10.77.0.1:8476", "10.77.0.2:8476"], "process": place, "lost_after_s": LOST_AFTER_S}
        command = ["ip", "netns", "exec", name, sys.executable, "-m", "batchscale", *TRAIN, "--steps", str(steps)]
        command += ["--evaluate-every", "100", "--cluster", json.dumps(cluster), "--out", str(folder / str(place))]
        with (folder / f"{place}.log").open("ab") as log:
            environment = os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
            processes.append(subprocess.Popen([*command, *options], stdout=log, stderr=log, env=environment))
    return processes


def await_row(folder, processes, seconds=120):
    until = time.monotonic() + seconds
    while "examples/s" not in (folder / "0.log").read_text():
        assert time.monotonic() < until, (folder / "0.log").read_text()
        assert processes[0].poll() is None, (folder / "0.log").read_text()
        time.sleep(0.05)


@pytest.mark.timeout(400)
def test_a_cable_that_is_pulled_is_noticed_on_both_sides_in_the_stated_time(hosts, tmp_path):
    processes = start(hosts, tmp_path)
    try:
        await_row(tmp_path, processes)
        began = time.monotonic()
        ip("-n", hosts[1], "link", "set", "right", "down")
        assert [process.wait(60) for process in processes] == [75, 75]
        assert LOST_AFTER_S - 1.5 < time.monotonic() - began < LOST_AFTER_S + 10
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert "process 1 (10.77.0.2:8476) was not heard of for" in (tmp_path / "0.log").read_text()
    assert "process 0 (the chief, 10.77.0.1:8476) was not heard of for" in (tmp_path / "1.log").read_text()
    assert not (tmp_path / "1").exists()
