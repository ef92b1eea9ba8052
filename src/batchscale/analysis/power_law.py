"""Power laws over tokens and parameters, value = c D^α N^β, with intervals that have been tried on what was left out.

The law is a line in logarithms by least squares. Its scatter is measured by cross-validation: every group of points
(the budgets of one model; single points where each is its own group) is left out and predicted by the others.
A prediction's interval has that scatter, grows with the distance from the points as a line's does, and outside their
range by ``DRIFT`` for every e-fold besides: published exponents of the same law differ by as much.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from batchscale.analysis.curves import Array
from batchscale.analysis.quantiles import student_quantile
from batchscale.errors import AnalysisError

DRIFT = 0.2  # of an exponent outside the range: from 0.38 to 0.57 are published for batch size against tokens
FEWEST_POINTS = 3
CLEARLY = 0.95  # parameters must make errors smaller by 5 %: an exponent of nothing makes them smaller by chance
FEWEST_MODELS = 3  # sizes of models that show an exponent of parameters
LEVEL = 0.9
POINTS_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "group": pl.String,  # points of a group are left out together: those of a model, or a curve alone
    "tokens": pl.Float64,
    "parameters": pl.Float64,  # null where not known
    "value": pl.Float64,  # the optimum, smoothed
    "observed": pl.Float64,  # as measured: of the best run; the same as value where there is no other
}


@dataclass(frozen=True)
class LawPrediction:
    """A value of a law with its interval, and how many times outside the range of its points it lies (1: inside).

    ``low`` and ``high`` hold what a measurement there would find; ``law_low`` and ``law_high`` the smoothed optimum.
    """

    tokens: float
    parameters: float | None
    value: float
    low: float
    high: float
    law_low: float
    law_high: float
    outside: float


@dataclass(frozen=True, eq=False)
class PowerLaw:
    """A fitted law, value = scale · tokens^α · parameters^β.

    Attributes:
        quantity: Its name: b_opt, b_crit or learning_rate.
        names: The predictors: tokens, and parameters if the law has them.
        scale: c.
        exponents: By predictor.
        exponent_ranges: Their intervals.
        scatter: Root mean square error, in logarithms, of predicting a left-out group as measured.
        law_scatter: The same for the smoothed optimum.
        points: The points, with the columns ``predicted``, ``low`` and ``high`` of leaving their group out.
    """

    quantity: str
    names: tuple[str, ...]
    scale: float
    exponents: Mapping[str, float]
    exponent_ranges: Mapping[str, tuple[float, float]]
    scatter: float
    law_scatter: float
    points: pl.DataFrame
    _line: "_Line"

    def predict(self, tokens: float, parameters: float | None = None) -> LawPrediction:
        """Return the value for a planned run.

        Raises:
            AnalysisError: The law has parameters, and none are given.
        """
        if "parameters" in self.names and parameters is None:
            raise AnalysisError(f"The law of {self.quantity} depends on parameters: give --parameters with --tokens.")
        values = {"tokens": tokens, "parameters": parameters or math.nan}
        return self._line.predict(values, self.scatter, self.law_scatter)

    @property
    def covered(self) -> float:
        """The share of measured points that lay in their interval when their group was left out."""
        inside = (pl.col("observed") >= pl.col("low")) & (pl.col("observed") <= pl.col("high"))
        return float(self.points.select(inside.mean()).item())


@dataclass(frozen=True, eq=False)
class _Line:
    """A line in logarithms through points: coefficients, (XᵀX)⁻¹, degrees of freedom, ranges and mean leverage."""

    names: tuple[str, ...]
    coefficients: Array
    inverse: Array
    groups: int
    ranges: Mapping[str, tuple[float, float]]

    def predict(self, values: Mapping[str, float], scatter: float, law_scatter: float) -> LawPrediction:
        row = np.array([1.0, *(math.log(values[name]) for name in self.names)])
        place = float(row @ self.coefficients)
        leverage = float(row @ self.inverse @ row)
        distances = {
            name: max(values[name] / self.ranges[name][1], self.ranges[name][0] / values[name], 1.0)
            for name in self.ranges
            if math.isfinite(values[name])
        }
        drift = DRIFT * math.hypot(*(math.log(distance) for distance in distances.values()))
        factor = student_quantile(max(self.groups - 1, 1), (1 + LEVEL) / 2)
        reaches = [factor * math.hypot(spread * math.sqrt(1 + leverage), drift) for spread in (scatter, law_scatter)]
        low, high, law_low, law_high = (math.exp(place + sign * reach) for reach in reaches for sign in (-1, 1))
        parameters = values["parameters"] if math.isfinite(values["parameters"]) else None
        outside = max(distances.values(), default=1.0)
        return LawPrediction(values["tokens"], parameters, math.exp(place), low, high, law_low, law_high, outside)


def fit_power_law(quantity: str, points: pl.DataFrame) -> PowerLaw:
    """Return the law of a quantity over tokens, and over parameters where they predict what is left out better.

    Args:
        quantity: Its name.
        points: Rows of ``POINTS_SCHEMA``.

    Raises:
        AnalysisError: There are fewer than three points, or they have the same tokens.
    """
    if len(points) < FEWEST_POINTS or points["tokens"].n_unique() < 2:
        raise AnalysisError(
            f"A law of {quantity} needs three points or more, at two numbers of tokens or more. Found {len(points)} at "
            f"{points['tokens'].n_unique()}; measure it for more budgets."
        )
    if points["group"].n_unique() < FEWEST_MODELS:  # too few to leave one out: leave out single points
        points = points.with_columns(pl.int_range(pl.len()).cast(pl.String).alias("group"))
    names: tuple[str, ...] = ("tokens",)
    checked, law_scatter, scatter = _left_out(points, names)
    models = points["parameters"].drop_nulls().n_unique()
    if points["parameters"].null_count() == 0 and models >= FEWEST_MODELS and len(points) > FEWEST_POINTS + 1:
        both = _left_out(points, ("tokens", "parameters"))
        if _error(both[0]) < CLEARLY * _error(checked):
            names, (checked, law_scatter, scatter) = ("tokens", "parameters"), both
    line = _fit_line(points, names)
    factor = student_quantile(max(line.groups - 1, 1), (1 + LEVEL) / 2)
    spread = [factor * law_scatter * math.sqrt(line.inverse[i + 1, i + 1]) for i in range(len(names))]
    exponents = dict(zip(names, line.coefficients[1:].tolist(), strict=True))
    ranges = {
        name: (exponents[name] - reach, exponents[name] + reach) for name, reach in zip(names, spread, strict=True)
    }
    scale = math.exp(line.coefficients[0])
    return PowerLaw(quantity, names, scale, exponents, ranges, scatter, law_scatter, checked, line)


def _fit_line(points: pl.DataFrame, names: Sequence[str]) -> _Line:
    rows = np.column_stack([np.ones(len(points)), *(np.log(points[name].to_numpy()) for name in names)])
    inverse = np.linalg.pinv(rows.T @ rows)
    coefficients = inverse @ rows.T @ np.log(points["value"].to_numpy())
    ranges = {}
    for name in ("tokens", "parameters"):
        values = points[name].drop_nulls().to_numpy()
        if len(values):
            ranges[name] = (float(values.min()), float(values.max()))
    return _Line(tuple(names), coefficients, inverse, points["group"].n_unique(), ranges)


def _left_out(points: pl.DataFrame, names: Sequence[str]) -> tuple[pl.DataFrame, float, float]:
    """Return the points with predictions by the other groups, and the scatter of optima and of measurements.

    The interval of a left-out group uses the scatter that the other groups show among themselves, where three or more
    of them do; otherwise that of all.
    """
    parts = []
    for group in points["group"].unique(maintain_order=True):
        rest, own = points.filter(pl.col("group") != group), points.filter(pl.col("group") == group)
        if rest.select(names).n_unique() > len(names):
            parts.append((rest, own, _fit_line(rest, names)))
    law_scatter, scatter = _scatters(parts)
    frames = []
    for rest, own, line in parts:
        inner = [
            (left, out, _fit_line(left, names))
            for group in rest["group"].unique(maintain_order=True)
            if (left := rest.filter(pl.col("group") != group)).select(names).n_unique() > len(names)
            and len(out := rest.filter(pl.col("group") == group))
        ]
        own_scatter = _scatters(inner)[1] if len(inner) >= FEWEST_MODELS else scatter
        found = [line.predict(_values(row), own_scatter, own_scatter) for row in own.iter_rows(named=True)]
        ends = [(item.value, item.low, item.high) for item in found]
        schema = {"predicted": pl.Float64, "low": pl.Float64, "high": pl.Float64}
        frames.append(pl.concat([own, pl.DataFrame(ends, schema=schema, orient="row")], how="horizontal"))
    empty = [pl.lit(None, dtype=pl.Float64).alias(name) for name in ("predicted", "low", "high")]
    return pl.concat(frames) if frames else points.with_columns(empty), law_scatter, scatter


def _error(checked: pl.DataFrame) -> float:
    """Return the root mean square error of predictions of what was left out; infinite without any."""
    squares = checked.select(((pl.col("value") / pl.col("predicted")).log() ** 2).mean()).item()
    return math.inf if squares is None else math.sqrt(squares)


def _scatters(parts: Sequence[tuple[pl.DataFrame, pl.DataFrame, _Line]]) -> tuple[float, float]:
    """Return the scatter of optima and of measurements about predictions, without what their leverage explains."""
    squares: dict[str, list[float]] = {"value": [], "observed": []}
    for _, own, line in parts:
        for row in own.iter_rows(named=True):
            place = np.array([1.0, *(math.log(row[name]) for name in line.names)])
            leverage = float(place @ line.inverse @ place)
            for name, errors in squares.items():
                error = math.log(row[name]) - float(place @ line.coefficients)
                errors.append(error * error / (1 + leverage))
    value, observed = (math.sqrt(float(np.mean(errors))) if errors else math.nan for errors in squares.values())
    return value, observed


def _values(row: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if row[name] is None else float(row[name] or 0) for name in ("tokens", "parameters")}
