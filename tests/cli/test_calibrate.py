import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import BatchscaleError, RunError, SpecError
from batchscale.planning.step_times import read_step_times
from batchscale.training.calibration import OutOfMemoryError, StepTiming

QUICK = ["--repetitions", "3", "--seconds", "0.02"]


def run(*arguments):
    result = CliRunner().invoke(make_app(), ["calibrate", *(str(argument) for argument in arguments)])
    if isinstance(result.exception, BatchscaleError):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.stdout


def test_step_times_are_printed_and_added_to_the_file(tmp_path):
    out = tmp_path / "steps.csv"
    target = "noisy_quadratic/quadratic/sgd"
    rows = json.loads(run(target, "--batch-sizes", "4,64", "--out", out, "--json", *QUICK))["step_times"]
    run(target, "--batch-sizes", "16", "--out", out, *QUICK)
    times = read_step_times(out)
    assert [one.batch_size for one in times] == [4, 64, 16]
    assert times[0].step_time_s == pytest.approx(rows[0]["step_time_s"])
    assert all(one.workload == target and one.low <= one.step_time_s <= one.high for one in times)


@pytest.mark.parametrize("sizes", ["99999999999999", "9" * 5000, "0", "8,", "-1", "٣"])
def test_batch_sizes_that_cannot_be_are_refused(tmp_path, sizes):
    with pytest.raises(BatchscaleError, match="whole numbers from 1 to 1,099,511,627,776"):
        run("noisy_quadratic/quadratic/sgd", "--batch-sizes", sizes, "--out", tmp_path / "s.csv", *QUICK)
    assert not (tmp_path / "s.csv").exists()


def test_a_batch_larger_than_the_training_set_is_refused(tmp_path):
    with pytest.raises(SpecError, match="must not exceed the training set"):
        run("digits/linear/sgd", "--batch-sizes", "99999999", "--out", tmp_path / "s.csv", *QUICK)


def test_each_step_time_is_written_when_it_is_measured_and_a_limit_replaces_the_last(tmp_path, monkeypatch):
    out = tmp_path / "steps.csv"
    written = []

    def time_steps(_workload, size, *_):
        written.append([time.batch_size for time in read_step_times(out)] if out.exists() else [])
        if size == 64:
            raise OutOfMemoryError("Batch size 64 does not fit.")
        return StepTiming(size, (0.1, 0.2, 0.3), 5, 1.0)

    monkeypatch.setattr("batchscale.training.calibration.time_steps", time_steps)
    command = ["calibrate", "noisy_quadratic/quadratic/sgd", "--batch-sizes", "4,16,64,256", "--out", str(out)]
    answer = CliRunner().invoke(make_app(), command)
    assert answer.exit_code == 0, answer.output
    assert written == [[], [4], [4, 16]]
    assert [(time.batch_size, time.max_batch_per_device) for time in read_step_times(out)] == [(4, None), (16, 16)]
    assert "Timing batch size 16 …" in answer.stderr and "200 ms per step" in answer.stderr


def test_more_devices_than_there_are_are_refused(tmp_path):
    with pytest.raises(RunError, match="Trials are spread over the devices that there are"):
        run("noisy_quadratic/quadratic/sgd", "--batch-sizes", "4", "--devices", 4096, "--out", tmp_path / "s.csv")
    assert not (tmp_path / "s.csv").exists()


@pytest.mark.slow  # tests/training/test_devices.py has a step over several devices
@pytest.mark.timeout(240)
def test_a_step_over_two_devices_is_timed_in_a_process_of_its_own(tmp_path):
    out = tmp_path / "s.csv"
    command = [sys.executable, "-m", "batchscale", "calibrate", "digits/fc_64/sgd", "--batch-sizes", "64"]
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    subprocess.run([*command, "--devices", "2", "--out", str(out), *QUICK], check=True, env=environment)
    (found,) = read_step_times(out)
    assert (found.hosts, found.devices_per_host, found.batch_size) == (1, 2, 64)
    assert found.step_time_s > 0


def test_batch_sizes_must_come_from_somewhere(tmp_path):
    with pytest.raises(SpecError, match="needs --batch-sizes"):
        run("noisy_quadratic/quadratic/sgd", "--out", tmp_path / "s.csv")
