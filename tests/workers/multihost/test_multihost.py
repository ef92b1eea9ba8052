"""One trial over several processes, as over several hosts: the real command, over the loopback interface."""

import json
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from forked_hosts import Hosts
from typer.testing import CliRunner

from batchscale.cli.app import make_app

STEPS, EVERY = 2000, 100
TRAIN = [
    *("train", "digits/linear/nesterov_momentum", "-b", "50", "--steps", str(STEPS), "--evaluate-every", str(EVERY)),
    *("--set", "learning_rate=0.01", "--set", "momentum=0.9", "--checkpoint-every", "0.2"),
]
EARLY = ["--early-stop", "train/cross_entropy_error < 0.5"]
STUDY = Path("digits/linear/nesterov_momentum/50")
ROUNDING = 1e-4
"""Some hundred steps at a small learning rate: float32 rounds to 6e-8, and a step passes on what the last one had."""


def measured(folder, trial=1):
    lines = (folder / "0" / STUDY / str(trial) / "measurements.csv").read_text().splitlines()
    return np.array([[float(cell) for cell in line.split(",")] for line in lines[1:]])


def run_here(*words):
    """The command in this process: one host with one device."""
    result = CliRunner().invoke(make_app(), [*map(str, words), "--cluster", "none"])
    assert result.exit_code == 0, result.output


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The trial on one device: all of it with exact sums, and to its early stop without."""
    folder = tmp_path_factory.mktemp("alone")
    run_here(*TRAIN, "--exact", "--out", folder / "exact" / "0")
    run_here(*TRAIN, *EARLY, "--out", folder / "early" / "0")
    return folder


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two hosts that have trained to an early stop."""
    hosts = Hosts(2, tmp_path_factory.mktemp("pair"), [*TRAIN, *EARLY])
    assert hosts.wait() == [0, 0], hosts.logs()
    return hosts


@pytest.mark.timeout(400)
def test_two_hosts_give_what_one_gives_and_only_the_chief_writes(alone, pair):
    np.testing.assert_allclose(measured(pair.folder), measured(alone / "early"), rtol=ROUNDING)
    assert not (pair.folder / "1").exists()
    hardware = json.loads((pair.folder / "0" / STUDY / "1" / "metadata.json").read_text())
    assert '"num_hosts": 2' in json.dumps(hardware)


@pytest.mark.timeout(400)
def test_an_early_stop_is_at_the_same_step_on_both(pair):
    ends = [next(line for line in log.splitlines() if line.startswith("Early stop")) for log in pair.logs()]
    assert ends[0] == ends[1]
    assert 0 < measured(pair.folder)[-1][0] < STEPS


@pytest.mark.timeout(1500)
def test_a_killed_host_ends_all_and_the_trial_continues_with_another_number_of_hosts(alone, tmp_path):
    hosts = Hosts(2, tmp_path, [*TRAIN, "--exact"])
    hosts.await_rows(3)
    began = time.monotonic()
    hosts.signal(1, signal.SIGKILL)
    assert hosts.wait_for(0, 120) == 75
    assert time.monotonic() - began < 10
    assert "process 1 (127.0.0.1:" in hosts.log(0)
    assert "Traceback" not in hosts.log(0)
    hosts.end()
    run_here(*TRAIN, "--exact", "--out", tmp_path / "0")
    np.testing.assert_array_equal(measured(tmp_path), measured(alone / "exact"))


EXPERIMENT = f"""
goal = "val/classification_error < 0.01"
batch_sizes = [50]
trials = 2
workload = "digits/linear/nesterov_momentum"
evaluation.every = {EVERY}
search.repeats = 0
run.exact = true
"""


def run_words(folder, more=""):
    file = folder / "e.toml"
    file.write_text(EXPERIMENT + (more if "budget" in more else f"budget.steps = {STEPS // 10}\n{more}"))
    return ["run", file, "--runner", "inline", "--quiet"]


def tables_of(folder):
    return {path.relative_to(folder): path.read_bytes() for path in (folder / "0").rglob("measurements.csv")}


@pytest.fixture(scope="module")
def run_alone(tmp_path_factory):
    """What a run on one host has measured."""
    folder = tmp_path_factory.mktemp("run")
    run_here(*run_words(folder), "--out", folder / "0")
    tables = tables_of(folder)
    assert len(tables) == 2
    return tables


@pytest.mark.timeout(400)
def test_a_whole_run_over_two_hosts_has_the_records_of_one(run_alone, tmp_path):
    hosts = Hosts(2, tmp_path, run_words(tmp_path))
    assert hosts.wait() == [0, 0], hosts.logs()
    assert not (tmp_path / "1").exists()
    assert tables_of(tmp_path) == run_alone


