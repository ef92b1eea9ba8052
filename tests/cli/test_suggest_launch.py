"""``batchscale suggest --tokens``: values, files, and what it says of bad input."""

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import BatchscaleError

SIZES = [2**power for power in range(13, 22)]
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


def test_batch_sizes_of_a_file_of_runs_are_tokens_unless_they_are_sequences(tmp_path):
    budgets = [(tokens, size) for tokens in (1e9, 4e9, 16e9) for size in SIZES]
    rows = [(t, b, 5 - 0.1 * math.log(t) + 0.02 * math.log(b / (0.5 * t**0.57)) ** 2) for t, b in budgets]
    (tmp_path / "tokens.csv").write_text("N,D,B,loss\n" + "".join(f"1e8,{t},{b},{loss}\n" for t, b, loss in rows))
    lines = "".join(f"1e8,{t},{b / 512},{loss}\n" for t, b, loss in rows)
    (tmp_path / "sequences.csv").write_text("N,D,batch_sequences,loss\n" + lines)
    plan = ("--tokens", "8B", "--parameters", "100M", "--json")
    tokens = json.loads(run(tmp_path / "tokens.csv", *plan))["values"]["batch_size"]
    sequences = json.loads(run(tmp_path / "sequences.csv", "--sequence", 512, *plan))["values"]["batch_size"]
    assert tokens["value"] == pytest.approx(0.5 * 8e9**0.57, rel=0.05)
    assert sequences["value"] == pytest.approx(tokens["value"]) and tokens["basis"] == "law"


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
        (["--tokens", "20B", "--parameters", "1B", "--multiple-of", "100000"], "--multiple-of must fit"),
        (
            [str(RECORDS), "--workload", "mnist/fc_1024/sgd", "--tokens", "1B", "--parameters", "1B"],
            "tokens by --sequence",
        ),
        ([str(RECORDS)], "needs records and --batch-size"),
        ([str(RECORDS), "--batch-size", "many"], "--batch-size must be a whole number"),
    ],
)
def test_bad_input_is_explained(words, message):
    with pytest.raises(BatchscaleError, match=message):
        run(*words)
