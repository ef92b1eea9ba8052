"""The noisy quadratic system: its fast sum against the whole sum, and fits judged by runs that they have not seen."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy.special import zeta

from batchscale.analysis.grid import read_grid
from batchscale.errors import AnalysisError
from batchscale.prediction.noisy_quadratic_system import (
    PUBLISHED,
    RATE,
    NoisyQuadraticSystem,
    fit_system,
    hold_back_largest,
    log_error,
    system_predictions,
)

FILE = Path(__file__).parent.parent / "golden" / "nqs_runs.csv"


def published_runs() -> pl.DataFrame:
    """The runs that the authors fit to."""
    used = ~pl.read_csv(FILE)["filtered"]
    return read_grid(FILE, merge=False).filter(used)


def whole_sum(system: NoisyQuadraticSystem, count: int, size: float, steps: float) -> float:
    p, q, risk, curvature, floor, noise, r = system.letters.values()
    n = np.arange(1, count + 1, dtype=np.float64)
    curvatures = curvature * n**-q
    beta = (1 - RATE * curvatures) ** 2
    bias = 0.5 * risk * n**-p * beta**steps
    variance = 0.5 * curvatures * noise * n**-r * RATE**2 / size * (1 - beta**steps) / (1 - beta)
    return floor + 0.5 * risk * zeta(p, count + 1) + float(np.sum(bias + variance))


@pytest.mark.parametrize("count", [101, 5_000, 250_000])
def test_the_fast_sum_is_the_whole_sum(count):
    other = NoisyQuadraticSystem(1.6, 1.2, 8.0, 0.3, 1.0, 40.0, 0.4)
    for system in (PUBLISHED, other):
        for size, steps in ((24, 39), (1000, 40_000), (20_000, 300)):
            assert system.loss(count, size, steps)[0] == pytest.approx(whole_sum(system, count, size, steps), rel=2e-8)


def test_a_fit_predicts_runs_that_it_has_not_seen():
    truth = NoisyQuadraticSystem(1.2, 0.7, 4.0, 0.8, 0.6, 6.0, 1.0)
    runs = published_runs()
    steps = (runs["tokens"] / runs["batch_size"]).to_numpy()
    losses = truth.loss(runs["parameters"].to_numpy(), runs["batch_size"].to_numpy(), steps)
    smaller, largest = hold_back_largest(runs.with_columns(pl.Series("loss", losses)), 0.3)
    assert smaller["tokens"].dot(smaller["parameters"]) < largest["tokens"].dot(largest["parameters"])
    fit = fit_system(smaller)
    assert fit.rms_log < 1e-4 and log_error(fit.system, largest) < 1e-3


def test_on_the_authors_runs_the_fit_is_at_least_as_close_as_theirs():
    runs = published_runs()
    assert len(runs) == 64
    fit = fit_system(runs, resamples=12)
    theirs = log_error(PUBLISHED, runs)
    assert fit.rms_log == pytest.approx(log_error(fit.system, runs))
    assert 0.025 < fit.rms_log <= theirs < 0.0264
    assert fit.system.risk_exponent == pytest.approx(PUBLISHED.risk_exponent, abs=0.02)  # p and q are determined
    assert fit.system.curvature_exponent == pytest.approx(PUBLISHED.curvature_exponent, abs=0.03)
    assert {"R", "r"} <= set(fit.weak) and not {"p", "q"} & set(fit.weak)
    critical, optimal = system_predictions(fit, 100e6, 3.3, runs)
    assert critical.quantity == "critical_batch_size" and optimal.quantity == "optimal_batch_size"
    assert critical.estimate.low < critical.estimate.value < critical.estimate.high
    assert critical.trial_steps == pytest.approx((runs["tokens"] / runs["batch_size"]).sum(), abs=1)
    sizes = np.geomspace(20, 2000, 200)
    examples = [size * (fit.system.steps_to_loss(100e6, size, 3.3) or np.inf) for size in sizes]
    assert optimal.estimate.value == pytest.approx(sizes[np.argmin(examples)], rel=0.1)  # by direct search


def test_held_back_runs_of_most_compute_are_predicted_within_a_twentieth():
    smaller, largest = hold_back_largest(published_runs())
    assert len(largest) == 13
    assert log_error(fit_system(smaller).system, largest) < 0.05


def test_steps_to_a_loss_are_where_the_loss_passes_it():
    steps = PUBLISHED.steps_to_loss(100e6, 512, 3.3)
    assert PUBLISHED.loss(100e6, 512, steps)[0] == pytest.approx(3.3, rel=1e-6)
    assert PUBLISHED.steps_to_loss(100e6, 8, 3.3) is None  # the noise is too large at this learning rate
    assert PUBLISHED.steps_to_loss(100e6, 512, 20.0) == pytest.approx(1)


def test_runs_that_cannot_determine_a_system_are_refused():
    runs = published_runs()
    with pytest.raises(AnalysisError, match="12 runs or more"):
        fit_system(runs.head(3))
    with pytest.raises(AnalysisError, match="different parameters"):
        fit_system(runs.with_columns(parameters=pl.lit(1e7)))
    with pytest.raises(AnalysisError, match="losses above 0"):
        fit_system(runs.with_columns(loss=pl.col("loss") - 5))
