"""The carried table: every number follows from the carried runs, and the sanity of what it says."""

import json
import math

import numpy as np
import polars as pl
import pytest

from batchscale.analysis.families import Family
from batchscale.analysis.least_squares import fit_family
from batchscale.atlas.curve import CURVES_SCHEMA, KINDS, UNITS, AtlasCurve, model_kind, summary_row
from batchscale.atlas.sources import SOURCES
from batchscale.atlas.table import add_curve, choose_main, own_folder, read_atlas, read_step_law
from batchscale.errors import AnalysisError, UnknownNameError

OWN = AtlasCurve("own-a", "own", "a", "other", "", "", "", "", [(8, 100.0), (16, 55.0), (32, 30.0), (64, None)])


@pytest.fixture(scope="module")
def atlas():
    return read_atlas()


def test_every_curve_has_a_source_with_licence_a_kind_and_three_sizes(atlas):
    assert set(atlas.curves["source"]) == set(SOURCES) - {"own"}
    assert all(source.licence and source.limits and source.shows for source in SOURCES.values())
    assert set(atlas.curves["kind"]) <= set(KINDS) and set(atlas.curves["unit"]) <= set(UNITS)
    assert atlas.curves["curve"].is_unique().all() and (atlas.curves["sizes"] >= 3).all()
    assert set(atlas.curves["curve"]) == set(atlas.runs["curve"])
    counts = dict(atlas.curves["source"].value_counts().rows())
    assert counts == {"paper": 39, "mlperf": 48, "zeus": 54, "step_law": 15, "nqs": 6, "ddsp": 1, "batchscale": 4}


@pytest.mark.parametrize(
    "name",
    [
        "paper-mnist-simple_cnn_base-nesterov_momentum-0.01",
        "mlperf-resnet-training-2.0",
        "mlperf-gpt3-training-3.0",
        "mlperf-unet3d-training-1.0",
        "zeus-shufflenetv2-cifar100-0.5",
        "step_law-60m-2.768",
        "ddsp-autoencoder",
    ],
)
def test_the_table_says_what_the_analysis_of_its_runs_says(atlas, name):
    curve = atlas.find(name)
    row = atlas.curves.filter(pl.col("curve") == name).to_dicts()[0]
    for key, value in summary_row(curve, curve.analyze()).items():
        if key != "main":
            assert row[key] == (pytest.approx(value, rel=1e-3) if isinstance(value, float) else value), key


@pytest.mark.parametrize(("names", "b_crit"), [("mlperf-resnet-", 47_000), ("mlperf-llama31_405b-", 5_700)])
def test_the_hyperbola_in_log_steps_finds_what_others_found(atlas, names, b_crit):
    runs = atlas.runs.filter(pl.col("curve").str.starts_with(names)).sort("batch_size")
    sizes = runs["batch_size"].to_numpy().astype(float)
    fit = fit_family(Family.HYPERBOLA, np.log(sizes), np.log(runs["amount"].to_numpy() / sizes), np.ones(len(runs)))
    assert fit.b_crit == pytest.approx(b_crit, rel=0.03)


def test_units_that_the_files_name_wrongly_are_corrected(atlas):
    """U-Net3D changed from epochs of 168 volumes to samples, Stable Diffusion from steps to samples; the runs agree."""
    points = atlas.points()
    steps = {
        name: dict(points.filter(pl.col("curve") == f"mlperf-{name}").select("batch_size", "steps").rows())
        for name in ("unet3d-training-3.0", "unet3d-training-3.1", "sd-training-3.1", "stable_diffusion-training-4.0")
    }
    assert steps["unet3d-training-3.0"][2] == pytest.approx(steps["unet3d-training-3.1"][2], rel=1e-9)
    assert steps["sd-training-3.1"][512] == pytest.approx(steps["stable_diffusion-training-4.0"][512], rel=1e-9)


def test_points_are_the_steps_that_the_analysis_takes(atlas):
    for name in ("mlperf-bert-training-2.1", "mlperf-gpt3-training-3.0", "zeus-resnet50-imagenet-0.6"):
        curve = atlas.find(name).analyze().curve.sort("batch_size")
        points = atlas.points().filter(pl.col("curve") == name)
        assert points["steps"].to_list() == pytest.approx(curve["steps"].to_list(), rel=1e-9)


def test_one_curve_of_each_workload_is_the_main_one(atlas):
    main = atlas.curves.filter("main")
    assert main.select("source", "label", "optimizer").is_unique().all()
    assert choose_main(atlas.curves).equals(atlas.curves)
    assert "mlperf-gpt3-training-3.0" in main["curve"].to_list()  # 4.1 has a run that is ten times the others


def test_the_grid_of_step_law_is_carried_whole():
    grid = read_step_law()
    assert grid.shape == (1862, 5) and grid["batch_size"].min() == 16 * 2048
    assert grid["parameters"].n_unique() == 5


def test_an_own_curve_is_kept_beside_and_never_replaced_unasked(tmp_path):
    row = summary_row(OWN, OWN.analyze())
    path = add_curve(OWN, row, tmp_path)
    content = path.read_text()
    with pytest.raises(AnalysisError, match="must be new"):
        add_curve(OWN, row, tmp_path)
    assert path.read_text() == content
    atlas = read_atlas(tmp_path)
    assert atlas.find("own-a").runs == OWN.runs and atlas.curves.schema == dict(CURVES_SCHEMA)
    assert atlas.curves.filter(pl.col("source") == "own")["main"].to_list() == [True]
    with pytest.raises(AnalysisError, match="letters, digits"):
        add_curve(AtlasCurve("../x", "own", "a", "other", "", "", "", "", OWN.runs), row, tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda content: content["runs"].append([0, 1.0]),
        lambda content: content["runs"].append([8, math.nan]),
        lambda content: content["runs"].append([8, "5"]),
        lambda content: content.update(version=2),
        lambda content: content.pop("runs"),
        lambda content: content["curve"].update(unit="miles"),
        lambda content: content["curve"].update(b_crit="many"),
        lambda content: content.update(curve=[]),
    ],
)
def test_a_broken_own_curve_is_left_out_with_a_notice(tmp_path, change):
    path = add_curve(OWN, summary_row(OWN, OWN.analyze()), tmp_path)
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    (tmp_path / "text.json").write_bytes(b"\xff{")
    atlas = read_atlas(tmp_path)
    assert "own" not in set(atlas.curves["source"]) and len(atlas.notices) == 2
    assert "own-a.json" in atlas.notices[0]


def test_an_unknown_curve_names_the_nearest(atlas):
    with pytest.raises(UnknownNameError, match=r"mlperf-resnet-training-2\.0"):
        atlas.find("mlperf-resnet-training-2")


def test_the_folder_of_own_curves(monkeypatch, tmp_path):
    monkeypatch.delenv("BATCHSCALE_ATLAS")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert own_folder() == tmp_path / "batchscale" / "atlas"
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert own_folder() == tmp_path / ".local" / "share" / "batchscale" / "atlas"


def test_kinds_of_names():
    assert model_kind("lstm") == "recurrent" and model_kind("gpt2_small") == "language model"
