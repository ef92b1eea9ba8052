"""One trial over several processes, as over several hosts: the real command, over the loopback interface."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

STEPS, EVERY = 2000, 100
TRAIN = ["train", "digits/fc_32/nesterov_momentum", "-b", "50", "--set", "learning_rate=0.01", "--set", "momentum=0.9"]
STUDY = Path("digits/fc_32/nesterov_momentum/50")
ROUNDING = 1e-4
"""Two thousand steps at a small learning rate: float32 rounds to 6e-8, and a step passes on what the last one had."""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class Hosts:
    """Processes of one command; each has a folder of its own, as on hosts without a shared disk."""

    def __init__(self, count, folder, *options, steps=STEPS, every=EVERY, join_s=120):
        names = [f"127.0.0.1:{port}" for port in free_ports(count)]
        path = os.pathsep.join(entry for entry in sys.path if entry)
        self.folder, self.processes = folder, []
        for place in range(count):
            cluster = {"processes": names, "process": place, "lost_after_s": 4, "join_s": join_s}
            command = [
                sys.executable,
                "-m",
                "batchscale",
                *TRAIN,
                "--steps",
                str(steps),
                "--evaluate-every",
                str(every),
            ]
            command += [
                "--cluster",
                json.dumps(cluster) if count > 1 else "none",
                "--checkpoint-every",
                "0.2",
                *options,
            ]
            command += ["--out", str(folder / str(place))]
            folder.mkdir(parents=True, exist_ok=True)
            with (folder / f"{place}.log").open("ab") as log:
                process = subprocess.Popen(
                    command, stdout=log, stderr=log, env=os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
                )
            self.processes.append(process)

    def log(self, place):
        return (self.folder / f"{place}.log").read_text()

    def wait(self, seconds=300.0):
        """The exit codes."""
        try:
            return [process.wait(seconds) for process in self.processes]
        finally:
            self.end()

    def end(self):
        for process in self.processes:
            process.kill()
            process.wait()

    def await_rows(self, count, seconds=120.0):
        """Wait until the chief has shown so many measurements since it was started."""
        seen = self.log(0).count("examples/s")
        until = time.monotonic() + seconds
        while self.log(0).count("examples/s") < seen + count:
            assert time.monotonic() < until, self.log(0)
            assert self.processes[0].poll() is None, self.log(0)
            time.sleep(0.02)


def measured(folder, trial=1):
    lines = (folder / "0" / STUDY / str(trial) / "measurements.csv").read_text().splitlines()
    return np.array([[float(cell) for cell in line.split(",")] for line in lines[1:]])


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The trial on one device, exactly summed and not."""
    folder = tmp_path_factory.mktemp("alone")
    for name, options in (("plain", []), ("exact", ["--exact"])):
        hosts = Hosts(1, folder / name, *options)
        assert hosts.wait() == [0], hosts.log(0)
    return folder


@pytest.mark.timeout(400)
def test_two_hosts_give_what_one_gives_and_only_the_chief_writes(alone, tmp_path):
    hosts = Hosts(2, tmp_path)
    assert hosts.wait() == [0, 0], (hosts.log(0), hosts.log(1))
    np.testing.assert_allclose(measured(tmp_path), measured(alone / "plain"), rtol=ROUNDING)
    assert not (tmp_path / "1").exists()
    hardware = json.loads((tmp_path / "0" / STUDY / "1" / "metadata.json").read_text())
    assert '"num_hosts": 2' in json.dumps(hardware)


@pytest.mark.timeout(400)
def test_an_early_stop_is_at_the_same_step_on_both(tmp_path):
    hosts = Hosts(2, tmp_path, "--early-stop", "train/cross_entropy_error < 1.0")
    assert hosts.wait() == [0, 0], (hosts.log(0), hosts.log(1))
    ends = [next(line for line in hosts.log(i).splitlines() if line.startswith("Early stop")) for i in (0, 1)]
    assert ends[0] == ends[1]
    assert 0 < measured(tmp_path)[-1][0] < STEPS


@pytest.mark.timeout(600)
def test_a_killed_host_ends_all_and_the_trial_goes_on_with_another_number_of_hosts(alone, tmp_path):
    hosts = Hosts(2, tmp_path, "--exact")
    hosts.await_rows(3)
    began = time.monotonic()
    hosts.processes[1].kill()
    assert hosts.processes[0].wait(30) == 75
    assert time.monotonic() - began < 10
    assert "process 1 (127.0.0.1:" in hosts.log(0)
    assert "Traceback" not in hosts.log(0)
    hosts.end()
    again = Hosts(1, tmp_path, "--exact", "--devices", "2", "--resume")
    assert again.wait() == [0], again.log(0)
    np.testing.assert_array_equal(measured(tmp_path), measured(alone / "exact"))


