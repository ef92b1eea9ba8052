"""The least squares of a family of scaling laws: its best law on the points of a curve."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from batchscale.analysis.curves import Array
from batchscale.analysis.families import (
    EXPONENTS,
    Family,
    bounds,
    iso_loss_exponents,
    log_critical,
    log_curves,
    log_optimal,
)

_TICKS: Mapping[Family, tuple[int, ...]] = {
    Family.HYPERBOLA: (81,),
    Family.SHARP: (41, 9),
    Family.LEFT_BRANCH: (41, 25),
    Family.ISO_LOSS: (33, 9, 5),
}
_STARTS = 3  # of the grid's best laws that are polished
_ROUNDS = 40
_DIFFERENCE = 1e-5  # of a coordinate, for slopes
_SETTLED = 1e-10  # a share of the sum of squares that is not worth another round
_STUCK = 1e6  # the damping at which no step is left
_NO_LAW = 1e3  # the residual at a size where a law has no steps
_RSS_FLOOR = 1e-18  # per point: exact data must not make a logarithm of zero, and then the simpler family wins


@dataclass(frozen=True)
class FamilyFit:
    """One family fitted to a curve. ``aicc`` is None where there are too few points to judge the family.

    ``s_min`` and ``b_crit`` are None for a power law, which has neither. ``b_opt`` is the size of fewest examples; None
    in a family without a left branch. ``law`` has the coordinates of ``families``, ``log_scale`` the logarithm of
    S_min (of c, for a power law). ``squares`` is the weighted sum of squares.
    """

    family: Family
    law: tuple[float, ...]
    log_scale: float
    squares: float
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
            beta, ratio = (float(values[0]) for values in iso_loss_exponents(self._row))
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


def fit_family(family: Family, log_sizes: Array, log_steps: Array, weights: Array) -> FamilyFit:
    """Return the least squares of one family: the best laws of a grid, polished."""
    if family is Family.POWER:
        law = np.clip(_slope(log_sizes, log_steps, weights), *bounds(family, log_sizes))
    else:
        grid = _start_grid(family, log_sizes)
        squares, _ = sum_of_squares(family, grid, log_sizes, log_steps, weights)
        starts = grid[np.argsort(squares)[:_STARTS]]
        law = _polish(family, starts, log_sizes, log_steps, weights)
    least, scale = (float(values[0]) for values in sum_of_squares(family, law[None], log_sizes, log_steps, weights))
    rest = log_steps - scale - log_curves(family, law[None], log_sizes)[0]
    mean_square = float((rest**2).mean())
    return FamilyFit(
        family=family,
        law=tuple(law.tolist()),
        log_scale=scale,
        squares=least,
        rms_log=math.sqrt(mean_square),
        aicc=aicc(mean_square, len(log_sizes), family.parameters + 1),
    )


def _slope(log_sizes: Array, log_steps: Array, weights: Array) -> Array:
    centred = log_sizes - log_sizes @ weights / weights.sum()
    return np.array([-(centred * weights) @ log_steps / ((centred**2) @ weights)])


def _start_grid(family: Family, log_sizes: Array) -> Array:
    """Return laws of a family, one of which is close to the best."""
    low, high = bounds(family, log_sizes)
    if family is Family.ISO_LOSS:  # by β in the place of B_opt: most pairs of B_crit and B_opt belong to no β
        low[1], high[1] = np.log(EXPONENTS)
    axes = [np.linspace(a, b, ticks) for a, b, ticks in zip(low, high, _TICKS[family], strict=True)]
    grid = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    if family is Family.ISO_LOSS:
        ratio = np.exp(grid[:, 2])
        grid[:, 1] = grid[:, 0] - (np.log1p(2 * ratio) - np.log1p(ratio)) / np.exp(grid[:, 1])
    return grid


def sum_of_squares(
    family: Family, laws: Array, log_sizes: Array, log_steps: Array, weights: Array
) -> tuple[Array, Array]:
    """Return the weighted sum of squares of every law, with its best log scale, and that scale."""
    rest = log_steps - log_curves(family, laws, log_sizes)
    with np.errstate(invalid="ignore"):
        scale = rest @ weights / weights.sum()
        squares = ((rest - scale[:, None]) ** 2) @ weights
    return np.where(np.isfinite(squares), squares, np.inf), np.asarray(scale)


def _polish(family: Family, starts: Array, log_sizes: Array, log_steps: Array, weights: Array) -> Array:
    """Return the law of least squares near these, by the method of Levenberg and Marquardt on all starts at once."""
    low, high = bounds(family, log_sizes)
    count, width = starts.shape
    shares = weights / weights.sum()
    roots = np.sqrt(shares)

    def residuals(rows: Array) -> Array:
        rest = log_steps - log_curves(family, rows, log_sizes)
        with np.errstate(invalid="ignore"):
            centred = (rest - (rest @ shares)[:, None]) * roots
        return np.where(np.isfinite(centred), centred, _NO_LAW)

    laws, damping = starts.copy(), np.full(count, 1e-2)
    rest = residuals(laws)
    squares = (rest**2).sum(axis=1)
    moves = np.concatenate([np.eye(width), -np.eye(width)]) * _DIFFERENCE
    for _ in range(_ROUNDS):
        around = residuals((laws[:, None] + moves).reshape(-1, width)).reshape(count, 2 * width, -1)
        slopes = (around[:, :width] - around[:, width:]) / (2 * _DIFFERENCE)
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
        fewer = (fresh**2).sum(axis=1)
        better = fewer < squares
        settled = better & (squares - fewer <= _SETTLED * squares)
        laws, rest = np.where(better[:, None], moved, laws), np.where(better[:, None], fresh, rest)
        squares = np.where(better, fewer, squares)
        damping = np.clip(np.where(better, damping / 10, damping * 10), 1e-12, _STUCK)
        if (settled | (damping >= _STUCK)).all():
            break
    return np.asarray(laws[int(np.argmin(squares))])


def aicc(mean_square: float, points: int, parameters: int) -> float | None:
    """Return Akaike's criterion with the correction for few points; None where the correction has no value.

    n ln(RSS/n) + 2p + 2p(p+1)/(n-p-1), with the variance counted among the p parameters (Hurvich and Tsai, 1989).
    """
    if points - parameters - 1 < 1:
        return None
    fit = points * math.log(max(mean_square, _RSS_FLOOR))
    return fit + 2 * parameters + 2 * parameters * (parameters + 1) / (points - parameters - 1)
