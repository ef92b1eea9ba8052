"""``batchscale atlas``: list, show, add and like, and what they say of bad input."""

import json
import sys
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.cli.atlas_inputs import choose_goal
from batchscale.errors import BatchscaleError
from batchscale.records.read import read_records
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

sys.path.insert(0, str(Path(__file__).parents[1] / "analysis"))
from build_records import curve_studies, write_tree

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "examples" / "mnist_fc_records"
EXPERIMENT = """
goal = "val/loss < 0.1"
[workload]
dataset = "noisy_quadratic"
model = "quadratic"
optimizer = "sgd"
[budget]
steps = 100
"""


def run(*words):
    result = CliRunner().invoke(make_app("atlas"), ["atlas", *map(str, words)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


@pytest.fixture(autouse=True)
def own(tmp_path, monkeypatch):
    monkeypatch.setenv("BATCHSCALE_ATLAS", str(tmp_path / "own"))
    return tmp_path / "own"


def test_the_list_is_filtered_and_sorted():
    answer = json.loads(run("--kind", "convolutional", "--optimizer", "lars", "--all", "--sort", "b_crit", "--json"))
    assert answer["curves"][0]["curve"].startswith("mlperf-resnet")
    values = [row["b_crit"] for row in answer["curves"]]
    assert values == sorted(values) and answer["sources"]["mlperf"]["licence"] == "Apache-2.0"
    everything = json.loads(run("--all", "--json"))["curves"]
    assert len(everything) == 167 and everything[-1]["b_crit"] is None
    text = run("--data", "mnist", "--kind", "fully connected")
    assert "FC-1024 on MNIST (sgd)" in text and "CC-BY-4.0" in text and "read off figures" in text


def test_tables_and_charts_are_written(tmp_path):
    run("--source", "step_law", "--csv", tmp_path / "t.csv", "--runs-csv", tmp_path / "r.csv",
        "--chart", tmp_path / "c.svg", "--sizes-chart", tmp_path / "s.json")  # fmt: skip
    assert len(pl.read_csv(tmp_path / "t.csv")) == 5
    assert set(pl.read_csv(tmp_path / "r.csv")["curve"]) == set(pl.read_csv(tmp_path / "t.csv")["curve"])
    assert "critical batch size" in (tmp_path / "c.svg").read_text()
    assert "B_opt" in (tmp_path / "s.json").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--kind", "nonsense"], "--kind must match a curve.*convolutional"),
        (["--sort", "size"], "--sort must be one of b_crit"),
        (["show", "mlperf"], "no curve 'mlperf'"),
        (["like", "nothing.csv"], "nothing.csv"),
        (["like", str(RECORDS)], "--workload must select one"),
        (["like", str(RECORDS), "--kind", "conv"], "No kind of model is called 'conv'"),
        (["add", str(ROOT / "examples" / "paper_figure_1.csv"), "--parameters", "many"], "--parameters must be a pos"),
    ],
)
def test_bad_input_is_explained(words, message):
    with pytest.raises(BatchscaleError, match=message):
        run(*words)


def test_a_curve_is_shown_with_its_source():
    text = run("show", "mlperf-llama31_405b-training-5.0")
    assert "9,216" in text and "Apache-2.0" in text and "starts from a trained checkpoint" in text
    answer = json.loads(run("show", "mlperf-llama31_405b-training-5.0", "--json"))
    assert [row["batch_size"] for row in answer["points"]] == [1008, 1152, 2304, 4608, 6912, 9216]


def test_own_curves_are_added_shown_and_found(tmp_path, own):
    curve = tmp_path / "mine.csv"
    curve.write_text(
        "batch_size,steps,reached\n8,1250,true\n16,690,true\n32,400,true\n64,270,true\n64,900,false\n128,200,true\n"
    )
    assert "own-mine" in run("add", curve, "--model", "vit_s", "--data", "birds", "--parameters", "22M")
    answer = json.loads(run("show", "own-mine", "--json"))
    row, points = answer["curve"], answer["points"]
    assert row["kind"] == "transformer" and row["parameters"] == 22_000_000 and points[3]["steps"] == pytest.approx(270)
    nearest = json.loads(run("like", curve, "--json"))["neighbours"][0]
    assert nearest["curve"]["curve"] == "own-mine" and nearest["distance"] < 0.1
    assert "own-mine" in run("--source", "own")
    with pytest.raises(BatchscaleError, match="must be new"):
        run("add", curve)
    run("add", curve, "--replace")
    assert [path.name for path in own.iterdir()] == ["own-mine.json"]


def test_records_are_added_with_their_goal_and_found_as_themselves():
    run("add", RECORDS, "--workload", "mnist/fc_1024/sgd", "--name", "mine")
    row = json.loads(run("show", "mine", "--json"))["curve"]
    assert row["goal"] == "val/classification_error < 0.03" and row["b_crit"] == pytest.approx(268, abs=1)
    text = run("like", RECORDS, "--workload", "mnist/fc_1024/sgd")
    assert "same data set, same model, same optimizer" in text and "Batch sizes that would show yours" in text


def test_an_experiment_file_finds_neighbours_by_name_alone(tmp_path):
    path = tmp_path / "experiment.toml"
    path.write_text(EXPERIMENT.replace("noisy_quadratic", "mnist").replace('"quadratic"', '"fc_512"'))
    answer = json.loads(run("like", path, "--json", "--count", "3"))
    assert {row["curve"]["kind"] for row in answer["neighbours"]} == {"fully connected"}
    assert answer["b_crit"] is None and answer["prior"]["batch_sizes"]


def test_the_design_documents_runs_are_like_other_small_curves():
    """Their points fit no law, so no critical size is claimed, but shapes over shared sizes can be compared."""
    answer = json.loads(run("like", ROOT / "examples" / "ddsp_training_runs.csv", "--json"))
    assert answer["neighbours"][0]["curve"]["source"] == "ddsp" and answer["b_crit"] is None
    assert all(any("same shape" in reason for reason in row["reasons"]) for row in answer["neighbours"])


def test_workloads_of_the_papers_archive_get_the_goals_of_its_figures(tmp_path):
    name = WorkloadName("mnist", "simple_cnn_base", "nesterov_momentum")
    law = {size: 1000 * (1 + 64 / size) for size in (1, 4, 16, 64, 256)}
    records = read_records(write_tree(tmp_path / "tree", {name: curve_studies(law)}))
    assert choose_goal(records, name, None) == Goal("val/classification_error", 0.01)
    assert choose_goal(records, name, "val/error < 0.1") == Goal("val/error", 0.1)
