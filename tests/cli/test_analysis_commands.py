import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import AnalysisError, BatchscaleError, SpecError, UnknownNameError

sys.path.insert(0, str(Path(__file__).parents[1] / "analysis"))
from build_records import SPACE, curve_studies, study, trial, write_tree

from batchscale.spec.workload_name import WorkloadName

SIZES = [2**i for i in range(0, 16, 2)]
SGD, MOMENTUM = WorkloadName("toy", "net", "sgd"), WorkloadName("toy", "net", "momentum")
GOAL = "val/error < 0.1"


def law(critical):
    return {size: 1000 * (1 + critical / size) for size in SIZES}


@pytest.fixture
def tree(tmp_path):
    return write_tree(tmp_path / "tree", {SGD: curve_studies(law(64), own={"goal": GOAL})})


@pytest.fixture
def two(tmp_path):
    return write_tree(tmp_path / "two", {SGD: curve_studies(law(16)), MOMENTUM: curve_studies(law(256))})


@pytest.fixture
def edges(tmp_path):
    finding = {"goal_reached": True, "at_edge": [{"parameter": "learning_rate", "side": "high"}]}
    wide = {"learning_rate": SPACE["learning_rate"] | {"min_value": 1e-9, "max_value": 1.0}}  # 0.01: 22 % below its top
    searches = [{"space": wide, "ranges": [[i, 0]]} for i in (1, 3)]
    own = {"format_version": 2, "goal": GOAL, "searches": searches, "finding": finding, "edge_margin": 0.3}
    few = (1.0, 1.05, 1.1, 1.3)  # trials, so that the margin alone decides
    return write_tree(tmp_path / "edges", {SGD: curve_studies({4: 500, 8: 260, 16: 140}, factors=few, own=own)})


def run(*arguments):
    return CliRunner().invoke(make_app(), [str(argument) for argument in arguments])


def points(tmp_path, text):
    path = tmp_path / "curve.csv"
    path.write_text(text)
    return path


def test_analyze_takes_the_goal_of_the_studies_and_prints_json(tree):
    answer = run("analyze", tree, "--json")
    assert answer.exit_code == 0, answer.exception
    data = json.loads(answer.stdout)
    assert (data["workload"], data["goal"]) == ("toy/net/sgd", GOAL)
    assert data["curve"][0]["batch_size"] == 1
    assert data["curve"][0]["steps"] == 65_000
    assert data["scaling"]["b_crit"] == pytest.approx(64, rel=0.01)


def test_analyze_prints_figures_drawing_advice_and_table(tree):
    answer = run("analyze", tree, "--goal", "val/error < 0.06", "--baseline", "first")
    assert answer.exit_code == 0, answer.exception
    title, figures, drawing, advice, basis, table = answer.stdout.strip().split("\n\n")
    assert title.splitlines() == ["net on toy (SGD)", "toy/net/sgd, goal val/error < 0.06"]
    assert figures.splitlines()[0].split("  ")[0] == "Critical batch size"
    assert figures.splitlines()[3].split("  ")[0] == "● well determined"
    assert drawing.count("●") == len(SIZES) + 1  # and one in the legend
    assert 1 <= len(advice.splitlines()) <= 3
    assert basis.startswith("This result holds")
    assert len(table.splitlines()) == 1 + len(SIZES)
    assert "\x1b" not in answer.stdout


def test_analyze_of_several_workloads_is_a_list(two):
    data = json.loads(run("analyze", two, "--goal", GOAL, "--json").stdout)
    assert [one["workload"] for one in data] == ["toy/net/momentum", "toy/net/sgd"]
    one = json.loads(run("analyze", two, "--goal", GOAL, "--workload", "toy/net/sgd", "--json").stdout)
    assert one["workload"] == "toy/net/sgd"


