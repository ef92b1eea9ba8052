"""Laws over tokens and parameters: exact where the truth is a law, honest where it scatters, and as published."""

import itertools
import math

import numpy as np
import polars as pl
import pytest

from batchscale.analysis.budget_optima import AT_EDGE, best_rates, find_optima
from batchscale.analysis.grid import GRID_SCHEMA
from batchscale.analysis.laws import grid_laws
from batchscale.analysis.power_law import POINTS_SCHEMA, fit_power_law
from batchscale.atlas.table import read_step_law
from batchscale.errors import AnalysisError

TOKENS = (1e9, 4e9, 16e9, 64e9)
MODELS = (5e7, 1e8, 2e8, 4e8, 8e8)


def points(value, models=MODELS, tokens=TOKENS):
    rows = [(str(n), d, n, value(d, n), value(d, n)) for n, d in itertools.product(models, tokens)]
    return pl.DataFrame(rows, schema=POINTS_SCHEMA, orient="row")


def bowl(batch_size: float, rate: float, best_size: float, best_rate: float) -> float:
    """A loss with its lowest point at a size, and a best rate that grows with the square root of the size."""
    place = math.log(batch_size / best_size)
    return 2.5 + 0.01 * place**2 + 0.03 * (math.log(rate / best_rate) - 0.5 * place) ** 2


@pytest.fixture(scope="module")
def step_law():
    return grid_laws(read_step_law())


def test_an_exact_law_is_found_exactly():
    law = fit_power_law("b_opt", points(lambda d, n: 0.6 * d**0.57 * n**-0.2))
    assert law.names == ("tokens", "parameters") and law.scale == pytest.approx(0.6, rel=1e-6)
    assert law.exponents == pytest.approx({"tokens": 0.57, "parameters": -0.2}, abs=1e-9)
    inside = law.predict(10e9, 3e8)
    assert inside.value == pytest.approx(0.6 * 10e9**0.57 * 3e8**-0.2, rel=1e-6) and inside.outside == 1
    assert inside.high / inside.low == pytest.approx(1, abs=1e-6)


def test_outside_the_points_the_interval_grows_even_for_an_exact_law():
    law = fit_power_law("b_opt", points(lambda d, n: d**0.5 * n**0.1))
    widths = [math.log(p.high / p.low) for p in (law.predict(64e9 * factor, 2e8) for factor in (1, 4, 16))]
    assert (
        widths[0] == pytest.approx(0, abs=1e-6)
        and widths[2] == pytest.approx(2 * widths[1], rel=1e-6)
        and widths[1] > 1
    )
    assert law.predict(256e9, 2e8).outside == pytest.approx(4)


def test_parameters_are_left_out_where_they_predict_nothing():
    rng = np.random.default_rng(1)
    law = fit_power_law("b_crit", points(lambda d, n: d**0.47 * math.exp(0.2 * rng.normal())))
    assert law.names == ("tokens",)
    low, high = law.exponent_ranges["tokens"]
    assert low < 0.47 < high


@pytest.mark.parametrize("at", [(16e9, 2e8), (128e9, 1.6e9)])
def test_intervals_hold_a_new_measurement_as_often_as_they_claim(at):
    """Models differ by 15 % beside the law and measurements by 20 %: 90 % of new models' measurements are inside."""
    rng = np.random.default_rng(0)
    inside = 0
    for _ in range(300):
        of_model = dict(zip(MODELS, 0.15 * rng.normal(size=len(MODELS)), strict=True))
        frame = points(lambda d, n, shift=of_model: d**0.5 * n**-0.1 * math.exp(shift[n] + 0.2 * rng.normal()))
        truth = at[0] ** 0.5 * at[1] ** -0.1 * math.exp(0.15 * rng.normal() + 0.2 * rng.normal())
        prediction = fit_power_law("b_opt", frame).predict(*at)
        inside += prediction.low <= truth <= prediction.high
    assert 0.9 - 3 * math.sqrt(0.09 / 300) <= inside / 300


def test_the_budgets_of_one_model_are_left_out_one_by_one():
    rng = np.random.default_rng(2)
    law = fit_power_law("b_opt", points(lambda d, _: d**0.5 * math.exp(0.1 * rng.normal()), models=(1e8,)))
    assert law.names == ("tokens",) and 0.02 < law.scatter < 0.5 and law.points["predicted"].null_count() == 0
    prediction = law.predict(32e9)
    assert prediction.parameters is None and prediction.low < 32e9**0.5 < prediction.high


