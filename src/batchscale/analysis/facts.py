"""What is known about a curve, worked out once: the numbers with intervals that every sentence is made of.

``CurveFacts`` is also the curve with intervals that planning reads: ``points`` as measured, ``steps_at`` anywhere.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from batchscale.analysis.curves import Array
from batchscale.analysis.estimates import Estimate, holding
from batchscale.analysis.noise import Noise, NoiseSource
from batchscale.analysis.regimes import (
    FAR_ENOUGH,
    Baseline,
    Regimes,
    Thresholds,
    baseline_examples,
    fewest_examples,
    last_doubling,
    perfect_scaling_end,
    useful_candidate,
)
from batchscale.analysis.region import FEWEST_SIZES, Region, allowed_laws

COARSE = 0.2  # a spacing of evaluations beyond this share of the steps is a reason for doubt


class FallEnding(StrEnum):
    """Whether the points show that steps have stopped to fall, that they still fall, or neither."""

    REACHED = "reached"
    FALLING = "falling"
    OPEN = "open"


@dataclass(frozen=True)
class PointFacts:
    """One measured size: its steps, and its examples over the fewest of the curve, each with an interval.

    ``spacing`` is how many steps before the winning measurement the goal may have been passed.
    """

    batch_size: int
    steps: Estimate
    examples_ratio: Estimate
    spacing: int = 0

    @property
    def is_coarse(self) -> bool:
        """Whether the evaluation plan leaves the steps open by more than a fifth."""
        return bool(self.steps.value and self.spacing > COARSE * self.steps.value)


@dataclass(frozen=True)
class CurveFacts:
    """A curve with intervals.

    Attributes:
        points: The measured sizes, growing.
        level: The share of cases in which an interval should hold the truth.
        thresholds: What counts as in proportion, useful and falling.
        cheapest: The measured size with the fewest examples to result.
        proportional: The largest size from there on up to which examples stay within the tolerance; its interval, over
            all allowed laws, is counted from the smallest size.
        fall: By which share steps fall in the last doubling, by the laws that the points allow.
        useful: The smallest size with steps close to the fewest measured; its interval ends at measured sizes.
        ending: What the fall says about sizes beyond.
        critical: B_crit; ``value`` None where the best law has it far outside the sizes.
        fastest: The measured size with the fewest steps.
        noise: What the intervals of boundaries rest on; None where there are none.
        trials: Fewest and most trials of the searches behind the points; None for bare points.
        drift: (trials, B_crit) had fewer of the same trials been run, where that can be told.
        doubts: Why the curve is to be trusted less, in words.
        region: The laws that the points allow; None with fewer than three sizes.
    """

    points: tuple[PointFacts, ...]
    level: float
    thresholds: Thresholds
    cheapest: int
    proportional: Estimate
    fall: Estimate
    useful: Estimate
    ending: FallEnding
    critical: Estimate
    fastest: int
    noise: NoiseSource | None
    trials: tuple[int, int] | None = None
    drift: tuple[tuple[int, float], ...] = ()
    doubts: tuple[str, ...] = ()
    region: Region | None = field(default=None, compare=False, repr=False)

    @property
    def smallest(self) -> int:
        """The smallest size that reached the goal."""
        return self.points[0].batch_size

    @property
    def largest(self) -> int:
        """The largest size that reached the goal."""
        return self.points[-1].batch_size

    @property
    def proportional_end(self) -> int:
        """The measured end of proportion."""
        return int(self.proportional.value or self.cheapest)

    def point(self, batch_size: int) -> PointFacts:
        """The facts of a measured size."""
        return next(point for point in self.points if point.batch_size == batch_size)

    def steps_at(self, batch_size: int) -> Estimate:
        """Steps to result at any batch size: as measured, or by the laws that the points allow.

        Without laws (fewer than three sizes) there is nothing to go by outside the measured sizes, and no value.
        """
        for point in self.points:
            if point.batch_size == batch_size:
                return point.steps
        if self.region is None:
            return Estimate()
        low, high = self.region.steps_range(batch_size)
        return holding(float(np.exp(self.region.best_log_steps(batch_size)[0])), low, high)


@dataclass(frozen=True)
class Evidence:
    """What facts are made from: points, the steps' own intervals, noise, and what else is known of the searches."""

    sizes: Array
    steps: Array
    intervals: Sequence[tuple[float | None, float | None]]
    spacings: Sequence[int]
    noise: Noise
    trials: tuple[int, int] | None = None
    drift: tuple[tuple[int, float], ...] = ()
    doubts: tuple[str, ...] = ()


