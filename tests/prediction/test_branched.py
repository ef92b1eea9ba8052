"""Branches: error rates of the tests over simulated branches with a known critical batch size, and what they yield."""

import math

import numpy as np
import pytest

from batchscale.prediction.branched import (
    LEVEL,
    BranchLosses,
    branched_prediction,
    compare_branches,
    critical_batch_size,
)

DELTA = 1024
REPETITIONS = 2000
FACTORS = (1, 2, 4, 8, 16, 32, 64)


def simulated(rng, b_crit, noise, rates=1, orders=5, fall=1.0):
    """Branches along the hyperbola: a branch of k after Δ examples is where k = 1 is after Δ over its overhead."""
    branches = []
    for factor in FACTORS:
        overhead = (1 + factor / b_crit) / (1 + 1 / b_crit)
        for rate in range(rates if factor > 1 else 1):
            at = (DELTA // 2, DELTA) if factor == 1 else (DELTA,)
            losses = {count: tuple(1 - fall * count / DELTA / overhead + rng.normal(0, noise, orders)) for count in at}
            branches.append(BranchLosses(factor, float(rate), losses))
    return branches


@pytest.mark.parametrize("rates", [1, 2])
def test_chance_of_a_wrong_end_stays_below_its_level(rates):
    """B_crit = 14·B: k = 16 needs exactly twice the examples, so that any claim about it is wrong."""
    rng = np.random.default_rng(rates)
    ends = [compare_branches(simulated(rng, 14.0, 0.08, rates), DELTA).factor for _ in range(REPETITIONS)]
    better = np.mean([end.low is not None and end.low >= 16 for end in ends])
    worse = np.mean([end.high is not None and end.high <= 16 for end in ends])
    tolerance = 3 * math.sqrt(LEVEL * (1 - LEVEL) / REPETITIONS)  # three standard errors of a share
    assert better <= LEVEL + tolerance
    assert worse <= LEVEL + tolerance
    # the tests are not vacuous: they do find that 2 is better and 64 is worse
    assert np.mean([end.low is not None and end.low >= 2 for end in ends]) > 0.8
    assert np.mean([end.high is not None and end.high <= 64 for end in ends]) > 0.5


def test_single_tests_without_a_fixed_order_would_be_wrong_more_often():
    """The same data, each k by itself at the level: the share of runs with any wrong claim exceeds the level."""
    rng = np.random.default_rng(7)
    wrong = 0
    for _ in range(REPETITIONS):
        # no k > 1 is any better: every claim is wrong
        differences = [rng.normal(0, 1, 5) for _ in FACTORS[1:]]
        uppers = [d.mean() + 2.132 * d.std(ddof=1) / math.sqrt(5) for d in differences]
        wrong += min(uppers) < 0
    assert wrong / REPETITIONS > 3 * LEVEL


def test_without_noise_the_value_is_the_critical_batch_size():
    for b_crit in (6.0, 14.0, 30.0):
        branches = simulated(np.random.default_rng(0), b_crit, 1e-9)
        estimate = critical_batch_size(compare_branches(branches, DELTA), 8)
        assert estimate.value == pytest.approx(8 * b_crit, rel=0.05)  # straight lines between powers of two
        assert estimate.low is not None and estimate.high is not None
        assert estimate.low <= estimate.value <= estimate.high


def test_diverged_branches_are_worse_and_end_the_range():
    branches = simulated(np.random.default_rng(0), 1000.0, 1e-9)
    diverged = [
        BranchLosses(b.factor, b.rate_exponent, {DELTA: (math.inf,) * 5}) if b.factor >= 16 else b for b in branches
    ]
    factor = compare_branches(diverged, DELTA).factor
    assert (factor.low, factor.high) == (8, 16)
    assert factor.value is not None and 8 <= factor.value <= 16


def test_a_loss_that_does_not_fall_compares_nothing():
    branches = simulated(np.random.default_rng(0), 14.0, 0.1, fall=0.0)
    comparison = compare_branches(branches, DELTA)
    assert not comparison.falls and comparison.factor.value is None
    prediction = branched_prediction({10: branches}, 8, [DELTA], 100, 1000)
    assert prediction.estimate.value is None and "falls too little" in prediction.reason


def test_a_loss_that_only_falls_at_the_end_compares_nothing():
    """Before Δ/2 the loss is at the noise of the learning rate: less noise is no progress."""
    branches = simulated(np.random.default_rng(0), 14.0, 0.01)
    base = branches[0]
    flat = {DELTA // 8: base.losses[DELTA // 2], **base.losses}
    comparison = compare_branches([BranchLosses(1, 0.5, flat), *branches[1:]], DELTA)
    assert compare_branches(branches, DELTA).falls and not comparison.falls


def test_when_every_branch_is_better_only_a_low_end_remains():
    branches = simulated(np.random.default_rng(0), 1e6, 1e-9)
    prediction = branched_prediction({10: branches}, 8, [DELTA], 100, 1000)
    assert prediction.estimate.value is None and prediction.estimate.high is None
    assert prediction.estimate.low == (64 - 2) * 8
    assert "Even 64 times" in prediction.reason


def test_states_are_averaged_by_their_overheads():
    """Half of training at B_crit 6·B and half at 30·B has the overhead of the harmonic mean, 10·B."""
    rng = np.random.default_rng(0)
    states = {10: simulated(rng, 6.0, 1e-9), 20: simulated(rng, 30.0, 1e-9)}
    prediction = branched_prediction(states, 8, [DELTA], 100, 1000)
    assert prediction.estimate.value == pytest.approx(80, rel=0.05)
    assert len(prediction.details) == 2 and prediction.trial_steps == 100
