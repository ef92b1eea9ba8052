"""The fast steps to a loss against the step-by-step recursion, and the published steps of Zhang et al. (2019)."""

import numpy as np
import pytest

from batchscale.errors import SpecError
from batchscale.noisy_quadratic import (
    NoisyQuadratic,
    Spectrum,
    UpdateRule,
    best_steps_to_loss,
    closed_form_loss,
    closed_form_steps_to_loss,
    steps_to_loss,
)

PUBLISHED = [1_507_368, 379_859, 95_760, 25_881, 10_610, 8_118, 7_448, 7_310, 7_277, 7_269]  # B = 4, 16, … 2²⁰


def test_the_published_steps_with_the_published_bins_and_learning_rates():
    spectrum = NoisyQuadratic(dimension=10_000).spectrum.binned(100)
    rates = np.logspace(-5, 0.5, 100)
    steps = [
        best_steps_to_loss(spectrum, 4**k, 0.01, learning_rates=rates, guard=1e-8).steps  # their guard: 1 - β + 1e-8
        for k in range(1, 11)
    ]
    assert steps == PUBLISHED


def test_without_their_guard_only_the_smallest_sizes_move_and_by_less_than_a_part_in_2000():
    spectrum = NoisyQuadratic(dimension=10_000).spectrum.binned(100)
    rates = np.logspace(-5, 0.5, 100)
    exact = [best_steps_to_loss(spectrum, 4**k, 0.01, learning_rates=rates).steps for k in (1, 2, 3, 4)]
    assert exact == [1_508_044, 379_888, 95_762, 25_881]


def test_bins_are_the_spectrum_rounded_down_in_geometric_steps():
    spectrum = NoisyQuadratic(dimension=10_000).spectrum.binned(100)
    edges, counts = np.geomspace(1, 1e-4, 100), np.zeros(100)
    for h in 1 / np.arange(1, 10_001):
        counts[np.argmax(h >= edges)] += 1
    np.testing.assert_allclose(spectrum.curvatures, edges[counts > 0])
    np.testing.assert_array_equal(spectrum.counts, counts[counts > 0])
    np.testing.assert_allclose(spectrum.noise, spectrum.curvatures)


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "nesterov_momentum"])
def test_fast_steps_equal_the_recursion(optimizer):
    random = np.random.default_rng(5)
    compared = 0
    for _ in range(12):
        problem = NoisyQuadratic(
            dimension=int(random.integers(1, 60)),
            noise=float(random.choice([0.0, 0.1, 3.0])),
            noise_like_curvature=bool(random.integers(2)),
            curvature_power=float(random.uniform(0, 2)),
        )
        rule = UpdateRule(optimizer, float(10 ** random.uniform(-2, 0)), float(random.choice([0.3, 0.9])))
        size = int(random.choice([1, 16, 512]))
        losses = closed_form_loss(problem, rule, size, 400)
        if not np.all(np.isfinite(losses)):
            assert steps_to_loss(problem, rule, size, 1e-9, 400) is None
            continue
        lowest = np.minimum.accumulate(losses)
        for place in (1, 2, 7, 33, 90, 390):
            if losses[place] < lowest[place - 1] * (1 - 1e-9):  # a step that sets a record, beyond rounding
                goal = float(losses[place] + lowest[place - 1]) / 2
                assert closed_form_steps_to_loss(problem, rule, size, goal, 400) == place
                assert steps_to_loss(problem, rule, size, goal, 400) == place
                assert steps_to_loss(problem, rule, size, goal, place - 1) is None
                compared += 1
    assert compared > 15


def test_a_passage_before_the_loss_rises_to_its_floor_is_found():
    spectrum = Spectrum([1.0, 0.01], [0.0, 1.0], [1.0, 0.0], [1, 1])  # falls in the first, rises in the second
    rule = UpdateRule("sgd", 0.3)
    losses = closed_form_loss(spectrum, rule, 1, 4000)
    assert losses[-1] > 2 * losses.min()
    goal = float(losses.min() * 1.02)
    assert steps_to_loss(spectrum, rule, 1, goal) == int(np.argmax(losses < goal))


@pytest.mark.parametrize("optimizer", ["sgd", "momentum"])
def test_the_best_learning_rate_is_that_of_a_dense_scan(optimizer):
    problem = NoisyQuadratic(dimension=40, noise=2.0)
    for size in (4, 4096):
        best = best_steps_to_loss(problem, size, 0.05, optimizer, momenta=(0.9,))
        largest = 2 * (1.9 if optimizer == "momentum" else 1.0)
        scan = [
            steps_to_loss(problem, UpdateRule(optimizer, rate, 0.9), size, 0.05)
            for rate in largest * np.logspace(-4, -1e-4, 150)
        ]
        fewest = min(step for step in scan if step is not None)
        assert best.steps <= (fewest if optimizer == "sgd" else 1.05 * fewest)  # ripples make many local optima
        rule = UpdateRule(optimizer, best.learning_rate, best.momentum)
        assert closed_form_steps_to_loss(problem, rule, size, 0.05, 10**5) == best.steps


def test_coordinates_that_share_a_curvature_count_as_many():
    repeated = Spectrum([1.0, 0.5, 0.5, 0.5], [1, 2, 2, 2], [1, 1, 1, 1], [1, 1, 1, 1])
    counted = Spectrum([1.0, 0.5], [1, 2], [1, 1], [1, 3])
    rule = UpdateRule("momentum", 0.1, 0.5)
    np.testing.assert_allclose(closed_form_loss(repeated, rule, 8, 20), closed_form_loss(counted, rule, 8, 20))


def test_near_the_stability_limit_momentum_does_not_reach_the_goal_by_rounding():
    problem = NoisyQuadratic(dimension=200)
    rule = UpdateRule("momentum", 2 * 1.995 * (1 - 1e-9), 0.995)
    assert steps_to_loss(problem, rule, 4, 0.01, 10**7) is None


@pytest.mark.parametrize("part", [{"curvatures": [0.0]}, {"noise": [-1.0]}, {"counts": [np.nan]}, {"start": [1, 1]}])
def test_an_impossible_spectrum_is_refused(part):
    parts = {"curvatures": [1.0], "noise": [1.0], "start": [1.0], "counts": [1.0]}
    with pytest.raises(SpecError, match="spectrum"):
        Spectrum(**{**parts, **part})