def test_analyze_without_a_goal_suggests_one(two):
    answer = run("analyze", two)
    assert isinstance(answer.exception, SpecError)
    assert 'reach --goal "val/error < 0.0501"' in str(answer.exception)


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (["--goal", "val/error"], SpecError),
        (["--goal", "val/eror < 0.1"], UnknownNameError),
        (["--workload", "nothing"], UnknownNameError),
        (["--baseline", "second"], SpecError),
        (["--tau", "-1"], AnalysisError),
    ],
)
def test_analyze_names_the_mistake(tree, options, kind):
    answer = run("analyze", tree, *options)
    assert isinstance(answer.exception, kind)


def test_analyze_of_nothing_is_refused(tmp_path):
    assert isinstance(run("analyze", tmp_path / "none").exception, BatchscaleError)
    (tmp_path / "empty").mkdir()
    assert isinstance(run("analyze", tmp_path / "empty").exception, BatchscaleError)


def test_fit_prints_the_scaling_object(tmp_path):
    path = points(tmp_path, "batch_size,steps\n" + "".join(f"{b},{s}\n" for b, s in law(64).items()))
    data = json.loads(run("fit", path, "--json").stdout)
    assert data["b_crit"] == pytest.approx(64, rel=1e-4)
    assert data["s_min"] == pytest.approx(1000, rel=1e-4)
    assert data["e_min"] == pytest.approx(64_000, rel=1e-4)
    assert (data["perfect_scaling_end"], data["max_useful_reached"]) == (16, True)
    text = run("fit", path).stdout
    assert "hyperbola" in text
    assert "Use up to batch size 16 at little extra cost: at most 24 % more examples than 1, the cheapest size" in text


def test_fit_says_on_which_side_all_points_lie(tmp_path):
    path = points(tmp_path, "batch_size,steps\n1,800\n2,400\n4,200\n8,100\n")
    data = json.loads(run("fit", path, "--json").stdout)
    assert data["b_crit"] is None
    assert "Measure larger sizes" in data["refusal"]
    assert data["max_useful_reached"] is False
    assert "measure larger batch sizes to bound it" in run("fit", path).stdout


def test_mistakes_end_with_code_2_and_one_paragraph(tmp_path):
    path = points(tmp_path, "batch_size,steps\n1,800\n2,x\n")
    code = "import sys; sys.argv[0] = 'batchscale'; from batchscale.cli.app import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "fit", str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "line 3: steps is a positive number. Found 'x'" in done.stderr
    assert "Traceback" not in done.stderr


def test_every_object_has_a_version(tree, tmp_path):
    path = points(tmp_path, "batch_size,steps\n1,800\n2,400\n4,250\n")
    commands = (["analyze", tree], ["fit", path], ["suggest", tree, "--batch-size", "8"], ["compare", tree, path])
    for command in commands:
        assert json.loads(run(*command, "--json").stdout)["version"] == 2, command


def test_fit_takes_one_row_per_run(tmp_path):
    rows = "".join(f"{b},{s * factor}\n" for b, s in law(64).items() for factor in (0.9, 1.0, 1.1))
    data = json.loads(run("fit", points(tmp_path, "batch_size,steps\n" + rows), "--json").stdout)
    assert data["b_crit_interval_from"] == "runs"
    assert data["b_crit_low"] < 64 < data["b_crit_high"]
    assert data["curve"][0]["runs"] == 3
    assert data["curve"][0]["steps_low"] < 65_000 * (0.9 * 1.1) ** (1 / 3) < data["curve"][0]["steps_high"]


def test_analyze_passes_over_a_workload_without_complete_trials_and_says_so(tmp_path):
    begun = [study(8, [trial(1, {5: 0.5}, status="INCOMPLETE")])]
    root = write_tree(tmp_path / "tree", {SGD: curve_studies(law(64)), MOMENTUM: begun})
    answer = run("analyze", root, "--goal", GOAL, "--json")
    assert answer.exit_code == 0, answer.exception
    assert json.loads(answer.stdout)["workload"] == "toy/net/sgd"
    assert "toy/net/momentum has no COMPLETE trial" in answer.stderr
    alone = run("analyze", root, "--goal", GOAL, "--workload", str(MOMENTUM))
    assert isinstance(alone.exception, AnalysisError)
    assert "1 INCOMPLETE" in str(alone.exception)


