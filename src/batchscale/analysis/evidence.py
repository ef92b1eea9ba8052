"""The evidence for families of laws: the best one for a curve, those that its points reject, and points without any.

The score of a family is Schwarz's criterion with a prior of the noise, (n + w) ln(w v + Q) + p ln n: Q the weighted sum
of squares, v the variance that is known (runs, trials) or the least that is plausible (bare points), w its weight in
degrees of freedom. Without v a family that happens to pass close to six points would win over anything. Families are
chosen as in Occam's window (Madigan and Raftery, 1994): one with a left branch or without a bend must beat the
hyperbola and its sharp relatives by ``MARGIN``; one that is worse than the best by more than ``WINDOW`` is rejected.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from batchscale.analysis.curves import Array
from batchscale.analysis.families import Family
from batchscale.analysis.least_squares import FamilyFit
from batchscale.analysis.noise import MOST_FREEDOM, Noise
from batchscale.analysis.quantiles import f_tail
from batchscale.formatting import percent_text

LEAST_NOISE = 0.02  # of log steps: curves of bare points are seldom smoother
SHARP_MARGIN = 2.0  # by which the sharp family must beat its member, the hyperbola
MARGIN = 3.0  # odds of about 4.5 to 1
WINDOW = 6.0  # odds of 20 to 1

UNLIKELY = 0.01  # the chance below which noise does not explain a misfit
NOTABLE = 0.15  # a typical error up to this is no misfit, however exact the points are
HOPELESS = 0.35  # a typical error beyond this is one, however noisy they are

_PLAIN = (Family.HYPERBOLA, Family.SHARP)
_FEW_POINTS = 12.0  # of the penalty for the fourth parameter


@dataclass(frozen=True)
class Misfit:
    """Points that no law describes.

    ``error`` is the distance of the points from the closest law on average, as a share of their steps. ``p_value`` is
    the chance of points that lie so far off if a law were true; None where the distance alone decides.
    """

    error: float
    p_value: float | None

    @property
    def reason(self) -> str:
        """The reason why there is no critical batch size."""
        return (
            f"No curve of the fitted kinds describes these points (the closest is {percent_text(self.error)} off on "
            "average): do not use a critical batch size."
        )


def score(fit: FamilyFit, points: int, noise: Noise) -> float:
    """Return the score of a fitted family; the lower, the better."""
    weight = min(noise.freedom, MOST_FREEDOM) if noise.is_known else 1.0
    prior = weight if noise.is_known else LEAST_NOISE**2
    # A power law must beat the asymptotes of the hyperbola, which are power laws too.
    count = 3 if fit.family is Family.POWER else fit.family.parameters
    few = _FEW_POINTS / (points - 4) if count == 4 else 0.0
    return (points + weight) * math.log(prior + fit.squares) + count * math.log(points) + few


def judge_families(fits: Sequence[FamilyFit], points: int, noise: Noise) -> tuple[FamilyFit, tuple[FamilyFit, ...]]:
    """Return the best fit, and the fits whose families the points do not reject.

    The sharp family stands for the hyperbola among them. The left branch stays unless it is rejected, however short it
    is: the hyperbola is its end, and without it the optimal size would be claimed to lie below the smallest measured.
    """
    by_family = {fit.family: fit for fit in fits}
    scores = {fit.family: score(fit, points, noise) for fit in fits}
    sharp = by_family[Family.SHARP]
    plain = by_family[Family.HYPERBOLA]
    if points > sharp.family.parameters + 1 and scores[Family.SHARP] < scores[Family.HYPERBOLA] - SHARP_MARGIN:
        plain = sharp
    rivals = [fit for fit in fits if fit.family not in _PLAIN]
    better = [fit for fit in rivals if scores[fit.family] < scores[plain.family] - MARGIN]
    best = min([plain, *better], key=lambda fit: scores[fit.family])
    most = scores[best.family] + WINDOW
    allowed = [fit for fit in rivals if fit in better or fit.family is Family.LEFT_BRANCH]
    if scores[plain.family] <= most:
        allowed.insert(0, sharp)
    return best, tuple(fit for fit in allowed if fit is sharp or scores[fit.family] <= most)


def find_misfit(best: FamilyFit, log_sizes: Array, log_steps: Array, noise: Noise) -> Misfit | None:
    """Return the misfit of the best law, or None if noise explains it.

    Noise from trials or runs is compared with the misfit by an F test. Bare points have none; there a smooth curve that
    lies much closer (a polynomial of log B) shows that the law is wrong, and not the points.
    """
    error, points = math.expm1(best.rms_log), len(log_sizes)
    free = points - best.family.parameters
    if error <= NOTABLE or free < 1:
        return None
    if noise.is_known:
        chance = f_tail(best.squares / free, free, noise.freedom)
        return Misfit(error, chance) if chance < UNLIKELY else None
    if error > HOPELESS:
        return Misfit(error, None)
    degree = min(3, points - 3)
    smooth = _polynomial_squares(log_sizes, log_steps, noise.weights, degree)
    left = points - degree - 1
    excess = (best.squares - smooth) / (smooth + LEAST_NOISE**2) * left
    chance = f_tail(excess, 1, left) if excess > 0 and degree >= best.family.parameters - 1 else 1.0
    return Misfit(error, chance) if chance < UNLIKELY else None


def _polynomial_squares(log_sizes: Array, log_steps: Array, weights: Array, degree: int) -> float:
    centred = (log_sizes - log_sizes.mean()) / max(float(np.ptp(log_sizes)), 1e-9)
    roots = np.sqrt(weights)
    powers = np.vander(centred, degree + 1) * roots[:, None]
    rest = log_steps * roots - powers @ np.linalg.lstsq(powers, log_steps * roots, rcond=None)[0]
    return float((rest**2).sum())
