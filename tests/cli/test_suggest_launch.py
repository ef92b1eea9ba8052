"""``batchscale suggest --tokens``: values, files, and what it says of bad input."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import BatchscaleError

RECORDS = Path(__file__).parents[2] / "examples" / "mnist_fc_records"


def run(*words):
    result = CliRunner().invoke(make_app("suggest"), ["suggest", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def test_a_plan_is_printed_with_what_each_value_rests_on():
    text = run("--tokens", "20B", "--parameters", "1B", "--schedule", "warmup")
    for words in ("law", "published rule", "half-life", "time scale", "Merrill", "Wang", "Qwen", "(chosen)"):
        assert words in text
    answer = json.loads(run("--tokens", "20B", "--parameters", "1B", "--json"))
    size = answer["values"]["batch_size"]
    assert size["low"] < 0.58 * 20e9**0.571 < size["high"] and answer["launch_file"] is None


def test_a_launch_file_is_printed_or_written(tmp_path):
    out = tmp_path / "launch.txt"
    printed = run("--tokens", "20B", "--parameters", "1B", "--schedule", "late", "--export", "megatron-lm")
    run("--tokens", "20B", "--parameters", "1B", "--schedule", "late", "--export", "megatron-lm", "--out", out)
    assert out.read_text() == printed and "--step-batch-size-schedule" in printed


def test_own_stages_and_own_measurements_count():
    answer = json.loads(run("--tokens", "20B", "--parameters", "1B", "--stages", "0:256k 10B:1M", "--json"))
    assert [stage["start"] for stage in answer["stages"]] == [0, 10_000_000_000] and answer["schedule"] == "steps"
    words = (RECORDS, "--workload", "mnist/fc_1024/sgd", "--tokens", "10M", "--parameters", "814k", "--sequence", 1)
    values = json.loads(run(*words, "--json"))["values"]
    assert values["batch_size"]["basis"] == "measured" == values["learning_rate"]["basis"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tokens", "20B"], "--tokens needs --parameters"),
        (["--parameters", "1B"], "--parameters needs --tokens"),
        (["--tokens", "20B", "--parameters", "1B", "--out", "x"], "--out needs --export"),
        (["--tokens", "20B", "--parameters", "1B", "--schedule", "cosine"], "constant, warmup, late, steps"),
        (["--tokens", "20B", "--parameters", "1B", "--schedule", "steps"], "--stages belong"),
        (["--tokens", "20B", "--parameters", "1B", "--stages", "256k"], "pairs such as"),
        (["--tokens", "20B", "--parameters", "1B", "--export", "torchtitan"], "No launch file"),
        ([str(RECORDS), "--tokens", "20B", "--parameters", "1B"], "--workload must select one"),
        ([str(RECORDS)], "needs records and --batch-size"),
        ([str(RECORDS), "--batch-size", "many"], "--batch-size must be a whole number"),
    ],
)
def test_bad_input_is_explained(words, message):
    with pytest.raises(BatchscaleError, match=message):
        run(*words)
