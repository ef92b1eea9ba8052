"""The scaling law of a curve: least squares of log steps, in two families, chosen by AICc.

``hyperbola``: S(B) = S_min (1 + B_crit/B). ``sharp``: S(B) = S_min (1 + (B_crit/B)^k)^(1/k), k >= 1, which is the
hyperbola at k = 1 and bends at a corner as k grows. Both have the asymptotes S_min (large B) and S_min·B_crit/B
(small B), which cross at B_crit, so that B_crit means the same in both.

The better family gives the headline numbers. Their intervals come from ``confidence_set``, where k is free.
"""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import polars as pl

from batchscale.analysis.curves import Array, curve_points
from batchscale.errors import AnalysisError
from batchscale.formatting import percent_text

FEWEST_POINTS = 3
BEND = 0.3  # a best law that leaves an asymptote by less than this share at its end has its bend outside the points
MAX_SHARPNESS = 16.0

_MARGIN = 4.0  # candidates for log B_crit go this far beyond the measured sizes
_ZOOMS = 24
_RSS_FLOOR = 1e-18  # per point: exact data must not make a logarithm of zero, and then the simpler family wins


class Family(StrEnum):
    """A law of steps against batch size."""

    HYPERBOLA = "hyperbola"
    SHARP = "sharp"


@dataclass(frozen=True)
class FamilyFit:
    """One family fitted to a curve. ``aicc`` is None where there are too few points to judge the family."""

    family: Family
    s_min: float
    b_crit: float
    sharpness: float
    rms_log: float
    aicc: float | None

    @property
    def e_min(self) -> float:
        """The fewest examples to result: S_min·B_crit."""
        return self.s_min * self.b_crit

    def steps(self, batch_size: float | Array) -> Array:
        """Return the steps to result that the law gives at these batch sizes."""
        sizes = np.atleast_1d(np.asarray(batch_size, dtype=np.float64))
        return np.asarray(self.s_min * np.exp(log_bend(np.log(self.b_crit / sizes), self.sharpness)))


@dataclass(frozen=True)
class ScalingFit:
    """Both families on one curve; ``best`` has the lower AICc."""

    best: FamilyFit
    families: tuple[FamilyFit, ...]
    points: int

    @property
    def s_min(self) -> float:
        """The fewest steps to result, however large the batch, by the better family."""
        return self.best.s_min

    @property
    def b_crit(self) -> float:
        """The critical batch size, by the better family."""
        return self.best.b_crit

    @property
    def e_min(self) -> float:
        """The fewest examples to result, by the better family."""
        return self.best.e_min

    @property
    def rms_log(self) -> float:
        """Root mean square of the residuals of log steps, by the better family."""
        return self.best.rms_log


def fit_scaling(curve: pl.DataFrame) -> ScalingFit:
    """Return the scaling law of a curve (columns ``batch_size`` and ``steps``; rows with null steps are left out).

    >>> sizes = [1, 4, 16, 64, 256]
    >>> fit = fit_scaling(pl.DataFrame({"batch_size": sizes, "steps": [100 * (1 + 32 / b) for b in sizes]}))
    >>> round(fit.s_min, 3), round(fit.b_crit, 3), fit.best.family.value
    (100.0, 32.0, 'hyperbola')

    Raises:
        AnalysisError: There are fewer than three points, or the best law has its bend far outside of them.
    """
    sizes, steps = curve_points(curve)
    if len(sizes) < FEWEST_POINTS:
        raise AnalysisError(
            f"A scaling fit needs the steps to result at {FEWEST_POINTS} batch sizes or more. Found {len(sizes)}; "
            "measure more batch sizes, or choose a goal that more of them reach."
        )
    log_sizes, log_steps = np.log(sizes), np.log(steps)
    plain = _fit_hyperbola(log_sizes, log_steps)
    _check_bend(plain, log_sizes)
    families = [plain]
    if len(sizes) >= _parameters(Family.SHARP) + 2:
        families.append(_fit_sharp(log_sizes, log_steps, plain))
    judged = [fit for fit in families if fit.aicc is not None]
    best = min(judged, key=lambda fit: fit.aicc or 0.0) if judged else plain
    return ScalingFit(best, tuple(families), len(sizes))


def log_bend(log_ratio: Array, sharpness: float | Array) -> Array:
    """Return the logarithm of (1 + r^k)^(1/k) for log r: the law over S_min, safe for any ratio.

    >>> float(log_bend(np.array(0.0), 1.0)) == math.log(2)
    True
    """
    return np.asarray(np.logaddexp(0.0, sharpness * log_ratio) / sharpness)


def candidate_laws(log_sizes: Array, sharpness: Array, spacing: float = 0.05) -> tuple[Array, Array, Array]:
    """Return log B_crit and k of a grid of laws, and their centred log curves, one a row."""
    low, high = log_sizes.min() - _MARGIN, log_sizes.max() + _MARGIN
    ticks = np.linspace(low, high, int((high - low) / spacing) + 2)
    log_b, k = (axis.ravel() for axis in np.meshgrid(ticks, sharpness, indexing="ij"))
    shapes = log_bend(log_b[:, None] - log_sizes, k[:, None])
    return log_b, k, shapes - shapes.mean(axis=1, keepdims=True)


