"""The same command, started again by a supervisor, as by Kubernetes: killed at any time, it comes to its end."""

import os
import random
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from forked_hosts import free_ports
from typer.testing import CliRunner

from batchscale.cli.app import make_app

TRAIN = [
    *("train", "digits/linear/nesterov_momentum", "-b", "50", "--steps", "2000", "--evaluate-every", "100", "--exact"),
    *("--set", "learning_rate=0.01", "--set", "momentum=0.9", "--checkpoint-every", "0.2"),
]
LONG = [{"2000": "100000", "100": "5000"}.get(word, word) for word in TRAIN]  # a process alone is fast
TABLE = Path("digits/linear/nesterov_momentum/50/1/measurements.csv")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]


def measured(folder):
    lines = (folder / TABLE).read_text().splitlines()
    return np.array([[float(cell) for cell in line.split(",")] for line in lines[1:]])


def train_whole(words, folder):
    """The measurements of the trial that nothing happens to."""
    result = CliRunner().invoke(make_app(), [*words, "--out", str(folder), "--cluster", "none"])
    assert result.exit_code == 0, result.output
    return measured(folder)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return train_whole(TRAIN, tmp_path_factory.mktemp("whole"))


class Supervised:
    """A command that a shell starts again until it succeeds; the number of each process is in a file."""

    def __init__(self, folder, name, words, environment=None):
        self.log, self._number = folder / f"{name}.log", folder / f"{name}.pid"
        command = shlex.join([sys.executable, "-m", "batchscale", *map(str, words)])
        number = shlex.quote(str(self._number))
        loop = f'until sh -c \'echo $$ > "$0"; exec "$@"\' {number} {command}; do echo restarted; sleep 0.2; done'
        path = os.pathsep.join(entry for entry in sys.path if entry)
        variables = os.environ | {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"} | (environment or {})
        with self.log.open("wb") as log:
            self.shell = subprocess.Popen(["sh", "-c", loop], stdout=log, stderr=log, env=variables)

    def text(self):
        return self.log.read_text()

    def kill(self):
        """Kill the process of now, if there is one, as an out-of-memory killer would."""
        try:
            os.kill(int(self._number.read_text()), signal.SIGKILL)
        except (OSError, ValueError):
            return False
        return True

    def end(self):
        self.shell.kill()
        self.shell.wait()
        self.kill()


def kill_and_await(members, kills, seed):
    rng = random.Random(seed)
    try:
        while kills and members[0].shell.poll() is None:
            time.sleep(2 + 6 * rng.random())
            kills -= rng.choice(members).kill()
        for member in members:
            assert member.shell.wait(900) == 0, member.text()
    finally:
        for member in members:
            member.end()
    assert all("Traceback" not in member.text() for member in members)


def test_a_command_that_is_killed_and_restarted_comes_to_its_end(tmp_path):
    member = Supervised(tmp_path, "0", [*LONG, "--out", tmp_path / "records", "--cluster", "none"])
    kill_and_await([member], 4, seed=0)
    np.testing.assert_array_equal(measured(tmp_path / "records"), train_whole(LONG, tmp_path / "whole"))
    assert "restarted" in member.text()


def test_hosts_that_are_killed_and_restarted_meet_again_and_come_to_their_end(whole, tmp_path):
    (port,) = free_ports(1)
    members = []
    for place in range(2):  # as the pods of an indexed job
        environment = {"JAX_COORDINATOR_ADDRESS": f"127.0.0.1:{port}", "JAX_NUM_PROCESSES": "2"}
        environment["JOB_COMPLETION_INDEX"] = str(place)
        members.append(Supervised(tmp_path, place, [*TRAIN, "--out", tmp_path / str(place)], environment))
    kill_and_await(members, 4, seed=1)
    np.testing.assert_array_equal(measured(tmp_path / "0"), whole)
    assert not (tmp_path / "1").exists()


@pytest.mark.parametrize("moves", [False, True])
def test_a_trial_with_a_mirror_is_killed_before_and_after_its_first_copy(whole, tmp_path, moves):
    """With ``moves`` every start is on another machine, which has the mirror alone."""
    mirror = f"file://{tmp_path}/mirror"
    for number, wait_s in enumerate((1.0, 3.0, 5.0, 7.0, 9.0, None)):
        out = tmp_path / (str(number) if moves else "records")
        words = [sys.executable, "-m", "batchscale", *TRAIN, "--out", out, "--mirror", mirror, "--cluster", "none"]
        path = os.pathsep.join(entry for entry in sys.path if entry)
        process = subprocess.Popen(
            list(map(str, words)),
            env=os.environ | {"PYTHONPATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            process.communicate(timeout=wait_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        else:
            assert process.returncode == 0
            break
    np.testing.assert_array_equal(measured(out), whole)
    np.testing.assert_array_equal(measured(tmp_path / "mirror" / "tree"), whole)
