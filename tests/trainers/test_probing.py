"""A trainer's step times, from what it reports."""

import json

import pytest
from trainer_fakes import environment, experiment_text, make_trainer_plan
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import RunError
from batchscale.planning.step_times import read_step_times
from batchscale.trainers.probing import TimedStep, separate, time_trainer
from batchscale.trainers.reports import Stamp


def timing(folder, *words, repetitions=4, seconds=0.01, steps=100):
    plan = make_trainer_plan(*words, folder=folder, steps=steps)
    return time_trainer(plan.experiment.trainer, plan.studies[0], repetitions, seconds, environment())


def test_a_script_that_sleeps_between_measurements_takes_that_long_a_step(tmp_path):
    found = timing(tmp_path, "sleep_s=0.004")
    assert len(found.step_times_s) == 4 and found.batch_size == 8
    assert found.steps_per_repetition % 10 == 0
    assert all(one >= 0.004 * 0.9 for one in found.step_times_s)  # a busy machine makes it longer, never shorter
    assert found.warm_up_s > 0


def test_too_few_measurements_are_refused_with_the_reason(tmp_path):
    with pytest.raises(RunError, match=r"Found 2 at batch size 8: that is all its budget has"):
        timing(tmp_path, "sleep_s=0.004", steps=20)
    with pytest.raises(RunError, match="it diverged at step 20"):
        timing(tmp_path, "sleep_s=0.004", "mischief=diverged", "at=20")


def test_the_scripts_own_clock_counts_and_measurements_that_come_at_once_are_one():
    told = [Stamp(step, 100.0, train_s=step / 10) for step in (10, 20, 30)]
    assert separate(told) == [TimedStep(10, 1.0), TimedStep(20, 2.0), TimedStep(30, 3.0)]
    heard = [Stamp(10, 1.0), Stamp(20, 1.0), Stamp(30, 2.0), Stamp(40, 2.0, train_s=5.0)]
    assert separate(heard) == [TimedStep(20, 1.0), TimedStep(40, 2.0)]


def test_calibrate_adds_a_trainers_step_times_to_the_file(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    file = tmp_path / "experiment.toml"
    file.write_text(experiment_text("sleep_s=0.003", steps=100))
    words = ["calibrate", file, "--batch-sizes", "4,16", "--repetitions", 3, "--seconds", 0.01]
    answer = CliRunner().invoke(make_app(), [*map(str, words), "--out", str(tmp_path / "s.csv"), "--json"])
    assert answer.exit_code == 0, answer.output
    rows = json.loads(answer.stdout)["step_times"]
    assert [row["batch_size"] for row in rows] == [4, 16] and rows[0]["precision"] is None
    times = read_step_times(tmp_path / "s.csv")
    assert [one.workload for one in times] == ["fake/script/none"] * 2
    assert all(one.step_time_s >= 0.0027 and one.device for one in times)
