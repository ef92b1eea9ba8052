"""``batchscale law``: over the carried grid, over a file of runs, over several curves; and bad input."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from batchscale.atlas.published_laws import PUBLISHED, find_published
from batchscale.atlas.table import read_step_law
from batchscale.cli.app import make_app
from batchscale.errors import BatchscaleError

GOLDEN = Path(__file__).parent.parent / "golden"


def run(*words):
    result = CliRunner().invoke(make_app("law"), ["law", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


def write_curve(path, examples, b_crit):
    """A curve that needs so many examples at small sizes."""
    rows = [
        f"{size},{examples / b_crit * (1 + b_crit / size):.3f}" for size in (8, 16, 32, 64, 128, 256, 512, 1024, 4096)
    ]
    path.write_text("\n".join(["batch_size,steps", *rows]) + "\n")
    return path


def test_the_carried_grid_answers_for_a_plan():
    answer = json.loads(run("--tokens", "20B", "--parameters", "1B", "--json"))
    plan = answer["predictions"]["b_opt"]
    assert plan["low"] < 0.58 * 20e9**0.571 < plan["high"] and plan["outside"] == pytest.approx(1.86, abs=0.01)
    agreeing = {(law["name"], law["quantity"]) for law in answer["published"] if law["agrees"]}
    assert {("Step Law", "b_opt"), ("Step Law", "learning_rate"), ("Zhang et al.", "b_crit")} <= agreeing
    assert ("nanochat", "b_opt") not in agreeing
    text = run("--tokens", "20B", "--parameters", "1B")
    assert "1.86 times outside the points" in text and "CC-BY-4.0" in text


def test_a_file_of_runs_in_sequences_gives_the_same_laws(tmp_path):
    grid = read_step_law()
    path = tmp_path / "runs.csv"
    grid.with_columns(grid["batch_size"] / 2048).rename({"batch_size": "batch_sequences"}).write_csv(path)
    ours, carried = (json.loads(run(*words, "--json")) for words in ([path, "--sequence", 2048], []))
    for name, law in carried["laws"].items():
        assert ours["laws"][name]["exponents"] == pytest.approx(law["exponents"], rel=1e-6)
    chart, tokens_chart, csv = (tmp_path / name for name in ("c.svg", "t.svg", "p.csv"))
    run(
        path,
        "--sequence",
        2048,
        "--chart",
        chart,
        "--tokens-chart",
        tokens_chart,
        "--csv",
        csv,
        "--tokens",
        "3B",
        "--parameters",
        "90M",
    )
    assert "Batch size of the lowest loss" in chart.read_text() and "60 M parameters" in tokens_chart.read_text()
    assert csv.read_text().count("b_opt") == 27


def test_several_curves_give_a_law_of_their_critical_sizes(tmp_path):
    budgets = (1e6, 4e6, 16e6, 64e6)
    paths = [write_curve(tmp_path / f"{i}.csv", used, 0.05 * used**0.5) for i, used in enumerate(budgets)]
    answer = json.loads(run(*paths, "--json", "--tokens", "32M"))
    assert answer["unit"] == "examples" and answer["published"] == []
    assert answer["laws"]["b_crit"]["exponents"]["tokens"] == pytest.approx(0.5, abs=0.03)
    plan = answer["predictions"]["b_crit"]
    assert plan["low"] < 0.05 * 32e6**0.5 < plan["high"]
    assert "three points" in answer["refusals"]["b_opt"]
    assert "For 32 M examples:" in run(*paths, "--tokens", "32M")
    in_tokens = json.loads(run(*paths, "--json", "--sequence", 512, "--model-parameters", "1M,2M,3M,4M"))
    assert in_tokens["unit"] == "tokens" and in_tokens["laws"]["b_crit"]["points"][1]["parameters"] == 2e6


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--parameters", "1B"], "--parameters needs --tokens"),
        (["--tokens", "lots"], "--tokens must be a positive number"),
        (["none.csv"], r"none\.csv"),
        (["{curve}", "--tokens-chart", "x.svg"], "a law of one quantity"),
        (["{curve}", "{curve}", "--model-parameters", "1M"], "one number for each curve"),
    ],
)
def test_bad_input_is_explained(tmp_path, words, message):
    curve = write_curve(tmp_path / "curve.csv", 1e6, 64)
    with pytest.raises(BatchscaleError, match=message):
        run(*(word.format(curve=curve) for word in words))


def test_published_laws_say_where_they_come_from():
    assert all(law.source and law.protocol and law.exponents for law in PUBLISHED)
    step_law, *_ = find_published("b_opt")
    assert step_law.value(20e9) == pytest.approx(0.58 * 20e9**0.571)
    nanochat = next(law for law in PUBLISHED if law.name == "nanochat")
    assert nanochat.value(12 * (12 * 12 * 768**2 + 768 * 32768)) == pytest.approx(2**19)
    deepseek = next(law for law in find_published("b_opt") if law.name == "DeepSeek")
    assert deepseek.value(1e9, 1e8) == pytest.approx(0.2920 * (6e17) ** 0.3271) and deepseek.value(1e9) is None


def test_a_noisy_quadratic_system_is_fitted_to_a_grid_and_predicts_batch_sizes(monkeypatch):
    monkeypatch.setattr("batchscale.cli.law_system.RESAMPLES", 3)
    words = [GOLDEN / "nqs_runs.csv", "--method", "noisy-quadratic-system", "--parameters", "100M", "--loss", "3.3"]
    answer = json.loads(run(*words, "--json"))
    assert answer["runs"] == 73 and set(answer["parameters"]) == {"p", "q", "P", "Q", "e_irr", "R", "r"}
    assert answer["rms_log"] < answer["held_out"]["rms_log"] < 0.1
    critical, optimal = answer["predictions"]
    assert 0 < optimal["estimate"]["value"] < critical["estimate"]["value"]


@pytest.mark.parametrize(
    "words",
    [
        ["--method", "chinchilla"],
        ["--loss", "3"],
        ["--method", "noisy-quadratic-system", "--loss", "3"],
        ["--method", "noisy-quadratic-system", "--loss", "-1", "--parameters", "1M"],
        ["--method", "noisy-quadratic-system", "--tokens", "3B"],
    ],
)
def test_options_of_one_method_are_refused_with_the_other(words):
    with pytest.raises(BatchscaleError, match="--"):
        run(*words)