def test_suggest_outside_follows_the_trend_and_the_law(tree):
    text = run("suggest", tree, "--batch-size", "65536").stdout
    assert "Outside the measured batch sizes (4 times above the largest): the learning rate follows the trend" in text
    data = json.loads(run("suggest", tree, "--batch-size", "65536", "--json").stdout)
    assert data["source"] == "extrapolated"
    assert data["search_steps"] == pytest.approx(1000 * (1 + 64 / 65536), rel=0.02)
    assert data["steps_low"] < data["search_steps"] < data["steps"] < data["steps_high"]
    assert data["metaparameters"]["learning_rate"]["value"] == pytest.approx(2.56, rel=0.5)  # 0.01 B^½, with caution


def test_fit_of_two_points_is_refused(tmp_path):
    answer = run("fit", points(tmp_path, "batch_size,steps\n1,800\n2,400\n"))
    assert isinstance(answer.exception, AnalysisError)


def test_compare_holds_workloads_and_files_against_the_first(two, tmp_path):
    path = points(tmp_path, "batch_size,steps\n" + "".join(f"{b},{s}\n" for b, s in law(64).items()))
    data = json.loads(run("compare", path, two, "--goal", GOAL, "--json").stdout)
    assert [row["name"] for row in data["curves"]] == ["curve", "toy/net/momentum", "toy/net/sgd"]
    assert [row["ratio"] for row in data["curves"]] == pytest.approx([1, 4, 0.25], rel=0.02)
    text = run("compare", two, "--goal", GOAL).stdout
    assert "toy/net/sgd ends perfect scaling 16 times earlier than toy/net/momentum" in text


def test_compare_of_one_curve_is_refused(tree):
    assert isinstance(run("compare", tree).exception, AnalysisError)


def test_suggest_gives_measured_and_interpolated_values(tree):
    data = json.loads(run("suggest", tree, "--batch-size", "16", "--json").stdout)
    assert data["source"] == "measured"
    assert data["metaparameters"]["learning_rate"]["winner"] == pytest.approx(0.04)
    assert data["metaparameters"]["learning_rate"]["value"] == pytest.approx(0.04, rel=0.1)  # of trials 0.8-fold apart
    assert data["reach_chance"] > 0.9
    between = json.loads(run("suggest", tree, "--batch-size", "32", "--json").stdout)
    assert between["source"] == "interpolated"
    assert between["metaparameters"]["learning_rate"]["value"] == pytest.approx(0.01 * 32**0.5, rel=0.1)
    assert "Interpolated between batch sizes 16 and 64" in run("suggest", tree, "--batch-size", "32").stdout


def test_suggest_wants_one_workload(two):
    answer = run("suggest", two, "--batch-size", "16", "--goal", GOAL)
    assert isinstance(answer.exception, AnalysisError)
    assert "--workload" in str(answer.exception)


def test_every_table_says_what_is_at_an_edge_and_was_searched_again(edges, tree):
    note = "at edge: learning_rate high; 2 searches"
    assert run("analyze", edges).stdout.count(note) == 3
    assert run("summary", edges).stdout.count(note) == 3
    assert f"Notes on batch size 8: {note}." in run("suggest", edges, "--batch-size", "8").stdout
    data = json.loads(run("suggest", edges, "--batch-size", "8", "--json").stdout)
    assert data["notes"] == {"8": note}
    lines = run("compare", edges, tree).stdout.splitlines()
    assert lines[1].endswith("at edge at batch size 4, 8 and 16; searched again at batch size 4, 8 and 16")


def test_tables_have_no_notes_where_there_is_nothing_to_say(tree):
    assert "Notes" not in run("suggest", tree, "--batch-size", "16").stdout
    assert "Notes" not in run("summary", tree).stdout
