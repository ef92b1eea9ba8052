"""The trials of a curve by batch size, in coordinates of their metaparameters, with the optimum at each size.

Owns where the optimum lies at a size that was measured, between two, or outside; ``optima`` has the arithmetic,
``suggestion`` turns places into values, ``single_training`` into steps.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from batchscale.analysis.curves import AnyArray, Array
from batchscale.analysis.intervals import Estimate
from batchscale.analysis.optima import (
    FEWEST_SIZES,
    RATE,
    SCATTER,
    Coordinates,
    find_coordinates,
    fit_trend,
    smooth_place,
    soft_optimum,
    soft_weights,
)
from batchscale.analysis.outcomes import Outcome
from batchscale.analysis.single_training import DRAWS, Bowl, TrialCloud
from batchscale.records.frames import Records, searched_spaces
from batchscale.spec.space import Scale

OTHER_SCATTER = 0.15  # of the optima of other metaparameters than the rate, in standard deviations of the trials
RATE_FLOOR = 0.2  # the least standard error of the log rate: near the optimum trials hardly differ
SAFE = 0.75  # the share of trials that must not diverge around a rate that is extrapolated
# Standard errors below the trend outside the sizes: too high a rate fails, too low a one costs steps. Towards smaller
# sizes noise grows. A rate in proportion to the batch size keeps the noise as it was: no lower than that.
CAUTION_ABOVE, CAUTION_BELOW = 0.5, 1.5
_RATE_NEAR = 0.35  # log rate that counts as near, for that share
_OTHERS_NEAR = 0.7  # standard deviations of the other metaparameters
_INTERPOLATED_ERROR = 0.2  # of log steps between two sizes without a law
_NORMAL_90 = 1.645


@dataclass(frozen=True)
class Place:
    """A place in one coordinate: the estimated optimum with its standard error, and the place chosen to train at."""

    best: float
    chosen: float
    error: float | None

    @property
    def ends(self) -> tuple[float, float]:
        """The 90 % range of the optimum; both ends at it where its error is unknown."""
        reach = _NORMAL_90 * (self.error or 0.0)
        return self.best - reach, self.best + reach


@dataclass(frozen=True, eq=False)
class TunedSizes:
    """The studies of one curve that reached the goal, by growing batch size, and the trials of all its studies.

    ``optima`` has a row for each size and a column for each coordinate.
    """

    metaparameters: tuple[str, ...]
    sizes: list[int]
    steps: Array
    budgets: Mapping[int, int]
    trials: pl.DataFrame
    confirmations: pl.DataFrame
    winners: pl.DataFrame
    coordinates: Coordinates
    optima: Array
    spread: Array

    @property
    def log_sizes(self) -> Array:
        """Logarithms of the batch sizes."""
        return np.asarray(np.log(self.sizes))

    def nearest(self, batch_size: int) -> int:
        """Return the size nearest in ratio."""
        return min(self.sizes, key=lambda size: abs(math.log(size / batch_size)))

    def steps_at(self, batch_size: int) -> float:
        """Return the steps to result, smoothed over the measured sizes; outside them, those of the nearest."""
        return _smooth_steps(self.sizes, self.steps, batch_size)

    def reached(self, size: int) -> pl.DataFrame:
        """Return the trials of a size that reached the goal."""
        return self.trials.filter(
            (pl.col("batch_size") == size)
            & (pl.col("outcome") == Outcome.REACHED.value)
            & (pl.col("steps_to_goal") > 0)
        )

    def near_winner(self, name: str, size: int, close: float) -> tuple[object, ...]:
        """Return the range of the trials close to the fewest steps, their number, and the winner's value."""
        trials = self.reached(size).drop_nulls(name)
        best = float(self.steps[self.sizes.index(size)])
        values = trials.filter(pl.col("steps_to_goal") <= (1 + close) * best)[name]
        winner = self.winners.filter(pl.col("batch_size") == size)[name][0]
        return values.min(), values.max(), len(values), winner

    def most_frequent(self, name: str, size: int) -> float | None:
        """Return the value with the largest weight among the trials of the nearest size that has one."""
        for near in sorted(self.sizes, key=lambda other: abs(math.log(other / size))):
            trials = self.reached(near).drop_nulls(name)
            if trials.height:
                weights = soft_weights(trials["steps_to_goal"].cast(pl.Float64).to_numpy())
                totals: dict[float, float] = {}
                for value, weight in zip(trials[name].to_list(), weights, strict=True):
                    totals[value] = totals.get(value, 0.0) + float(weight)
                return float(max(totals, key=lambda value: totals[value]))
        return None

    # --- the optimum at a size --------------------------------------------------------------------------------------

    def places_at(self, batch_size: int, *, extrapolate: bool) -> dict[str, Place]:
        """Return the place of every coordinate at a batch size; outside without ``extrapolate``, the nearest size's."""
        inside = min(max(batch_size, self.sizes[0]), self.sizes[-1])
        places = {}
        for column, name in enumerate(self.coordinates.names):
            scatter = None if name == RATE else OTHER_SCATTER * float(self.spread[column])
            place = self._place(column, inside, scatter)
            if place is None:
                continue
            if extrapolate and inside != batch_size:
                place = self._outside(column, name, place, batch_size)
            places[name] = place
        if RATE in places and extrapolate and inside != batch_size:
            places[RATE] = self._bounded(places, batch_size)
        return places

    def _optima_of(self, column: int) -> tuple[Array, Array]:
        has = ~np.isnan(self.optima[:, column])
        return self.log_sizes[has], self.optima[has, column]

    def _place(self, column: int, size: int, scatter: float | None) -> Place | None:
        log_sizes, optima = self._optima_of(column)
        if not len(optima):
            return None
        best, norm = smooth_place(log_sizes, optima, math.log(size))
        trend = fit_trend(log_sizes, optima) if scatter is None else fit_trend(log_sizes, optima, scatter)
        floor = RATE_FLOOR if scatter is None else scatter * RATE_FLOOR / SCATTER
        return Place(best, best, None if trend is None else math.sqrt(trend.variance * norm + floor**2))

    def _outside(self, column: int, name: str, nearest: Place, batch_size: int) -> Place:
        log_sizes, optima = self._optima_of(column)
        if name == RATE and len(optima) >= FEWEST_SIZES:
            trend = fit_trend(log_sizes, optima)
            assert trend is not None
            place, error = trend.at(math.log(batch_size))
            if batch_size > self.sizes[-1]:
                return Place(place, place - CAUTION_ABOVE * error, error)
            linear = nearest.best + math.log(batch_size / self.sizes[0])
            return Place(place, max(place - CAUTION_BELOW * error, min(linear, place)), error)
        scatter = float(np.std(optima)) if len(optima) > 1 else 0.0
        return Place(
            nearest.best, nearest.chosen, None if nearest.error is None else math.hypot(nearest.error, scatter)
        )

    def _bounded(self, places: Mapping[str, Place], batch_size: int) -> Place:
        """Return the place of the rate, lowered to what mostly trained at the nearest size around the other values.

        A rate that trains at one size trains at a larger one, where gradients have less noise. Towards smaller sizes
        the bound moves with the trend.
        """
        rate, column = places[RATE], self.coordinates.names.index(RATE)
        end = self.sizes[-1] if batch_size > self.sizes[-1] else self.sizes[0]
        log_sizes, optima = self._optima_of(column)
        start, _ = smooth_place(log_sizes, optima, math.log(end))
        moved = min(rate.best - start, 0.0) if batch_size < end else 0.0
        trials = self.trials.filter(
            (pl.col("batch_size") == end) & pl.col("outcome").is_in([Outcome.REACHED.value, Outcome.INFEASIBLE.value])
        )
        offsets = self.coordinates.places(trials, self.steps_at(end))
        centre = np.array([places[name].chosen if name in places else math.nan for name in self.coordinates.names])
        widths = np.where(np.arange(len(centre)) == column, _RATE_NEAR, _OTHERS_NEAR * self.spread)
        trained = (trials["outcome"] == Outcome.REACHED.value).to_numpy()
        bound = start
        for at in np.arange(start, max(rate.chosen - moved, start) + 0.05, 0.05):
            centre[column] = at
            weights = np.exp(-0.5 * np.nan_to_num((offsets - centre) / widths) ** 2).prod(axis=1)
            if float((weights * trained).sum()) + 0.2 < SAFE * (float(weights.sum()) + 0.2):
                break
            bound = at
        return Place(rate.best, min(rate.chosen, bound + moved), rate.error)

    # --- for one training -------------------------------------------------------------------------------------------

    def cloud(self) -> TrialCloud:
        """Return the trials that ended as arrays, with their offsets from the optimum of their size."""
        ended = pl.concat([self.trials, self.confirmations]).filter(pl.col("outcome") != Outcome.INCOMPLETE.value)
        frames = ended.partition_by("batch_size", maintain_order=True)
        parts = []
        for frame in frames:
            size = int(frame["batch_size"][0])
            near = self.places_at(size, extrapolate=len(self.sizes) >= FEWEST_SIZES)
            centre = np.array([near[name].best if name in near else 0.0 for name in self.coordinates.names])
            offsets = np.nan_to_num((self.coordinates.places(frame, self.steps_at(size)) - centre) / self.spread)
            reached = (frame["outcome"] == Outcome.REACHED.value).to_numpy()
            diverged = (frame["outcome"] == Outcome.INFEASIBLE.value).to_numpy()
            last = frame["last_step"].to_numpy()
            steps = np.where(reached, frame["steps_to_goal"].fill_null(0).to_numpy(), last)
            tuned = size in self.sizes
            parts.append(
                (
                    np.full(len(last), math.log(size)),
                    offsets,
                    np.log(np.maximum(steps, 1.0)),
                    reached,
                    diverged | (not tuned),
                )
            )
        log_sizes, offsets, log_steps, reached, failed = (
            np.concatenate(columns) for columns in zip(*parts, strict=True)
        )
        return TrialCloud(log_sizes, offsets, log_steps, reached, failed, self.spread, self._is_rate)

    @property
    def _is_rate(self) -> AnyArray:
        """True for the column of the learning rate, if its place is a logarithm."""
        configs = self.coordinates.configs
        return np.array([name == RATE and configs[name].scale is Scale.LOG for name in configs], dtype=bool)

    def draw_levels(self, bowl: Bowl, batch_size: int, search_steps: Estimate, rng: np.random.Generator) -> Array:
        """Return draws of the log steps of a training at the optimum of a batch size.

        At a measured size from its own trials. Elsewhere from the law of the curve, raised by what a training needs
        more than the best of a search, at the measured sizes. Outside without a law: from no gain to perfect scaling.
        """
        normal = rng.normal(size=DRAWS)
        log_size = math.log(batch_size)
        if batch_size in self.sizes:
            i = self.sizes.index(batch_size)
            return np.asarray(bowl.levels[i] + bowl.level_errors[i] * normal)
        if search_steps.value is not None and search_steps.low is not None and search_steps.high is not None:
            middle = math.log(search_steps.value)
            down = (middle - math.log(max(search_steps.low, 1.0))) / _NORMAL_90
            up = (math.log(search_steps.high) - middle) / _NORMAL_90
            more = bowl.levels - np.log(self.steps)
            extra = float(np.interp(log_size, self.log_sizes, more)) * 0.5 + 0.5 * float(more.mean())
            return np.asarray(middle + extra + np.where(normal < 0, down, up) * normal)
        level = float(np.interp(log_size, self.log_sizes, bowl.levels))
        if self.sizes[0] < batch_size < self.sizes[-1]:
            return np.asarray(level + _INTERPOLATED_ERROR * normal)
        gain = math.log(batch_size / self.nearest(batch_size))
        return np.asarray(level - gain * rng.random(DRAWS) + float(bowl.level_errors.mean()) * normal)

    def log_budget(self, batch_size: int) -> float | None:
        """Return the logarithm of the step budget at a size, between its neighbours'; None if any has none."""
        if any(budget <= 0 for budget in self.budgets.values()):
            return None
        sizes = sorted(self.budgets)
        logs = np.log([self.budgets[size] for size in sizes])
        inside = float(np.interp(math.log(batch_size), np.log(sizes), logs))
        return inside + math.log(max(sizes[0] / batch_size, 1.0))