def curve_facts(evidence: Evidence, found: Regimes, thresholds: Thresholds, level: float) -> CurveFacts:
    """The facts of a curve with at least two sizes."""
    sizes, steps = evidence.sizes, evidence.steps
    region = allowed_laws(sizes, steps, evidence.noise, level) if len(sizes) >= FEWEST_SIZES else None
    measured_fall = 1 - last_doubling(sizes, steps)
    fall = _fall(region, sizes, measured_fall)
    candidate = useful_candidate(sizes, steps, thresholds.useful)
    points = _points(evidence, region)
    blurred = any(point.is_coarse for point in points if point.batch_size >= candidate)
    ending = _ending(candidate, sizes, fall, thresholds, blurred)
    if ending is FallEnding.FALLING and steps[-1] > steps.min():
        ending = FallEnding.OPEN  # a smaller size that needs fewer steps speaks against the law's fall
    fewest = baseline_examples(sizes, steps, Baseline.ROBUST)
    cheapest = fewest_examples(sizes, steps)
    end = perfect_scaling_end(sizes, steps, fewest, thresholds.perfect)
    if ending is FallEnding.REACHED:
        # Where nothing more is gained, nothing falls in proportion: tolerances of both sides must not overlap.
        end = max(min(end, candidate), float(sizes[cheapest]))
    return CurveFacts(
        points=points,
        level=level,
        thresholds=thresholds,
        cheapest=int(sizes[cheapest]),
        proportional=_proportional(region, sizes, end, thresholds.perfect),
        fall=fall,
        useful=_useful(region, sizes, candidate, ending, thresholds),
        ending=ending,
        critical=_critical(region, found),
        fastest=int(sizes[int(np.argmin(steps))]),
        noise=None if region is None else evidence.noise.source,
        trials=evidence.trials,
        drift=evidence.drift,
        doubts=evidence.doubts,
        region=region,
    )


def _proportional(region: Region | None, sizes: Array, end: float, tolerance: float) -> Estimate:
    if region is None:
        return Estimate(end)
    examples = region.log_steps(sizes) + np.log(sizes)
    within = examples <= examples[:, :1] + math.log1p(tolerance)
    ends = sizes[within.sum(axis=1) - 1]  # examples of a law only grow
    return holding(end, float(ends.min()), float(ends.max()))


def _points(evidence: Evidence, region: Region | None) -> tuple[PointFacts, ...]:
    sizes, steps = evidence.sizes, evidence.steps
    examples = sizes * steps
    best = fewest_examples(sizes, steps)
    ratios = None
    if region is not None:
        logs = region.log_steps(sizes) + np.log(sizes)
        ratios = np.exp(logs - logs[:, best : best + 1])
    rows = []
    for i, (size, own, ends, spacing) in enumerate(
        zip(sizes, steps, evidence.intervals, evidence.spacings, strict=True)
    ):
        low = high = None
        if i == best:
            low = high = 1.0
        elif ratios is not None:
            low, high = float(ratios[:, i].min()), float(ratios[:, i].max())
        ratio = holding(float(examples[i] / examples[best]), low, high)
        rows.append(PointFacts(int(size), holding(float(own), *ends), ratio, int(spacing)))
    return tuple(rows)


def _fall(region: Region | None, sizes: Array, measured: float) -> Estimate:
    """The fall in the last doubling by the allowed laws; the interval holds what the points themselves show."""
    if region is None:
        return Estimate(measured)
    pair = np.array([sizes[-1] / 2, sizes[-1]])
    logs = region.log_steps(pair)
    falls = -np.expm1(logs[:, 1] - logs[:, 0])
    best = region.best_log_steps(pair)
    value = -math.expm1(float(best[1] - best[0]))
    return Estimate(value, min(float(falls.min()), measured, value), max(float(falls.max()), measured, value))


def _ending(candidate: float, sizes: Array, fall: Estimate, thresholds: Thresholds, blurred: bool) -> FallEnding:
    """What the fall says; points that the evaluation plan leaves open (``blurred``) show no end."""
    if blurred:
        return FallEnding.OPEN
    if candidate * FAR_ENOUGH <= sizes[-1]:
        return FallEnding.REACHED
    if fall.high is not None and fall.high <= thresholds.falling:
        return FallEnding.REACHED
    if fall.low is not None and fall.low > thresholds.falling:
        return FallEnding.FALLING
    return FallEnding.OPEN


def _useful(
    region: Region | None, sizes: Array, candidate: float, ending: FallEnding, thresholds: Thresholds
) -> Estimate:
    if region is None:
        return Estimate(candidate)
    logs = region.log_steps(sizes)
    within = logs <= logs[:, -1:] + math.log1p(thresholds.useful)  # steps of a law only fall
    ends = sizes[np.argmax(within, axis=1)]
    high = float(ends.max()) if ending is FallEnding.REACHED else None
    return holding(candidate, float(ends.min()), high)


def _critical(region: Region | None, found: Regimes) -> Estimate:
    value = None if found.fit is None else found.fit.b_crit
    if region is None:
        return Estimate(value)
    low, high = region.critical_range()
    if value is None and low is not None and high is not None:
        # The best hyperbola bends elsewhere, but a sharper law bends here, and no other is allowed.
        value = math.exp(float(region.log_b[region.best]))
    return holding(value, low, high)
