"""The nearest public curves: explained, and sensible for curves that we know."""

from pathlib import Path

import polars as pl
import pytest

from batchscale.analysis.curve_analysis import analyze, analyze_points, stored_goal
from batchscale.atlas.curve import model_kind
from batchscale.atlas.similar import OwnCurve, find_similar, make_prior
from batchscale.atlas.table import read_atlas
from batchscale.errors import AnalysisError
from batchscale.records.read import read_records

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def public():
    atlas = read_atlas()
    return atlas.select(atlas.curves.filter(pl.col("source") != "batchscale"))


def test_a_network_on_mnist_is_like_the_papers_networks_on_mnist(public):
    records = read_records(ROOT / "examples" / "mnist_fc_records")
    name = next(name for name in records.workloads if str(name) == "mnist/fc_128_128_128/sgd")
    summary = analyze(records, name, stored_goal(records, name)).summary
    own = OwnCurve(name.dataset, name.model, name.optimizer, model_kind(name.model), summary)
    nearest, *others = find_similar(public, own)
    assert nearest.row["curve"] == "paper-mnist-fc_128_128_128-sgd-0.03"
    assert {"same data set", "same model", "same optimizer"} <= set(nearest.reasons)
    assert all(item.row["dataset"] == "mnist" and item.row["kind"] == "fully connected" for item in others[:4])
    prior = make_prior([nearest, *others])
    assert prior.b_crit_low <= prior.b_crit <= prior.b_crit_high
    assert min(prior.batch_sizes) < prior.b_crit_low / 7 and max(prior.batch_sizes) > prior.b_crit_high * 4


def test_a_public_curve_is_most_like_itself(public):
    for name in ("mlperf-resnet-training-2.0", "paper-lm1b-lstm-nesterov_momentum-3.9", "step_law-268m-2.420"):
        curve = public.find(name)
        own = OwnCurve(curve.dataset, curve.model, curve.optimizer, curve.kind, curve.analyze().summary)
        nearest = find_similar(public, own)[0]
        assert nearest.row["label"] == curve.label and nearest.distance < 0.02


def test_scaled_steps_change_nothing_and_another_critical_size_does(public):
    def distance(factor: float, b_crit: float) -> float:
        rows = [(size, factor * (1 + b_crit / size)) for size in (4, 16, 64, 256, 1024, 4096)]
        schema = {"batch_size": pl.Int64, "steps": pl.Float64}
        summary = analyze_points(pl.DataFrame(rows, schema=schema, orient="row")).summary
        one = public.select(public.curves.filter(pl.col("curve") == "paper-mnist-fc_1024-sgd-0.03"))
        return find_similar(one, OwnCurve(summary=summary))[0].distance

    assert distance(1000, 157) == pytest.approx(distance(50, 157), abs=0.02)
    assert distance(1000, 157) < distance(1000, 400) < distance(1000, 3000)


def test_a_workload_without_a_curve_finds_its_kind(public):
    neighbours = find_similar(public, OwnCurve(dataset="imagenet", model="vgg_16", kind="convolutional"), 3)
    assert {item.row["dataset"] for item in neighbours} == {"imagenet"}
    with pytest.raises(AnalysisError, match="must be given"):
        find_similar(public, OwnCurve())
