"""``batchscale train``: one trial from the command line, on the digits that come with the package."""

import json

import pytest
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import BatchscaleError, RunError, SpecError
from batchscale.records.read import read_records

ARGUMENTS = ["train", "digits/linear/sgd", "-b", "64", "--set", "learning_rate=0.1", "--evaluate-every", "20"]


def run(*more, fails=None):
    result = CliRunner().invoke(make_app(), [*ARGUMENTS, *map(str, more)])
    if fails is not None:
        assert isinstance(result.exception, fails)
        return str(result.exception)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_measurements_are_shown_and_recorded_and_the_trial_can_go_on(tmp_path):
    shown = run("--steps", 40, "--out", tmp_path, "--json")
    lines = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    assert [line["step"] for line in lines] == [0, 20, 40]
    assert {(line["trial"], line["action"]) for line in lines} == {(1, "started")}
    continued = json_lines(run("--steps", 80, "--out", tmp_path, "--json"))
    assert [(line["action"], line["step"]) for line in continued] == [("continued", 60), ("continued", 80)]
    whole = [json.loads(line) for line in run("--steps", 80, "--json").splitlines() if line.startswith("{")]
    records = read_records(tmp_path)
    trials = records.trials
    assert trials["status"].to_list() == ["COMPLETE"]
    assert trials["steps"].to_list() == [80]
    assert lines == whole[:3]
    recorded = (tmp_path / "digits" / "linear" / "sgd" / "64" / "1" / "measurements.csv").read_text().splitlines()
    assert [int(line.split(",")[0]) for line in recorded[1:]] == [line["step"] for line in whole]
    errors = [float(line.split(",")[recorded[0].split(",").index("val/cross_entropy_error")]) for line in recorded[1:]]
    assert errors == pytest.approx([line["val/cross_entropy_error"] for line in whole], rel=1e-6)


def json_lines(shown):
    return [json.loads(line) for line in shown.splitlines()]


def test_the_same_command_finds_its_trial_finished_and_other_values_make_another(tmp_path):
    (last,) = json_lines(run("--steps", 20, "--out", tmp_path, "--json"))[-1:]
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for words in ((), ("--resume",)):
        (again,) = json_lines(run("--steps", 20, "--out", tmp_path, "--json", *words))
        assert (again["trial"], again["action"], again["step"]) == (1, "finished", 20)
        assert again["val/cross_entropy_error"] == pytest.approx(last["val/cross_entropy_error"], rel=1e-6)
    shown = run("--steps", 20, "--out", tmp_path)
    assert "Trained to the step budget at step 20 of 20." in shown
    others = (("--seed", 1), ("--set", "learning_rate=0.2"), ("--new-trial",), ("--precision", "bfloat16"))
    for number, words in enumerate(others, start=2):
        lines = json_lines(run("--steps", 20, "--out", tmp_path, "--json", *words))
        assert {(line["trial"], line["action"]) for line in lines} == {(number, "started")}
    recorded = [path for path in before if path.name in ("measurements.csv", "metadata.json")]
    assert recorded and all(path.read_bytes() == before[path] for path in recorded)


def test_a_mistake_leaves_nothing_in_an_empty_folder(tmp_path):
    for words in (
        ("--resume",),
        ("--set", "nosuch=1"),
        ("--early-stop", "train/none < 1"),
        ("--resume", "--new-trial"),
    ):
        run("--steps", 20, "--out", tmp_path / "records", *words, fails=BatchscaleError)
        assert not (tmp_path / "records").exists()


def test_an_early_stop_ends_the_trial_at_the_measurement_that_reaches_it(tmp_path):
    shown = run("--steps", 400, "--early-stop", "train/cross_entropy_error < 1.5", "--json")
    lines = [json.loads(line) for line in shown.splitlines() if line.startswith("{")]
    assert lines[-1]["train/cross_entropy_error"] < 1.5
    assert all(line["train/cross_entropy_error"] >= 1.5 for line in lines[:-1])
    assert lines[-1]["step"] < 400


def test_mistakes_are_named(tmp_path):
    assert "name=number" in run("--steps", 1, "--set", "momentum", fails=SpecError)
    assert "did you mean" in run("--steps", 1, "--early-stop", "train/cross_entropy < 1", fails=SpecError)
    assert "must not exceed the training set" in run("--steps", 1, "-b", 10**6, fails=SpecError)
    assert "examples from 1 to 1,099,511,627,776" in run("--steps", 1, "-b", 10**14, fails=SpecError)
    for size, steps in (("16k", 1), ("0", 1), (8, "often"), (8, "1.5 tokens"), (8, 0), ("1k..2k tokens", 1)):
        assert "Found" in run("--steps", steps, "-b", size, fails=SpecError)
    assert "Give tokens_per_example" in run("--steps", 1, "-b", "16k tokens", fails=SpecError)
    for value in ("1e308", "5e-324", "nan"):
        assert "in --set" in run("--steps", 1, "--set", f"learning_rate={value}", fails=SpecError)
    assert "--out" in run("--steps", 1, "--resume", fails=RunError)
    assert "Found none" in run("--steps", 1, "--resume", "--out", tmp_path / "new", fails=RunError)


def test_a_trace_is_written(tmp_path):
    run("--steps", 20, "--profile", tmp_path / "trace")
    assert list((tmp_path / "trace").rglob("*.xplane.pb"))


@pytest.mark.parametrize("devices", ["0", "-1", "x", "1.5", "99999999"])
def test_a_number_of_devices_that_is_none_is_refused(devices):
    assert "--devices must be a whole number of at least 1, or 'all'" in run(
        "--steps", 4, "--devices", devices, fails=SpecError
    )


def test_more_devices_than_there_are_are_refused(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=2")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "Found 2 (cores); 3 asked for" in run("--steps", 4, "--devices", "3", fails=RunError)


def test_a_cluster_that_makes_no_sense_is_refused_before_anything_starts(monkeypatch, tmp_path):
    assert "'process' is a whole number" in run(
        "--steps", 4, "--cluster", '{"coordinator": "a:1", "num_processes": 2}', fails=RunError
    )
    monkeypatch.setenv(
        "TF_CONFIG", '{"cluster": {"chief": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}'
    )
    assert "Found 'ps'" in run("--steps", 4, "--out", tmp_path / "records", fails=RunError)
    assert not (tmp_path / "records").exists()


def test_a_mirror_needs_a_folder_to_copy():
    assert "--new-trial needs --out" in run("--steps", 4, "--new-trial", fails=RunError)
    assert "--mirror needs --out" in run("--steps", 4, "--mirror", "s3://bucket/x", fails=RunError)
