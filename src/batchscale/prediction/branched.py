"""The critical batch size from branches of one training (after Merrill et al. 2025, arXiv 2505.23971).

From a state of a trunk with batch size B, branches go on with k·B and a larger learning rate. The paper takes the
largest k whose loss is within 0.01 of the trunk's. Here the margin has a meaning and the answer has error rates:
B_crit is the batch size that needs twice the examples of a small one, so the loss of a branch after Δ examples is
compared with that of the branch k = 1 after Δ/2. Branches are paired by their order of examples, and tested by
one-sided t-tests:

- k = 2, 4, 8, … in growing order, until one is not better than the margin: the last that is gives the low end;
- the largest k, then smaller ones, until one is not worse than the margin: the last that is gives the high end.

A fixed order with a stop at the first failure keeps the chance of any wrong claim, over all k, at the level of a single
test. Several learning rates of one k share that level where one of them suffices (not worse), and need no correction
where all of them must fail (worse); several states share it too. Along the hyperbola S = S_min (1 + B_crit/B) the
branch that needs twice the examples of B has the size 2·B + B_crit, hence B_crit = k·B - 2·B.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from batchscale.analysis.intervals import Estimate
from batchscale.formatting import rounded_text
from batchscale.prediction.prediction import Prediction

METHOD = "branched"
LEVEL = 0.05
"""The chance of a low end above the truth, and of a high end below it."""

ASSUMPTION = (
    "Some steps after a state of one training show what whole trainings would, with the learning rate grown by a rule "
    "and the same other metaparameters; the steps follow the hyperbola."
)


@dataclass(frozen=True)
class BranchLosses:
    """The losses of branches that left one state with one batch size and one learning rate.

    Attributes:
        factor: k, the batch size as a multiple of the trunk's.
        rate_exponent: The learning rate is k to this power times the trunk's.
        losses: By examples since the state: one loss per order of examples, infinite where the branch diverged.
    """

    factor: int
    rate_exponent: float
    losses: Mapping[int, tuple[float, ...]]


@dataclass(frozen=True)
class BranchComparison:
    """The comparison of one state's branches after ``examples`` examples: the factor k at which they need twice them.

    ``factor.low`` is the largest k that is shown to need fewer, ``high`` the smallest that is shown to need more.
    ``falls`` is False if the loss hardly falls before or after Δ/2: such a state compares nothing. There the loss is
    that of the noise of the learning rate, and a larger batch, which has less of it, would look better than it is.
    """

    examples: int
    factor: Estimate
    reason: str = ""
    falls: bool = True


def compare_branches(branches: Sequence[BranchLosses], examples: int, level: float = LEVEL) -> BranchComparison:
    """Return the factor at which branches need twice the examples, at one Δ.

    Args:
        branches: Of one state; those of k = 1 are the reference.
        examples: Δ; the reference must be measured at Δ and at Δ/2.
        level: The chance of each end being wrong.
    """
    (base,) = (each for each in branches if each.factor == 1)
    reference = np.array(base.losses[examples // 2])
    own = _mean_bounds(np.array(base.losses[examples]) - reference, level)
    before = reference - np.array(base.losses[min(base.losses)])
    if own[2] >= 0 or (min(base.losses) < examples // 2 and _mean_bounds(before, level)[2] >= 0):
        reason = "the loss falls too little along the branches to compare them"
        return BranchComparison(examples, Estimate(), reason, falls=False)
    rates: dict[int, list[NDArray[np.float64]]] = {}
    for each in branches:
        if each.factor > 1 and examples in each.losses:
            rates.setdefault(each.factor, []).append(np.array(each.losses[examples]) - reference)
    factors = sorted(rates)
    low = high = None
    for factor in factors:
        if min(_mean_bounds(d, level / len(rates[factor]))[2] for d in rates[factor]) >= 0:
            break
        low = factor
    for factor in reversed(factors):
        if min(_mean_bounds(d, level)[0] for d in rates[factor]) <= 0:
            break
        high = factor
    means = [own[1], *(min(_mean_bounds(d, level)[1] for d in rates[factor]) for factor in factors)]
    value = _crossing([1, *factors], means)
    if value is not None:  # the ends are shown by tests, the value is read off the means
        value = min(max(value, low or 1), high or math.inf)
    reason = "" if value is not None else f"even {factors[-1] if factors else 1} times the batch needs fewer"
    return BranchComparison(examples, Estimate(value, low, high), reason)


def _mean_bounds(differences: NDArray[np.float64], level: float) -> tuple[float, float, float]:
    """Return the low bound, the mean and the high bound, each bound with this chance of being wrong.

    With a diverged branch among them there is no high bound; with a majority of diverged ones no low bound holds back
    the claim that they are worse.
    """
    diverged = ~np.isfinite(differences)
    if diverged.any():
        mostly = diverged.mean() > 0.5
        return (math.inf if mostly else -math.inf), math.inf, math.inf
    mean, count = float(differences.mean()), len(differences)
    if count < 2:
        return -math.inf, mean, math.inf
    reach = _quantile(level, count - 1) * float(differences.std(ddof=1)) / math.sqrt(count)
    return mean - reach, mean, mean + reach


@lru_cache
def _quantile(level: float, freedom: int) -> float:
    from scipy.special import stdtrit  # half a second of import time that only this method needs

    return float(stdtrit(freedom, 1 - level))


def _crossing(factors: Sequence[int], means: Sequence[float]) -> float | None:
    """Return where the mean difference passes 0, on a straight line over log k; None if it stays below."""
    for i in range(1, len(factors)):
        if means[i] > 0:
            if not math.isfinite(means[i]):
                return float(factors[i])
            share = -means[i - 1] / (means[i] - means[i - 1])
            return math.exp((1 - share) * math.log(factors[i - 1]) + share * math.log(factors[i]))
    return None


def critical_batch_size(comparison: BranchComparison, batch_size: int) -> Estimate:
    """Return B_crit for a comparison of branches of a trunk with this batch size; ends below that size are None."""

    def convert(factor: float | None) -> float | None:
        size = None if factor is None else (factor - 2) * batch_size
        return size if size is not None and size > 0 else None

    factor = comparison.factor
    return Estimate(convert(factor.value), convert(factor.low), convert(factor.high))


def branched_prediction(
    states: Mapping[int, Sequence[BranchLosses]],
    batch_size: int,
    examples: Sequence[int],
    trial_steps: int,
    read_examples: int,
) -> Prediction:
    """Return B_crit over all states, at the longest Δ; shorter ones are among the details.

    The overheads of a batch size add up over training, hence the harmonic mean over states; a state whose loss hardly
    falls is left out.

    Args:
        states: The branches of each state, by the trunk's step.
        batch_size: Of the trunk.
        examples: The values of Δ, growing.
        trial_steps: The steps that were trained, of the trunk, the branches and the search for the trunk.
        read_examples: The examples of these steps.
    """
    level = LEVEL / max(len(states), 1)
    details, estimate, reason = [], Estimate(), ""
    for count in examples:
        comparisons = [compare_branches(branches, count, level) for branches in states.values()]
        sizes = [critical_batch_size(comparison, batch_size) for comparison in comparisons]
        details += [
            f"state at step {step:,}, Δ = {count:,} examples: {_text(size, comparison)}"
            for step, size, comparison in zip(states, sizes, comparisons, strict=True)
        ]
        falling = [size for size, comparison in zip(sizes, comparisons, strict=True) if comparison.falls]
        estimate = Estimate(
            _harmonic([size.value for size in falling], missing=None),
            _harmonic([size.low for size in falling], missing=None),
            _harmonic([size.high for size in falling], missing=math.inf),
        )
        reason = "" if estimate.value is not None else _reason(comparisons, batch_size)
    return Prediction(
        METHOD, "critical_batch_size", estimate, trial_steps, read_examples, ASSUMPTION, reason, tuple(details)
    )


def _reason(comparisons: Sequence[BranchComparison], batch_size: int) -> str:
    reasons = [comparison.reason for comparison in comparisons if comparison.reason]
    text = reasons[0] if reasons else f"{batch_size:,}, the batch size of the trunk, is above it; begin smaller"
    return f"{text[:1].upper()}{text[1:]}."


def _text(size: Estimate, comparison: BranchComparison) -> str:
    if size.value is None:
        return comparison.reason or "below the batch size of the trunk"
    low, high = (rounded_text(end) if end is not None else "?" for end in (size.low, size.high))
    return f"B_crit {rounded_text(size.value)} ({low} to {high})"


def _harmonic(values: Sequence[float | None], missing: float | None) -> float | None:
    """Return the harmonic mean; a missing value counts as ``missing``, or makes the mean missing if that is None."""
    filled = [missing if value is None else value for value in values]
    numbers = [value for value in filled if value is not None]
    if not numbers or len(numbers) < len(filled):
        return None
    inverse = sum(1 / value for value in numbers) / len(numbers)
    return 1 / inverse if inverse > 0 else None