def _smooth_steps(sizes: list[int], steps: Array, batch_size: int) -> float:
    inside = min(max(batch_size, sizes[0]), sizes[-1])
    return math.exp(smooth_place(np.log(sizes), np.log(steps), math.log(inside))[0])


def read_tuned_sizes(
    records: Records, outcomes: pl.DataFrame, winners: pl.DataFrame, confirmations: pl.DataFrame
) -> TunedSizes:
    """Return the tuned sizes of one workload's records.

    Args:
        records: Of one workload.
        outcomes: Its ``trial_outcomes`` for one goal.
        winners: Its ``results_of`` with steps, by growing batch size.
        confirmations: The outcomes of trials that train others again, which are trainings like that of a suggestion.
    """
    spaces = {study[-1]: searched[-1] for study, searched in searched_spaces(records).items()}
    sizes: list[int] = winners["batch_size"].to_list()
    steps = winners["steps"].cast(pl.Float64).to_numpy()
    reached = outcomes.filter(pl.col("outcome") == Outcome.REACHED.value)
    configs = [{config.name: config for config in spaces[size]} for size in sizes]
    coordinates = find_coordinates(outcomes.filter(pl.col("outcome") != Outcome.INCOMPLETE.value), configs)
    optima, places = [], []
    for size in sizes:
        horizon = _smooth_steps(sizes, steps, size)
        trials = reached.filter((pl.col("batch_size") == size) & (pl.col("steps_to_goal") > 0))
        optima.append(
            soft_optimum(coordinates.places(trials, horizon), trials["steps_to_goal"].cast(pl.Float64).to_numpy())
        )
        ended = outcomes.filter((pl.col("batch_size") == size) & (pl.col("outcome") != Outcome.INCOMPLETE.value))
        places.append(coordinates.places(ended, horizon) - optima[-1])
    spread = np.sqrt(np.nanmean(np.concatenate(places) ** 2, axis=0)) if coordinates.names else np.zeros(0)
    constant = spread <= 1e-6 * np.nanmax(np.abs(optima), axis=0, initial=0.0)  # but for rounding
    budgets = dict(records.studies.select("batch_size", "train_steps").rows())
    names = tuple(name for name in records.metaparameters if reached[name].null_count() < reached.height)
    return TunedSizes(
        metaparameters=names,
        sizes=sizes,
        steps=steps,
        budgets=budgets,
        trials=outcomes,
        confirmations=confirmations,
        winners=winners,
        coordinates=coordinates,
        optima=np.array(optima),
        spread=np.where(constant, 1.0, spread),
    )
