"""Expected shrinkage of an interval: against simulated measurements, and its order."""

import math

import numpy as np
import pytest

from batchscale.analysis.confidence_set import find_confidence_set
from batchscale.analysis.noise import Noise, NoiseSource
from batchscale.analysis.scaling import fit_families
from batchscale.prediction.next_measurement import Candidate, rank_measurements
from batchscale.prediction.quantities import AimQuestion, interval, log_values, log_width
from batchscale.spec.adaptive import Aim

S_MIN, B_CRIT, SPREAD = 1000.0, 64.0, 0.1
QUESTION = AimQuestion(Aim.CRITICAL, 1, 4096)


def law(sizes):
    return S_MIN * (1 + B_CRIT / np.asarray(sizes, dtype=float))


def noise_of(count, spread=SPREAD):
    return Noise(NoiseSource.TRIALS, np.full(count, spread**2), 40.0)


def laws_of(sizes, steps, spread=SPREAD):
    sizes, steps, noise = np.array(sizes, dtype=float), np.array(steps), noise_of(len(sizes), spread)
    fit = fit_families(np.log(sizes), np.log(steps), noise)
    return find_confidence_set(sizes, steps, noise, 0.9, fit)


@pytest.mark.parametrize("size", [8, 2048])
def test_the_expected_width_is_that_of_simulated_measurements(size):
    """The closed form averages over the laws of the set: so does the simulation, by fitting each drawn point anew."""
    sizes = [16, 64, 256, 1024]
    steps = law(sizes)
    laws = laws_of(sizes, steps)
    candidate = Candidate(size, 8, 1.0, SPREAD**2)
    expected = math.log(rank_measurements(laws, noise_of(4), QUESTION, [candidate])[0].factor_after)
    before = log_width(log_values(laws, QUESTION))
    rng = np.random.default_rng(0)
    truths = rng.choice(len(laws.log_steps(float(size))), 60)
    widths = []
    order = sorted([*sizes, size])
    for truth in truths:
        drawn = math.exp(float(laws.log_steps(float(size))[truth, 0]))
        with_point = dict(zip(sizes, steps, strict=True)) | {size: drawn}
        widths.append(log_width(log_values(laws_of(order, [with_point[s] for s in order]), QUESTION)))
    # Laws of the rim count as much as the best in this plain draw, and the fit moves: a third of the gain is agreement.
    assert abs(expected - np.mean(widths)) < 0.35 * before
    assert expected < before


def test_a_point_beside_the_measured_ones_tells_less_than_one_beyond_them():
    sizes = [64, 128, 256, 512]
    laws = laws_of(sizes, law(sizes))
    candidates = [Candidate(size, 8, 1.0, SPREAD**2) for size in (256, 16)]
    ranked = rank_measurements(laws, noise_of(4), QUESTION, candidates)
    assert ranked[0].candidate.batch_size == 16
    assert ranked[0].factor_after < ranked[1].factor_after <= ranked[1].factor_before


def test_cost_divides_the_gain():
    sizes = [16, 64, 256, 1024]
    laws = laws_of(sizes, law(sizes))
    near, far = Candidate(8, 8, 1.0, SPREAD**2), Candidate(8, 8, 100.0, SPREAD**2)
    ranked = rank_measurements(laws, noise_of(4), QUESTION, [far, near])
    assert [each.candidate for each in ranked] == [near, far]
    assert ranked[0].gain == pytest.approx(100 * ranked[1].gain)


def test_more_trials_leave_the_laws_within_their_smaller_bound():
    sizes = [16, 64, 256, 1024]
    laws = laws_of(sizes, law(sizes))
    candidates = [Candidate(None, 16, 1.0, factor) for factor in (1.0, 0.5, 0.25)]
    by_factor = {
        each.candidate.variance: each.factor_after
        for each in rank_measurements(laws, noise_of(4), QUESTION, candidates)
    }
    assert by_factor[1.0] == pytest.approx(math.exp(log_width(log_values(laws, QUESTION))))
    narrower = laws_of(sizes, law(sizes), SPREAD / 2)  # a quarter of the variance, on the same points
    assert math.log(by_factor[0.25]) == pytest.approx(log_width(log_values(narrower, QUESTION)), rel=0.15)
    assert by_factor[0.25] < by_factor[0.5] < by_factor[1.0]


def test_the_quantities_of_a_hyperbola_have_their_closed_forms():
    """Perfect scaling ends at 0.3 B_crit; with steps that take a + cB the fastest size is √(a B_crit/c)."""
    sizes = [4, 16, 64, 256, 1024]
    laws = laws_of(sizes, law(sizes), 1e-3)
    assert interval(laws, QUESTION).value == pytest.approx(B_CRIT, rel=0.01)
    perfect = interval(laws, AimQuestion(Aim.PERFECT_END, 1, 4096))
    assert perfect.value == pytest.approx(0.3 * (B_CRIT + 1) + 1, rel=0.06)  # examples at B = 1 are the fewest
    fastest = interval(laws, AimQuestion(Aim.FASTEST, 1, 4096, (4.0, 0.25)))
    assert fastest.value == pytest.approx(math.sqrt(4 * B_CRIT / 0.25), rel=0.05)
    for estimate in (perfect, fastest):
        assert estimate.low <= estimate.value <= estimate.high
    optimal = interval(laws, AimQuestion(Aim.OPTIMAL, 1, 4096))
    assert optimal.low is None  # steps fall in proportion down to the smallest size: the optimum is there, or below