EXPERIMENT = """
goal = "val/classification_error < 0.01"
batch_sizes = [16, 64]
trials = 2
workload = "digits/fc_32/sgd"
budget.steps = 60
evaluation.every = 20
search.repeats = 0
run.exact = true
"""


@pytest.mark.timeout(400)
def test_a_whole_run_over_two_hosts_has_the_records_of_one(tmp_path):
    (tmp_path / "e.toml").write_text(EXPERIMENT)
    path = os.pathsep.join(entry for entry in sys.path if entry)
    for name, count in (("two", 2), ("one", 1)):
        names = [f"127.0.0.1:{port}" for port in free_ports(count)]
        processes = []
        for place in range(count):
            cluster = json.dumps({"processes": names, "process": place, "join_s": 120}) if count > 1 else "none"
            command = [sys.executable, "-m", "batchscale", "run", "e.toml", "--runner", "inline", "--cluster", cluster]
            command += ["--out", f"{name}-{place}", "--quiet"]
            processes.append(subprocess.Popen(command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}))
        assert [process.wait(300) for process in processes] == [0] * count
    assert not (tmp_path / "two-1").exists()
    tables = sorted((tmp_path / "one-0").rglob("measurements.csv"))
    assert len(tables) == 4
    for table in tables:
        other = tmp_path / "two-0" / table.relative_to(tmp_path / "one-0")
        assert other.read_bytes() == table.read_bytes()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_four_hosts_with_exact_sums_have_the_bits_of_one(alone, tmp_path):
    hosts = Hosts(4, tmp_path, "--exact")
    assert hosts.wait() == [0] * 4, hosts.log(0)
    np.testing.assert_array_equal(measured(tmp_path), measured(alone / "exact"))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stopped_host_is_missed_after_the_stated_time(tmp_path, stopped):
    hosts = Hosts(2, tmp_path, steps=10**7)
    hosts.await_rows(1)
    began = time.monotonic()
    hosts.processes[stopped].send_signal(signal.SIGSTOP)
    assert hosts.processes[1 - stopped].wait(60) == 75
    assert 3 < time.monotonic() - began < 15
    assert f"process {stopped} (" in hosts.log(1 - stopped)
    hosts.processes[stopped].send_signal(signal.SIGCONT)
    assert hosts.processes[stopped].wait(60) == 75  # nobody is there any more
    hosts.end()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_signal_to_any_host_stops_all_at_one_step_and_they_go_on(alone, tmp_path):
    hosts = Hosts(2, tmp_path, "--exact")
    hosts.await_rows(2)
    hosts.processes[1].send_signal(signal.SIGTERM)
    assert hosts.wait(60) == [75, 75], (hosts.log(0), hosts.log(1))
    again = Hosts(2, tmp_path, "--exact", "--resume")
    assert again.wait() == [0, 0], again.log(0)
    np.testing.assert_array_equal(measured(tmp_path), measured(alone / "exact"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_hosts_that_were_told_different_things_refuse(tmp_path):
    names = [f"127.0.0.1:{port}" for port in free_ports(2)]
    path = os.pathsep.join(entry for entry in sys.path if entry)
    processes = []
    for place, steps in ((0, "10"), (1, "20")):
        cluster = json.dumps({"processes": names, "process": place, "join_s": 60})
        command = [sys.executable, "-m", "batchscale", *TRAIN, "--steps", steps, "--cluster", cluster]
        processes.append(
            subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path})
        )
    for process in processes:
        said = process.communicate(timeout=120)[1]
        assert process.returncode == 2
        assert "has --steps = 20, the chief 10" in said


def has_trial(folder):
    """Whether the chief has begun to record the trial: only then can it be resumed."""
    return any((folder / "0").rglob("journal-*")) or any((folder / "0").rglob("measurements.csv"))


@pytest.mark.torture
@pytest.mark.timeout(7200)
def test_twenty_kills_of_random_processes_change_nothing(alone, tmp_path):
    rng = random.Random(0)
    kills, finished, trial = 0, 0, 0
    while kills < 20 or not finished:
        folder = tmp_path / str(trial)
        resume = ["--resume"] if has_trial(folder) else []
        hosts = Hosts(rng.choice([2, 3]), folder, "--exact", *resume, join_s=30)
        if kills < 20:
            time.sleep(10 * rng.random())  # while they start, meet, compile, train or part
            if all(process.poll() is None for process in hosts.processes):
                rng.choice(hosts.processes).kill()
                kills += 1
        codes = hosts.wait(120)
        # 2: one was killed before it met the others, who name it
        assert set(codes) <= {75, -9, 0, 2}, (codes, hosts.log(0))
        assert all("Traceback" not in hosts.log(place) for place in range(len(codes)))
        if codes[0] == 0:
            np.testing.assert_array_equal(measured(folder), measured(alone / "exact"))
            finished, trial = finished + 1, trial + 1
