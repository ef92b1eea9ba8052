"""The scaling law of a curve: least squares of log steps in every family, and the family that the evidence favours.

The best family gives the headline numbers. Intervals come from ``confidence_set``, over all families that the evidence
does not reject. ``families`` has the laws themselves.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import polars as pl

from batchscale.analysis.curves import Array, curve_points
from batchscale.analysis.families import Family, bounds, log_critical, log_curves, log_optimal
from batchscale.errors import AnalysisError
from batchscale.formatting import percent_text

FEWEST_POINTS = 3
BEND = 0.3  # a best law that leaves an asymptote by less than this share at its end has its bend outside the points
LEAST_NOISE = 0.01  # of log steps: measured curves are seldom smoother

_TICKS: Mapping[Family, tuple[int, ...]] = {
    Family.HYPERBOLA: (81,),
    Family.SHARP: (41, 9),
    Family.LEFT_BRANCH: (41, 25),
    Family.ISO_LOSS: (25, 9, 9),
    Family.POWER: (31,),
}
_STARTS = 4  # of the grid's best laws that are polished
_ROUNDS = 40
_RSS_FLOOR = 1e-18  # per point: exact data must not make a logarithm of zero, and then the simpler family wins


@dataclass(frozen=True)
class FamilyFit:
    """One family fitted to a curve. ``aicc`` is None where there are too few points to judge the family.

    ``s_min`` and ``b_crit`` are None for a power law, which has neither. ``b_opt`` is the size of fewest examples; None
    in a family without a left branch. ``law`` has the coordinates of ``families``, ``log_scale`` the logarithm of
    S_min (of c, for a power law).
    """

    family: Family
    law: tuple[float, ...]
    log_scale: float
    rms_log: float
    aicc: float | None

    @property
    def s_min(self) -> float | None:
        """The fewest steps to result, however large the batch."""
        return None if self.family is Family.POWER else math.exp(self.log_scale)

    @property
    def b_crit(self) -> float | None:
        """The critical batch size."""
        return None if self.family is Family.POWER else math.exp(float(log_critical(self.family, self._row)[0]))

    @property
    def b_opt(self) -> float | None:
        """The size of fewest examples."""
        return math.exp(float(log_optimal(self.family, self._row)[0])) if self.family.has_left_branch else None

    @property
    def sharpness(self) -> float | None:
        """The exponent k of the bend: 1 for the hyperbola; None in families that have none."""
        if self.family is Family.SHARP:
            return math.exp(self.law[1])
        return 1.0 if self.family is Family.HYPERBOLA else None

    @property
    def e_min(self) -> float | None:
        """The fewest examples to result at any size; None for a power law."""
        if self.family is Family.POWER:
            return None
        if self.b_opt is not None:
            return self.b_opt * float(self.steps(self.b_opt)[0])
        return math.exp(self.log_scale + self.law[0])

    @property
    def parameters(self) -> dict[str, float]:
        """The parameters of the formula in docs/analysis.md, by their names there."""
        law = self.law
        if self.family is Family.POWER:
            return {"c": math.exp(self.log_scale), "a": law[0]}
        scale = {"s_min": math.exp(self.log_scale)}
        if self.family is Family.LEFT_BRANCH:
            return scale | {"b": math.exp(law[0]), "b_left": math.exp(law[1])}
        if self.family is Family.ISO_LOSS:
            beta, ratio = math.exp(law[1]), math.exp(law[2])
            b_min = math.exp(law[0] - math.log1p(2 * ratio) / beta)
            return scale | {"b_min": b_min, "beta": beta, "gamma": beta / ratio}
        return scale | {"b_crit": math.exp(law[0]), "k": self.sharpness or 1.0}

    def steps(self, batch_size: float | Array) -> Array:
        """Return the steps to result that the law gives at these batch sizes."""
        logs = np.log(np.atleast_1d(np.asarray(batch_size, dtype=np.float64)))
        return np.asarray(np.exp(self.log_scale + log_curves(self.family, self._row, logs)[0]))

    @property
    def _row(self) -> Array:
        return np.array([self.law])


@dataclass(frozen=True)
class ScalingFit:
    """All families that were fitted to one curve; ``best`` is favoured by the evidence."""

    best: FamilyFit
    families: tuple[FamilyFit, ...]
    points: int

    @property
    def s_min(self) -> float | None:
        """The fewest steps to result, however large the batch, by the best family."""
        return self.best.s_min

    @property
    def b_crit(self) -> float | None:
        """The critical batch size, by the best family."""
        return self.best.b_crit

    @property
    def e_min(self) -> float | None:
        """The fewest examples to result, by the best family."""
        return self.best.e_min

    @property
    def rms_log(self) -> float:
        """Root mean square of the residuals of log steps, by the best family."""
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
    fit = fit_families(np.log(sizes), np.log(steps), np.ones(len(sizes)))
    check_bend(fit.best, sizes)
    return fit


def fit_families(log_sizes: Array, log_steps: Array, weights: Array) -> ScalingFit:
    """Return the least squares of every family that has fewer parameters than there are points, and the best."""
    count = len(log_sizes)
    fits = [
        fit_family(family, log_sizes, log_steps, weights)
        for family in Family
        if family is Family.HYPERBOLA or family.parameters < count - 1
    ]
    return ScalingFit(min(fits, key=lambda fit: evidence(fit, count)), tuple(fits), count)


def evidence(fit: FamilyFit, points: int) -> float:
    """Return the criterion of Schwarz with a prior of the noise: n ln(RSS/n + v) + p ln n; the lower, the better.

    v is the variance of measurements that are more exact than any we met. Without it a family of four parameters that
    happens to pass close to five points would win over anything.
    """
    spread = fit.rms_log**2 + LEAST_NOISE**2
    # A power law must beat the asymptotes of the hyperbola, which are power laws too.
    count = 3 if fit.family is Family.POWER else fit.family.parameters
    return points * math.log(spread) + count * math.log(points)


def fit_family(family: Family, log_sizes: Array, log_steps: Array, weights: Array) -> FamilyFit:
    """Return the least squares of one family: the best laws of a grid, polished."""
    low, high = bounds(family, log_sizes)
    axes = [np.linspace(a, b, ticks) for a, b, ticks in zip(low, high, _TICKS[family], strict=True)]
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    shares = weights / weights.sum()
    squares = spread(family, grid, log_sizes, log_steps, shares)[0]
    starts = grid[np.argsort(squares)[:_STARTS]]
    law = _polish(family, starts, log_sizes, log_steps, shares)
    mean_square, log_scale = (float(values[0]) for values in spread(family, law[None], log_sizes, log_steps, shares))
    mean_square = max(mean_square, 0.0)
    return FamilyFit(
        family=family,
        law=tuple(law.tolist()),
        log_scale=log_scale,
        rms_log=math.sqrt(mean_square),
        aicc=aicc(mean_square, len(log_sizes), family.parameters + 1),
    )


def spread(family: Family, laws: Array, log_sizes: Array, log_steps: Array, shares: Array) -> tuple[Array, Array]:
    """Return the weighted mean square of the residuals of laws, and their best log scales; ``shares`` add up to 1."""
    rest = log_steps - log_curves(family, laws, log_sizes)
    with np.errstate(invalid="ignore"):
        scale = rest @ shares
        squares = ((rest - scale[:, None]) ** 2) @ shares
    return np.where(np.isfinite(squares), squares, np.inf), np.asarray(scale)


def _polish(family: Family, starts: Array, log_sizes: Array, log_steps: Array, shares: Array) -> Array:
    """Return the law of least squares near these, by the method of Levenberg and Marquardt on all starts at once."""
    low, high = bounds(family, log_sizes)
    count, width = starts.shape
    laws, damping = starts.copy(), np.full(count, 1e-2)
    roots = np.sqrt(shares)

    def residuals(rows: Array) -> Array:
        rest = log_steps - log_curves(family, rows, log_sizes)
        with np.errstate(invalid="ignore"):
            centred = (rest - (rest @ shares)[:, None]) * roots
        return np.where(np.isfinite(centred), centred, 1e3)

    rest = residuals(laws)
    moves = np.concatenate([np.eye(width), -np.eye(width)]) * 1e-5
    for _ in range(_ROUNDS):
        around = residuals((laws[:, None] + moves).reshape(-1, width)).reshape(count, 2 * width, -1)
        slopes = (around[:, :width] - around[:, width:]) / 2e-5
        # A coordinate at its bound that would leave it stays there: the others are free.
        descent = -(slopes @ rest[:, :, None])[:, :, 0]
        held = ((laws <= low) & (descent < 0)) | ((laws >= high) & (descent > 0))
        slopes = np.where(held[:, :, None], 0.0, slopes)
        normal = slopes @ slopes.transpose(0, 2, 1)
        diagonal = np.einsum("ijj->ij", normal) + 1e-12
        damped = normal + (damping[:, None] * diagonal)[:, :, None] * np.eye(width)
        step = np.linalg.solve(damped, -(slopes @ rest[:, :, None]))[:, :, 0]
        moved = np.clip(laws + step, low, high)
        fresh = residuals(moved)
        better = (fresh**2).sum(axis=1) < (rest**2).sum(axis=1)
        laws, rest = np.where(better[:, None], moved, laws), np.where(better[:, None], fresh, rest)
        damping = np.clip(np.where(better, damping / 10, damping * 10), 1e-12, 1e8)
        if (damping >= 1e8).all():
            break
    return np.asarray(laws[int(np.argmin((rest**2).sum(axis=1)))])


@dataclass(frozen=True)
class Misfit:
    """Points that no law describes.

    ``error`` is the typical distance of a point from the best law, as a share of its steps. ``p_value`` is the chance
    of points that lie so far off if a law were true.
    """

    error: float
    p_value: float

    @property
    def reason(self) -> str:
        """The reason why there is no critical batch size."""
        return (
            f"No curve of the fitted kinds describes these points: they lie {percent_text(self.error)} off the best "
            "one on average. Do not use a critical batch size."
        )


def find_misfit(fit: ScalingFit) -> Misfit | None:
    """Return the misfit of the best law, or None if noise explains it."""
    error = math.expm1(fit.rms_log)
    return Misfit(error, 0.0) if error > 0.3 else None


def aicc(mean_square: float, points: int, parameters: int) -> float | None:
    """Return Akaike's criterion with the correction for few points; None where the correction has no value.

    n ln(RSS/n) + 2p + 2p(p+1)/(n-p-1), with the variance counted among the p parameters (Hurvich and Tsai, 1989).
    """
    if points - parameters - 1 < 1:
        return None
    fit = points * math.log(max(mean_square, _RSS_FLOOR))
    return fit + 2 * parameters + 2 * parameters * (parameters + 1) / (points - parameters - 1)


def check_bend(fit: FamilyFit, sizes: Array) -> None:
    """Raise AnalysisError if a law has its bend outside the points, or has none."""
    if fit.b_crit is None:
        raise AnalysisError(
            f"A power law describes these points: steps fall as the batch size to the power -{fit.law[0]:.2f} at all "
            "sizes measured, without a bend. There is no critical batch size between them."
        )
    smallest, largest = float(sizes[0]), float(sizes[-1])
    if largest / fit.b_crit < BEND:
        raise AnalysisError(
            f"The points lie before the bend: the fitted curve bends well beyond batch size {largest:,.0f}, the "
            "largest measured. Measure larger sizes."
        )
    if fit.b_crit / smallest < BEND:
        raise AnalysisError(
            f"The points lie behind the bend: the fitted curve bends well below batch size {smallest:,.0f}, the "
            "smallest measured. Measure smaller sizes."
        )