def test_too_few_points_are_refused():
    with pytest.raises(AnalysisError, match="three points or more"):
        fit_power_law("b_opt", points(lambda d, _: d, models=(1e8,), tokens=(1e9, 2e9)))
    with pytest.raises(AnalysisError, match="Found 5 at 1"):
        fit_power_law("b_opt", points(lambda d, _: d, tokens=(1e9,)))


def test_the_optimum_of_a_bowl_lies_between_the_grid():
    sizes, rates = 2.0 ** np.arange(15, 23), 1e-3 * 2.0 ** np.arange(-3, 4)
    best = (2**18.4, 1.3e-3)
    rows = [(1e8, 1e9, b, r, bowl(b, r, *best)) for b in sizes for r in rates]
    grid = pl.DataFrame(rows, schema=GRID_SCHEMA, orient="row")
    optimum = find_optima(grid).row(0, named=True)
    assert optimum["batch_size"] == pytest.approx(best[0], rel=1e-3)
    assert optimum["learning_rate"] == pytest.approx(best[1], rel=1e-3)
    assert optimum["loss"] == pytest.approx(2.5, abs=1e-6)
    slope = np.polyfit(best_rates(grid).log_sizes, best_rates(grid).log_rates, 1)[0]
    assert slope == pytest.approx(0.5, abs=0.01)


def test_a_lowest_loss_at_the_edge_is_no_optimum():
    rows = [(1e8, 1e9, b, None, bowl(b, 1e-3, 2**30, 1e-3)) for b in (2**16, 2**17, 2**18)]
    optimum = find_optima(pl.DataFrame(rows, schema=GRID_SCHEMA, orient="row")).row(0, named=True)
    assert optimum["batch_size"] is None and optimum["note"] == AT_EDGE.format("largest")
    with pytest.raises(AnalysisError, match="three batch sizes or more"):
        find_optima(pl.DataFrame(rows[:2], schema=GRID_SCHEMA, orient="row"))


def test_the_public_grid_gives_the_published_exponents(step_law):
    """Step Law: B = 0.58 D^0.571, η = 1.79 N^-0.713 D^0.307, from the same runs and others."""
    low, high = step_law.laws["b_opt"].exponent_ranges["tokens"]
    assert low < 0.571 < high and high - low < 0.12
    rates = step_law.laws["learning_rate"].exponent_ranges
    assert rates["tokens"][0] < 0.307 < rates["tokens"][1] and rates["parameters"][0] < -0.713 < rates["parameters"][1]
    assert (
        step_law.laws["b_crit"].exponent_ranges["tokens"][0]
        < 0.47
        < step_law.laws["b_crit"].exponent_ranges["tokens"][1]
    )


@pytest.mark.parametrize("quantity", ["b_opt", "learning_rate"])
def test_laws_without_a_model_predict_it(step_law, quantity):
    """Each model left out in turn: its optima lie in the intervals, and of its best runs as many as 90 % claims."""
    law = step_law.laws[quantity]
    smooth = law.points.select(((pl.col("value") >= pl.col("low")) & (pl.col("value") <= pl.col("high"))).mean()).item()
    assert smooth == 1.0 and law.covered >= 0.9
    largest = law.points.filter(pl.col("parameters") == pl.col("parameters").max())
    assert len(largest) == 7 and largest["value"].is_between(largest["low"], largest["high"]).all()


def test_the_law_of_all_others_predicts_the_largest_model_by_its_own_interval():
    grid = read_step_law()
    largest = grid["parameters"].max()
    laws = grid_laws(grid.filter(pl.col("parameters") < largest)).laws
    optima = find_optima(grid.filter(pl.col("parameters") == largest)).drop_nulls("batch_size")
    for quantity, column in (("b_opt", "batch_size"), ("learning_rate", "learning_rate")):
        for tokens, value in optima.select("tokens", column).rows():
            prediction = laws[quantity].predict(tokens, largest)
            assert prediction.low <= value <= prediction.high and prediction.outside > 1.9
