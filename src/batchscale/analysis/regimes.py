"""The regimes of a curve: perfect scaling, diminishing returns, maximal data parallelism (Shallue et al., section 4.1).

This module and ``boundaries`` own every definition. Sentences, charts, tables, comparisons and JSON read the one
``Regimes`` of a curve, so a boundary that a picture shows is the one that the sentence beside it states.
docs/analysis.md has the formulas.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchscale.analysis.boundaries import (
    cheap_from,
    fewest_examples,
    last_doubling,
    overhead_batch_size,
    perfect_scaling_range,
    useful_batch_size,
)
from batchscale.analysis.confidence_set import ConfidenceSet
from batchscale.analysis.curves import Array
from batchscale.analysis.intervals import Estimate
from batchscale.errors import AnalysisError

FEWEST_SIZES = 2
WIDE_END = 3  # an end of perfect scaling within an interval of more measured sizes than these is not stated
LONG_PLATEAU = 4  # a plateau over this factor of batch sizes is one, whatever its last two points do


class Baseline(StrEnum):
    """The point that the line of perfect scaling is drawn through: that with the fewest examples, or the first."""

    ROBUST = "robust"
    FIRST = "first"


class Regime(StrEnum):
    """The name of a regime, as charts and tables print it."""

    PERFECT = "perfect scaling"
    DIMINISHING = "diminishing returns"
    MAXIMAL = "maximal data parallelism"
    RISING = "steps rise"
    UNDECIDED = "not decided"


class PlateauStatus(StrEnum):
    """The evidence of a plateau: it was reached, steps are still falling, or the points leave it open."""

    REACHED = "reached"
    FALLING = "falling"
    OPEN = "open"


@dataclass(frozen=True)
class Thresholds:
    """The tolerances of the boundaries.

    Attributes:
        perfect: τ of the end of perfect scaling: how far above the line a point may lie.
        useful: how far above the fewest steps the maximum useful batch size may lie.
        falling: a gain of more than this in the last doubling, by all laws, means that steps still fall, if the last
            two points show half of it (unless the useful size is at most a quarter of the largest measured: then the
            fall came before).
        overhead: τ of ``overhead_batch_size``: how many more examples than the fewest.
        band: how many more examples than at the optimal size a size of its band may need.
    """

    perfect: float = 0.3
    useful: float = 0.2
    falling: float = 0.1
    overhead: float = 0.2
    band: float = 0.05

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (math.isfinite(value) and value > 0) or (name == "falling" and value >= 1):
                raise AnalysisError(f"The threshold '{name}' must be a share above 0. Found {value:g}.")


DEFAULT_THRESHOLDS = Thresholds()


class RegimeSpan(NamedTuple):
    """A regime between two batch sizes."""

    regime: Regime
    start: int
    end: int


@dataclass(frozen=True)
class Regimes:
    """The boundaries of a curve.

    Attributes:
        baseline: The kind of line that perfect scaling is measured against.
        baseline_examples: The examples to result on that line.
        thresholds: The tolerances used.
        largest: The largest measured size.
        cheapest: The measured size with the fewest examples to result.
        perfect_scaling_start: The measured size that the line goes through: ``cheapest`` for the robust baseline.
        cheap_from: The smallest size from which on, up to that one, examples stay within the tolerance: perfect scaling
            is shown from here. Smaller sizes belong to no regime.
        perfect_scaling_end: The largest size from there on up to which examples stay within the tolerance; its
            interval, over the confidence set, is counted from the smallest size.
        is_end_open: True if that interval spans more than three measured sizes, or all: then no end is stated.
        useful: The smallest size with steps close to the fewest measured; its interval ends at measured sizes.
        measured_gain: The share of steps saved by the last doubling of the batch size, as measured; below 0 where
            steps rose.
        last_doubling_gain: The same by the laws of the confidence set: the best law's, and the range over the set.
        plateau: The evidence that sizes beyond ``useful`` save nothing more.
        overhead_batch_size: The largest size whose examples are close to the fewest.
        rising_after: The size after which all larger ones need clearly more steps than the fewest; the largest size if
            steps do not rise.
    """

    baseline: Baseline
    baseline_examples: float
    thresholds: Thresholds
    largest: int
    cheapest: int
    perfect_scaling_start: int
    cheap_from: int
    perfect_scaling_end: Estimate
    is_end_open: bool
    useful: Estimate
    measured_gain: float
    last_doubling_gain: Estimate
    plateau: PlateauStatus
    overhead_batch_size: int
    rising_after: int

    @property
    def perfect_end(self) -> int:
        """The measured end of perfect scaling."""
        return int(self.perfect_scaling_end.value or self.perfect_scaling_start)

    @property
    def is_too_short(self) -> bool:
        """True if steps that do not fall at all would stay within the tolerance up to the end of perfect scaling."""
        start, end = self.cheap_from, self.perfect_end
        return start < end <= start * (1 + self.thresholds.perfect)

    @property
    def max_useful_reached(self) -> bool:
        """True if the points show a plateau."""
        return self.plateau is PlateauStatus.REACHED

    @property
    def max_useful_batch_size(self) -> int:
        """The useful size where a plateau was reached; otherwise the largest size measured, as "at least"."""
        return int(self.useful.value or self.largest) if self.max_useful_reached else self.largest

    def spans(self) -> tuple[RegimeSpan, ...]:
        """Return the regimes by growing batch size, without those that no two measured sizes span.

        Where perfect scaling may or may not have ended, by its interval, no regime is decided.
        """
        start, end, ends = self.cheap_from, self.perfect_end, self.perfect_scaling_end
        falls_to = self.largest if self.plateau is PlateauStatus.FALLING else max(int(self.useful.value or end), end)
        sure = max(start, int(end if ends.low is None else min(ends.low, end)))
        last = min(falls_to, int(end if ends.high is None else max(ends.high, end)))
        spans = (
            RegimeSpan(
                Regime.PERFECT if sure > start * (1 + self.thresholds.perfect) else Regime.UNDECIDED, start, sure
            ),
            RegimeSpan(Regime.UNDECIDED, sure, last),
            RegimeSpan(Regime.DIMINISHING, last, falls_to),
            RegimeSpan(Regime.MAXIMAL if self.max_useful_reached else Regime.UNDECIDED, falls_to, self.rising_after),
            RegimeSpan(Regime.RISING, max(falls_to, self.rising_after), self.largest),
        )
        return tuple(span for span in spans if span.start < span.end)

    def regime_of(self, batch_size: int) -> Regime | None:
        """Return the regime of a measured size; None for sizes before perfect scaling starts."""
        spans = self.spans()
        if spans and batch_size == self.cheap_from == spans[0].start:
            return spans[0].regime if spans[0].regime is not Regime.DIMINISHING else Regime.PERFECT
        return next((span.regime for span in spans if span.start < batch_size <= span.end), None)


@dataclass(frozen=True, eq=False)
class MeasuredCurve:
    """The points of a curve.

    Attributes:
        sizes: Two batch sizes or more, growing.
        steps: Their steps to result.
        reach: How far each point may lie off the truth, in logarithms; None where that is not known.
        coarse: True for each point whose evaluation spacing leaves its steps open; such points show no plateau.
        intervals: The measured intervals of the steps, None for an end that is not known.
    """

    sizes: Array
    steps: Array
    reach: Array | None
    coarse: NDArray[np.bool_]
    intervals: tuple[tuple[float | None, float | None], ...] = ()


def find_regimes(
    curve: MeasuredCurve,
    confidence_set: ConfidenceSet | None,
    baseline: Baseline = Baseline.ROBUST,
    thresholds: Thresholds = DEFAULT_THRESHOLDS,
) -> Regimes:
    """Return the boundaries of a curve.

    Args:
        curve: The points.
        confidence_set: The laws that agree with the points; None if there are none, as for two sizes.
        baseline: The line of perfect scaling.
        thresholds: The tolerances.
    """
    sizes, steps = curve.sizes, curve.steps
    examples = baseline_examples(sizes, steps, baseline)
    start, end = perfect_scaling_range(sizes, steps, examples, thresholds.perfect)
    end = max(min(end, float(sizes[int(np.argmin(steps))])), start)  # sizes that need more steps scale no further
    useful = useful_batch_size(sizes, steps, thresholds.useful)
    gain = _last_doubling_gain(confidence_set, sizes)
    coarse_plateau = bool(curve.coarse[sizes >= useful].any())
    plateau = PlateauStatus.OPEN if coarse_plateau else _plateau_status(sizes, steps, useful, gain, thresholds)
    end_range = _perfect_scaling_end(confidence_set, curve, (start, end), baseline, thresholds.perfect)
    if plateau is PlateauStatus.REACHED:
        # Where nothing more is gained, nothing falls in proportion: tolerances of both sides must not overlap.
        end = max(min(end, useful), start)
    perfect_end = Estimate(end, None if end_range.low is None else min(end_range.low, end), end_range.high)
    return Regimes(
        baseline=baseline,
        baseline_examples=examples,
        thresholds=thresholds,
        largest=int(sizes[-1]),
        cheapest=int(sizes[fewest_examples(sizes, steps)]),
        perfect_scaling_start=int(start),
        cheap_from=int(cheap_from(sizes, steps, start, thresholds.perfect)),
        perfect_scaling_end=perfect_end,
        is_end_open=_is_open(perfect_end, sizes),
        useful=_useful(confidence_set, curve, useful, plateau, thresholds.useful),
        measured_gain=1 - last_doubling(sizes, steps),
        last_doubling_gain=gain,
        plateau=plateau,
        overhead_batch_size=int(overhead_batch_size(sizes, steps, thresholds.overhead)),
        rising_after=int(rising_after(curve, thresholds.useful)),
    )


def baseline_examples(sizes: Array, steps: Array, baseline: Baseline) -> float:
    """Return the examples to result that perfect scaling keeps: the height of the line S = E/B.

    ``first``: E of the smallest batch size. ``robust``: the fewest E measured at any size, so that an unlucky study
    at the smallest size cannot lift the line, and nothing above the line is called perfect.
    """
    examples = steps * sizes
    return float(examples[0] if baseline is Baseline.FIRST else examples.min())


def rising_after(curve: MeasuredCurve, tolerance: float) -> float:
    """Return the size after which all larger ones need more steps than the fewest, beyond the tolerance.

    A size whose interval overlaps that of the fewest steps does not count. The largest size if steps do not rise so.
    """
    fastest = int(np.flatnonzero(curve.steps <= curve.steps.min())[-1])
    intervals = curve.intervals or ((None, None),) * len(curve.sizes)
    highest = intervals[fastest][1]
    after = fastest
    for i in range(fastest, len(curve.sizes)):
        low = intervals[i][0]
        is_noise = low is not None and highest is not None and low <= highest
        if is_noise or curve.steps[i] <= (1 + tolerance) * curve.steps[fastest]:
            after = i
    return float(curve.sizes[after])


def _plateau_status(sizes: Array, steps: Array, useful: float, gain: Estimate, thresholds: Thresholds) -> PlateauStatus:
    if useful * LONG_PLATEAU <= sizes[-1] or (gain.high is not None and gain.high <= thresholds.falling):
        return PlateauStatus.REACHED
    # A smaller size with fewer steps, or a last pair that hardly fell, contradicts laws by which steps still fall.
    agrees = bool(steps[-1] <= steps.min()) and 1 - last_doubling(sizes, steps) > thresholds.falling / 2
    if gain.low is not None and gain.low > thresholds.falling and agrees:
        return PlateauStatus.FALLING
    return PlateauStatus.OPEN


def _last_doubling_gain(confidence_set: ConfidenceSet | None, sizes: Array) -> Estimate:
    """Return the gain by the best law and its range over the confidence set; empty without one."""
    if confidence_set is None:
        return Estimate()
    pair = np.array([sizes[-1] / 2, sizes[-1]])
    logs = confidence_set.log_steps(pair)
    gains = -np.expm1(logs[:, 1] - logs[:, 0])
    best = confidence_set.best.steps(pair)
    value = float(1 - best[1] / best[0])
    return Estimate(value, min(float(gains.min()), value), max(float(gains.max()), value))


def _perfect_scaling_end(
    confidence_set: ConfidenceSet | None,
    curve: MeasuredCurve,
    measured: tuple[float, float],
    baseline: Baseline,
    tolerance: float,
) -> Estimate:
    """Return the end of perfect scaling with its range over the laws, or over the noise of the points.

    The noise of the points decides where no law has the measured end: there the laws are not about these points.
    """
    sizes, (start, end) = curve.sizes, measured
    if confidence_set is not None:
        logs = confidence_set.log_steps(sizes) + np.log(sizes)
        first = np.zeros(len(logs), dtype=int) if baseline is Baseline.FIRST else np.argmin(logs, axis=1)
        line = np.take_along_axis(logs, first[:, None], axis=1)
        beyond = (logs > line + math.log1p(tolerance)) & (np.arange(len(sizes)) >= first[:, None])
        ends = sizes[np.where(beyond.any(axis=1), np.argmax(beyond, axis=1), len(sizes)) - 1]
        if ends.min() <= end <= ends.max():
            return Estimate(end, float(ends.min()), float(ends.max()))
    if curve.reach is None:
        return Estimate(end)
    begin = int(np.searchsorted(sizes, start))
    logs = np.log(sizes * curve.steps)[begin:]
    spread = np.hypot(curve.reach[begin:], curve.reach[begin])
    spread[0] = 0.0
    surely, perhaps = (
        float(sizes[begin + int(np.argmax(np.append(values > logs[0] + math.log1p(tolerance), True))) - 1])
        for values in (logs + spread, logs - spread)
    )
    return Estimate(end, min(surely, end), max(perhaps, end))


def _is_open(end: Estimate, sizes: Array) -> bool:
    if end.low is None or end.high is None:
        return False
    between = int(((sizes >= end.low) & (sizes <= end.high)).sum())
    return between > WIDE_END or between == len(sizes) > FEWEST_SIZES


def _useful(
    confidence_set: ConfidenceSet | None, curve: MeasuredCurve, useful: float, plateau: PlateauStatus, tolerance: float
) -> Estimate:
    """Return the useful size with its range over the laws, or over the noise of the points where no law has it."""
    sizes, is_bounded = curve.sizes, plateau is PlateauStatus.REACHED
    if confidence_set is not None:
        logs = confidence_set.log_steps(sizes)
        ends = sizes[np.argmax(logs <= logs[:, -1:] + math.log1p(tolerance), axis=1)]  # steps of a law only fall
        if ends.min() <= useful <= ends.max():
            return Estimate(useful, float(ends.min()), float(ends.max()) if is_bounded else None)
    if curve.reach is None:
        return Estimate(useful)
    logs = np.log(curve.steps)
    fastest = int(np.argmin(logs))
    spread = np.where(np.arange(len(sizes)) == fastest, 0.0, np.hypot(curve.reach, curve.reach[fastest]))
    surely, perhaps = (
        float(sizes[int(np.argmax(values <= logs[fastest] + math.log1p(tolerance)))])
        for values in (logs + spread, logs - spread)
    )
    return Estimate(useful, min(perhaps, useful), max(surely, useful) if is_bounded else None)