def _sharpnesses(plain: bool) -> Array:
    return np.ones(1) if plain else np.geomspace(1.0, MAX_SHARPNESS, 17)


def _fit_hyperbola(log_sizes: Array, log_steps: Array) -> FamilyFit:
    log_b, _, shapes = candidate_laws(log_sizes, _sharpnesses(True))
    start = log_b[int(np.argmin(_rss(shapes, log_steps)))]
    return _polish(Family.HYPERBOLA, log_sizes, log_steps, float(start), 1.0)


def _fit_sharp(log_sizes: Array, log_steps: Array, plain: FamilyFit) -> FamilyFit:
    log_b, k, shapes = candidate_laws(log_sizes, _sharpnesses(False)[::2], 0.2)
    start = int(np.argmin(_rss(shapes, log_steps)))
    sharp = _polish(Family.SHARP, log_sizes, log_steps, float(log_b[start]), float(k[start]))
    if sharp.rms_log <= plain.rms_log:
        return sharp
    # The hyperbola is a member of the family: a polish that ended above it missed it.
    return _make_fit(Family.SHARP, log_sizes, log_steps, math.log(plain.b_crit), 1.0)


def _rss(shapes: Array, log_steps: Array) -> Array:
    centred = log_steps - log_steps.mean()
    return np.asarray((shapes**2).sum(axis=1) - 2 * shapes @ centred)


def _polish(family: Family, log_sizes: Array, log_steps: Array, log_b: float, k: float) -> FamilyFit:
    """Zoom a grid in on the least sum of squares: as exact as an optimizer here, and many times cheaper."""
    low, high = log_sizes.min() - _MARGIN - 1, log_sizes.max() + _MARGIN + 1
    top = math.log(MAX_SHARPNESS) if family is Family.SHARP else 0.0
    centre, width = np.array([log_b, min(math.log(k), top)]), np.array([0.2, 0.4 if top else 0.0])
    ticks = np.linspace(-1.0, 1.0, 11)
    for _ in range(_ZOOMS):
        ends = np.clip(centre[0] + width[0] * ticks, low, high)
        bends = np.clip(centre[1] + width[1] * (ticks if top else np.zeros(1)), 0.0, top)
        grid_b, grid_k = (axis.ravel() for axis in np.meshgrid(ends, bends, indexing="ij"))
        shapes = log_bend(grid_b[:, None] - log_sizes, np.exp(grid_k)[:, None])
        rest = log_steps - shapes
        at = int(np.argmin(rest.var(axis=1)))
        # A winner on the rim moves the grid; only one inside narrows it.
        inside = np.array([0 < at // len(bends) < len(ends) - 1, not top or 0 < at % len(bends) < len(bends) - 1])
        centre = np.array([grid_b[at], grid_k[at]])
        width = np.where(inside | ((centre[1] <= 0) & np.array([False, True])), width * 0.4, width)
    return _make_fit(family, log_sizes, log_steps, float(centre[0]), math.exp(float(centre[1])))


def _make_fit(family: Family, log_sizes: Array, log_steps: Array, log_b: float, k: float) -> FamilyFit:
    rest = log_steps - log_bend(log_b - log_sizes, k)
    mean_square = float(((rest - rest.mean()) ** 2).mean())
    return FamilyFit(
        family=family,
        s_min=math.exp(float(rest.mean())),
        b_crit=math.exp(log_b),
        sharpness=k,
        rms_log=math.sqrt(mean_square),
        aicc=aicc(mean_square, len(log_sizes), _parameters(family)),
    )


def aicc(mean_square: float, points: int, parameters: int) -> float | None:
    """Return Akaike's criterion with the correction for few points; None where the correction has no value.

    n ln(RSS/n) + 2p + 2p(p+1)/(n-p-1), with the variance counted among the p parameters (Hurvich and Tsai, 1989).
    """
    if points - parameters - 1 < 1:
        return None
    fit = points * math.log(max(mean_square, _RSS_FLOOR))
    return fit + 2 * parameters + 2 * parameters * (parameters + 1) / (points - parameters - 1)


def _parameters(family: Family) -> int:
    return 3 if family is Family.HYPERBOLA else 4


def _check_bend(plain: FamilyFit, log_sizes: Array) -> None:
    """Raise AnalysisError if the best hyperbola has its bend outside the points."""
    smallest, largest = math.exp(log_sizes.min()), math.exp(log_sizes.max())
    if largest / plain.b_crit < BEND:
        raise AnalysisError(
            f"The points lie before the bend: in the best law examples grow by less than {percent_text(BEND)} up to "
            f"batch size {largest:,.0f}, so the best estimate of the critical batch size lies beyond. Measure "
            "larger sizes."
        )
    if plain.b_crit / smallest < BEND:
        raise AnalysisError(
            f"The points lie behind the bend: in the best law steps fall by less than {percent_text(BEND)} from batch "
            f"size {smallest:,.0f} on, so the best estimate of the critical batch size lies below. Measure "
            "smaller sizes."
        )
