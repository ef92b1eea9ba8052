"""``batchscale data audio`` and ``batchscale audio``, from recordings to a transfer."""

import json

import numpy as np
import pytest
import soundfile
from sounds import RATE, melody
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import DataError, RunError, SpecError

EXPERIMENT = """
goal = "train/total_loss < 5.0"
batch_sizes = [4]
[workload]
dataset = "recordings"
model = "ddsp_tiny"
optimizer = "adam"
schedule = "constant"
model_options = { tiny = true }
dataset_options = { path = "PATH", seconds = 0.5, spacing = 0.25 }
[evaluation]
examples = { train = 4, val = 4, test = 0 }
"""


def run(*arguments):
    return CliRunner().invoke(make_app(), [str(argument) for argument in arguments], catch_exceptions=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("audio")
    (place / "in").mkdir()
    soundfile.write(place / "in" / "line.wav", melody([220, 262, 330, 392] * 4), RATE)
    (place / "in" / "broken.wav").write_text("no sound")
    return place


def test_data_audio_prepares_and_names_what_it_passes_over(folder):
    done = run("data", "audio", folder / "in", "--out", folder / "out")
    assert done.exit_code == 0 and "1 recording, 7 s to train on and 1 s to validate" in done.stdout
    assert "Skipped broken.wav: it cannot be read" in done.stderr
    said = json.loads(run("data", "audio", folder / "in", "--out", folder / "out", "--json").stdout)
    assert said["recordings"] == ["line.wav"] and list(said["skipped"]) == ["broken.wav"]
    assert isinstance(run("data", "audio", folder / "none", "--out", folder / "x").exception, DataError)
    assert isinstance(run("data", "audio", folder / "in", "--out", folder / "x", "--val-share", 2).exception, SpecError)


def test_an_experiment_on_recordings_is_checked_without_training(folder, tmp_path):
    run("data", "audio", folder / "in", "--out", folder / "out")
    file = tmp_path / "x.toml"
    file.write_text(EXPERIMENT.replace("PATH", str(folder / "out")))
    done = run("validate", file)
    assert done.exit_code == 0 and "train/total_loss < 5" in done.stdout
    file.write_text(EXPERIMENT.replace("PATH", str(folder / "nothing")))
    assert "batchscale data audio" in str(run("validate", file).exception)


def test_export_needs_something_that_was_trained(folder, tmp_path):
    run("data", "audio", folder / "in", "--out", folder / "out")
    file = tmp_path / "x.toml"
    file.write_text(EXPERIMENT.replace("PATH", str(folder / "out")))
    failed = run("audio", "export", file, "--from", tmp_path, "--out", tmp_path / "model")
    assert isinstance(failed.exception, RunError) and "one batch size" in str(failed.exception)
    failed = run("audio", "export", file, "--from", tmp_path, "--out", tmp_path / "model", "-b", 4)
    assert isinstance(failed.exception, RunError) and "a checkpoint of a trial" in str(failed.exception)
    digits = tmp_path / "digits.toml"
    digits.write_text('goal = "val/cross_entropy_error < 1"\nworkload = "digits/fc_8/sgd"\n')
    failed = run("audio", "export", digits, "--from", tmp_path, "--out", tmp_path / "model")
    assert isinstance(failed.exception, SpecError) and "of sound" in str(failed.exception)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_from_recordings_to_a_transfer(folder, tmp_path):
    run("data", "audio", folder / "in", "--out", folder / "out")
    file = tmp_path / "x.toml"
    file.write_text(EXPERIMENT.replace("PATH", str(folder / "out")))
    options = ["-b", 4, "--set", "learning_rate=0.003", "--set", "gradient_clip_norm=3", "--out", tmp_path / "trained"]
    stop = ["--early-stop", "train/total_loss < 1000", "--evaluate-every", 2]
    trained = run("train", file, "--steps", 6, *options, *stop)
    assert trained.exit_code == 0 and "Early stop reached at step 0" in trained.stdout
    trained = run("train", file, "--steps", 6, *options, "--evaluate-every", 6)
    assert trained.exit_code == 0 and "Trained to the step budget at step 6" in trained.stdout
    said = json.loads(
        run("audio", "export", file, "--from", tmp_path / "trained", "--out", tmp_path / "model", "--json").stdout
    )
    assert said["trained"]["steps"] == 6 and said["trained"]["trial"] == 2
    done = run("audio", "transfer", tmp_path / "model", folder / "in" / "line.wav", "--out", tmp_path / "played.wav")
    assert done.exit_code == 0
    played, rate = soundfile.read(tmp_path / "played.wav")
    assert rate == RATE and len(played) == 8 * RATE and np.abs(played).max() > 0
    places = ["--out", tmp_path / "again.wav", "--recorded", tmp_path / "recorded.wav", "--split", "train"]
    assert run("audio", "resynthesise", tmp_path / "model", folder / "out", *places).exit_code == 0
    recorded, _ = soundfile.read(tmp_path / "recorded.wav")
    assert len(recorded) == len(soundfile.read(tmp_path / "again.wav")[0]) == 4 * RATE