ADAPTIVE = """
goal = "val/classification_error < 0.2"
batch_sizes = "auto"
trials = "auto"
workload = "digits/linear/nesterov_momentum"
evaluation.every = 20
search.repeats = 0
run.exact = true
budget.steps = 200
adaptive = { smallest = 25, largest = 200, first_trials = 4, most_trials = 6, factor = 1.1 }
"""


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_every_round_of_an_adaptive_run_is_trained_by_both_hosts(tmp_path):
    """Rounds end by themselves: new sizes, then more trials, then nothing is left to measure."""
    file = tmp_path / "e.toml"
    file.write_text(ADAPTIVE)
    words = ["run", file, "--runner", "inline", "--quiet"]
    run_here(*words, "--out", tmp_path / "alone" / "0")
    (tmp_path / "two").mkdir()
    hosts = Hosts(2, tmp_path / "two", words)
    assert hosts.wait() == [0, 0], hosts.logs()
    alone = tables_of(tmp_path / "alone")
    assert len({path.parts[-3] for path in alone}) == 4
    assert tables_of(tmp_path / "two") == alone
    choices = [json.loads(next((tmp_path / name / "0").rglob("study.json")).read_text()) for name in ("alone", "two")]
    assert choices[0]["batchscale"]["choices"] == choices[1]["batchscale"]["choices"]
    (tmp_path / "stopped").mkdir()
    hosts = Hosts(2, tmp_path / "stopped", words)
    await_measurements(hosts)
    hosts.signal(1, signal.SIGTERM)
    assert hosts.wait() == [75, 75], hosts.logs()  # the second host waits for no further round
    run_here(*words, "--out", tmp_path / "stopped" / "0")
    assert tables_of(tmp_path / "stopped") == alone


LONG = f"budget.steps = {10 * STEPS}\n"


@pytest.fixture(scope="module")
def long_run_alone(tmp_path_factory):
    """What a longer run on one host has measured: long enough to lose a host on the way."""
    folder = tmp_path_factory.mktemp("long")
    run_here(*run_words(folder, LONG), "--out", folder / "0")
    return tables_of(folder)


def await_measurements(hosts):
    """Wait until a first trial has measurements, but has not ended."""
    until = time.monotonic() + 300
    while not any((hosts.folder / "0").rglob("journal-*")):
        assert time.monotonic() < until, hosts.logs()
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(("count", "devices"), [(1, 2), (3, 1), (2, 2)])
def test_a_trial_of_two_hosts_continues_with_other_hosts_and_devices(alone, tmp_path, count, devices):
    hosts = Hosts(2, tmp_path, [*TRAIN, "--exact"])
    hosts.await_rows(3)
    hosts.signal(0, signal.SIGKILL)
    assert hosts.wait_for(1, 120) == 75
    hosts.end()
    again = Hosts(count, tmp_path, [*TRAIN, "--exact", "--devices", devices])
    assert again.wait() == [0] * count, again.logs()
    np.testing.assert_array_equal(measured(tmp_path), measured(alone / "exact"))


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_four_hosts_with_exact_sums_have_the_bits_of_one(alone, tmp_path):
    hosts = Hosts(4, tmp_path, [*TRAIN, "--exact"])
    assert hosts.wait() == [0] * 4, hosts.logs()
    np.testing.assert_array_equal(measured(tmp_path), measured(alone / "exact"))


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("stopped", [0, 1])
def test_a_stopped_host_is_lost_after_the_stated_time(tmp_path, stopped):
    hosts = Hosts(2, tmp_path, [*TRAIN, "--steps", 10**7])
    hosts.await_rows(1)
    began = time.monotonic()
    hosts.signal(stopped, signal.SIGSTOP)
    assert hosts.wait_for(1 - stopped, 60) == 75
    assert 3 < time.monotonic() - began < 15
    assert f"process {stopped} (" in hosts.log(1 - stopped)
    hosts.signal(stopped, signal.SIGCONT)
    assert hosts.wait_for(stopped, 60) == 75  # nobody is there any more
    hosts.end()


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_signal_to_any_host_stops_all_at_one_step_and_they_continue(alone, tmp_path):
    hosts = Hosts(2, tmp_path, [*TRAIN, "--exact"])
    hosts.await_rows(2)
    hosts.signal(1, signal.SIGTERM)
    assert hosts.wait(120) == [75, 75], hosts.logs()
    again = Hosts(2, tmp_path, [*TRAIN, "--exact"])
    assert again.wait() == [0, 0], again.logs()
    np.testing.assert_array_equal(measured(tmp_path), measured(alone / "exact"))


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_hosts_with_different_options_are_rejected(tmp_path):
    hosts = Hosts(2, tmp_path, lambda place: [*TRAIN, "--steps", 10 + 10 * place])
    assert hosts.wait(240) == [2, 2]
    assert all("has --steps = '20', the chief '10'" in " ".join(log.split()) for log in hosts.logs()), hosts.logs()


@pytest.mark.torture
@pytest.mark.timeout(7200)
def test_twenty_kills_of_random_processes_change_nothing(alone, tmp_path):
    rng = random.Random(0)
    kills, finished, trial = 0, 0, 0
    while kills < 20 or not finished:
        folder = tmp_path / str(trial)
        hosts = Hosts(rng.choice([2, 3]), folder, [*TRAIN, "--exact"], join_s=30)
        if kills < 20:
            if kills % 2:  # while they train, if they come to it
                shown = hosts.count_rows() + rng.randint(1, 3)
                while hosts.count_rows() < shown and all(process.exitcode is None for process in hosts.processes):
                    time.sleep(0.01)
                time.sleep(0.3 * rng.random())
            else:
                time.sleep(8 * rng.random())  # while they start, meet, compile, train or part
            if all(process.exitcode is None for process in hosts.processes):
                rng.choice(hosts.processes).kill()
                kills += 1
        codes = hosts.wait(120)
        # 2: one was killed before it met the others, who name it
        assert set(codes) <= {75, -9, 0, 2}, (codes, hosts.log(0))
        assert all("Traceback" not in log for log in hosts.logs())
        if codes[0] == 0:
            np.testing.assert_array_equal(measured(folder), measured(alone / "exact"))
            finished, trial = finished + 1, trial + 1
