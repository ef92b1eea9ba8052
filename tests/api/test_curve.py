"""Curves as objects: the same answer from every form of points, and forms that show it."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import polars as pl
import pytest
from build_records import make_records, study, trial
from typer.testing import CliRunner

import batchscale as bs
from batchscale.analysis import Analysis
from batchscale.analysis import analyze as analyze_workload
from batchscale.analysis.as_json import analysis_json
from batchscale.cli.app import make_app
from batchscale.errors import AnalysisError, RecordsError, SpecError, UnknownNameError

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "examples" / "mnist_fc_records"
SIZES = [2**power for power in range(2, 13)]
LAW = {size: 500 * (1 + 128 / size) for size in SIZES}  # steps = S_min (1 + B_crit/B), exactly


@pytest.fixture(scope="module")
def curve() -> bs.Curve:
    return bs.fit(LAW)


def test_the_law_behind_the_points_is_found(curve):
    assert curve.critical_batch_size == pytest.approx(128, rel=0.01)  # points without noise lie on the law
    low, high = curve.critical_batch_size_interval
    assert low <= 128 <= high
    assert curve.steps_at(96) == pytest.approx(500 * (1 + 128 / 96), rel=0.01)
    assert curve.steps_at(64) == LAW[64]
    assert curve.perfect_scaling_up_to == max(s for s in SIZES if s * LAW[s] <= 1.3 * 4 * LAW[4])
    assert curve.fewest_steps_from == min(s for s in SIZES if LAW[s] <= 1.2 * LAW[4096])
    assert curve.optimal_batch_size is None and curve.workload is None and curve.goal is None
    assert curve.batch_sizes == SIZES


def test_dictionaries_frames_and_files_give_the_same_curve(curve, tmp_path):
    frame = pl.DataFrame({"batch_size": SIZES, "steps": [LAW[size] for size in SIZES]})
    path = tmp_path / "curve.csv"
    frame.write_csv(path)
    backwards = dict(reversed(LAW.items()))
    for points in (frame, frame.lazy(), path, str(path), backwards):
        assert bs.fit(points).to_dict() == curve.to_dict(), type(points)


def test_runs_of_a_size_may_be_lists_or_rows_and_some_may_fail():
    points = {16: [12000, 11500], 32: 6100, 64: (3300, None), 128: 1900, 256: None}
    rows = [(16, 12000), (16, 11500), (32, 6100), (64, 3300), (64, float("nan")), (128, 1900), (256, float("nan"))]
    curve = bs.fit(points)
    pandas = pytest.importorskip("pandas")
    assert curve.to_dict() == bs.fit(pandas.DataFrame(rows, columns=["batch_size", "steps"])).to_dict()
    assert curve.to_dict() == bs.fit(pl.DataFrame(rows, schema=["batch_size", "steps"], orient="row")).to_dict()
    assert curve.to_frame()["runs"].to_list() == [2, 1, 1, 1]
    assert any("256" in doubt for doubt in curve.doubts)


def test_a_coarse_spacing_of_evaluations_is_a_doubt():
    assert bs.fit(LAW, spacing=10).doubts == ()
    coarse = bs.fit(LAW, spacing={4096: 400})
    assert "the steps are known only to within their evaluation spacing at batch size 4,096" in coarse.doubts[0]
    assert "How sure is it?" in coarse._repr_html_()
    frame = pl.DataFrame({"batch_size": SIZES, "steps": [LAW[s] for s in SIZES], "spacing": [1.0] * 10 + [400.0]})
    assert bs.fit(frame).to_dict() == bs.fit(LAW, spacing={**dict.fromkeys(SIZES, 1), 4096: 400}).to_dict()
    assert bs.fit(frame, spacing={4096: 1}).doubts == ()  # what is passed replaces what is in the frame


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ({1: 10, 2: 5}, "3 batch sizes or more. Found 2"),
        ({1: 10, 2: 0, 4: 3}, "steps is a positive number. Found 0 at batch size 2"),
        ({1: 10, 2: "five", 4: 3}, "steps is a positive number. Found 'five' at batch size 2"),
        ({1.5: 10, 2: 5, 4: 3}, "batch_size is a whole number. Found 1.5"),
        ({True: 10, 2: 5, 4: 3}, "batch_size is a positive number. Found True"),
        (pl.DataFrame({"size": [1], "steps": [2]}), "has the columns batch_size and steps. Found"),
        ([1, 2, 3], "Points are a dictionary of steps by batch size, a frame, or the path"),
        (None, "Points are a dictionary"),
        ("no.csv", "no.csv"),
    ],
)
def test_other_points_are_refused_with_a_sentence(points, message):
    with pytest.raises(AnalysisError, match=re.escape(message)):
        bs.fit(points)


def test_the_spacing_must_be_of_the_points():
    for spacing in ({3: 1}, 0, 1.5, True):
        with pytest.raises(AnalysisError, match="spacing is a whole number of steps"):
            bs.fit(LAW, spacing=spacing)


def test_a_curve_of_records_is_that_of_the_analysis():
    records = bs.read(RECORDS)
    name = records.workloads[0]
    curve = bs.analyze(records, "val/classification_error < 0.03", workload=str(name))
    assert isinstance(curve.analysis, Analysis) and curve.records is records
    assert curve.to_dict() == analysis_json(analyze_workload(records, name, curve.goal))
    assert curve.workload == name and str(curve.goal) == "val/classification_error < 0.03"
    assert curve.to_frame()["batch_size"].to_list() == curve.batch_sizes
    assert bs.analyze(RECORDS, curve.goal, workload=name).to_dict() == curve.to_dict()


def test_a_curve_is_of_one_workload_that_exists_and_has_the_metric(tmp_path):
    with pytest.raises(AnalysisError, match="A curve is of one workload"):
        bs.analyze(RECORDS)
    with pytest.raises(UnknownNameError, match="workload: no records of 'cifar'"):
        bs.analyze(RECORDS, workload="cifar")
    name = bs.read(RECORDS).workloads[0]
    with pytest.raises(SpecError, match="A goal"):
        bs.analyze(RECORDS, "val error below a tenth", workload=name)
    with pytest.raises(UnknownNameError):
        bs.analyze(RECORDS, "val/perplexity < 3", workload=name)
    with pytest.raises(RecordsError, match="or a path"):
        bs.analyze(7)
    with pytest.raises(RecordsError, match="no readable study"):
        bs.read(tmp_path)


def test_the_text_has_the_three_figures_and_at_most_three_sentences(curve):
    lines = repr(curve).splitlines()
    assert lines[0] == "curve: 11 batch sizes"
    assert lines[1].split() == ["Critical", "batch", "size", "128,", "well", "determined"]
    assert 1 <= len(curve.advice) <= 3 and lines[4:] == [f"  {sentence}" for sentence in curve.advice]
    assert curve.summary.startswith(curve.advice[0])


def test_what_the_points_do_not_determine_is_not_stated():
    proportional = bs.fit({size: 1e6 / size for size in (8, 16, 32, 64)})
    labels = {figure.label: figure for figure in proportional.key_figures()}
    assert proportional.critical_batch_size is None and proportional.fewest_steps_from is None
    assert labels["Critical batch size"].trust == "not determined"
    assert labels["Perfect scaling up to"].value == "≥ 64"
    assert labels["Fewest steps (within 20 %) from"].value == "> 64"


@pytest.mark.parametrize("sizes", [(8,), (8, 16)])
@pytest.mark.parametrize("least", [0.05, 0.3], ids=["reached", "not reached"])
def test_a_curve_with_too_few_points_says_so_in_every_form(sizes, least):
    records = make_records([study(size, [trial(1, {10: 0.5, 20: least})]) for size in sizes])
    curve = bs.analyze(records, "val/error < 0.1")
    assert curve.critical_batch_size is None and curve.optimal_batch_size is None and curve.steps_at(7) is None
    for text in (repr(curve), curve._repr_html_()):
        assert "not determined" in text if curve.key_figures() else "Regimes need the steps" in text
    assert curve.plot().to_dict() and json.dumps(curve.to_dict())


def test_points_that_no_law_describes_are_doubtful_and_have_no_critical_size():
    curve = bs.fit({1: 100, 2: 5000, 4: 20, 8: 900, 16: 3})
    assert curve.critical_batch_size is None and curve.perfect_scaling_up_to is None
    assert "well determined" not in {figure.trust for figure in curve.key_figures()}
    assert curve.advice[0].startswith("No curve of the fitted kinds describes these points") and len(curve.advice) == 3


def test_the_html_is_one_element_without_scripts_and_addresses(curve):
    text = curve._repr_html_()
    assert text.count('class="value"') == 3 and text.count("<svg") == 2
    assert not re.search(r"<script|javascript:|url\((?!#)|https?://(?!www\.w3\.org)", text)
    first, second = (set(re.findall(r'\bid="([^"]+)"', curve._repr_html_())) for _ in range(2))
    assert not first & second  # two outputs of a notebook share a page
    body = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)
    assert ET.fromstring(body).get("class") == "batchscale"  # every element is closed


def test_text_of_records_is_escaped_in_the_html(curve):
    from batchscale.api.html import NotebookTable, render
    from batchscale.planning.answer import PlanFigure

    chart = curve.plot()
    text = render(
        title="<x-b>", subtitle="<x-i>", figures=[PlanFigure("<x-u>", "<x-s>", "")], charts=[chart, chart],
        label="<x-q>", advice=["<x-p>"], notes=["<x-d>"], table=NotebookTable(["<x-c>"], [["<x-r>"]], frozenset()),
    )  # fmt: skip
    assert "<x-" not in text and text.count("&lt;x-") == 10


def test_the_chart_shows_the_points_and_takes_a_theme(curve):
    chart = curve.plot()
    assert "batch size" in json.dumps(chart.to_dict())
    assert curve.plot("dark").to_dict() != chart.to_dict()
    with pytest.raises(UnknownNameError, match="No theme 'grey'"):
        curve.plot("grey")


def test_the_dictionary_is_what_the_command_prints(curve, tmp_path):
    pl.DataFrame({"batch_size": SIZES, "steps": [LAW[size] for size in SIZES]}).write_csv(tmp_path / "c.csv")
    printed = CliRunner().invoke(make_app(), ["fit", str(tmp_path / "c.csv"), "--json"])
    assert json.loads(printed.stdout) == json.loads(json.dumps(curve.to_dict()))


def test_fitting_and_showing_load_no_jax():
    code = (
        "import sys, batchscale as bs\n"
        "curve = bs.fit({16: 12000, 32: 6100, 64: 3300, 128: 1900})\n"
        "assert 'altair' not in sys.modules\n"
        "curve._repr_html_()\n"
        "assert not {'jax', 'flax', 'batchscale.run', 'batchscale.cli'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
