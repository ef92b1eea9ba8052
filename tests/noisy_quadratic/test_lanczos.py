"""Lanczos quadrature and measured spectra against dense eigenvalues of known matrices."""

import numpy as np
import pytest

from batchscale.errors import AnalysisError
from batchscale.noisy_quadratic import NoisyQuadratic, UpdateRule, closed_form_loss, steps_to_loss
from batchscale.noisy_quadratic.lanczos import lanczos_quadrature
from batchscale.noisy_quadratic.measured import MeasuredSpectrum, gather

RANDOM = np.random.default_rng(1)


def random_matrix(size):
    basis, _ = np.linalg.qr(RANDOM.normal(size=(size, size)))
    return basis * np.geomspace(1, 1e-3, size) @ basis.T


def test_as_many_steps_as_dimensions_give_all_eigenvalues_and_their_weights():
    matrix, vector = random_matrix(12), RANDOM.normal(size=12)
    values, vectors = np.linalg.eigh(matrix)
    nodes, weights = lanczos_quadrature(lambda v: matrix @ v, vector, 12)
    np.testing.assert_allclose(nodes, values, atol=1e-9)
    np.testing.assert_allclose(weights, (vectors.T @ vector) ** 2, atol=1e-8)


def test_few_steps_have_the_moments_of_the_whole_measure():
    matrix, vector = random_matrix(80), RANDOM.normal(size=80)
    nodes, weights = lanczos_quadrature(lambda v: matrix @ v, vector, 5)
    for power in range(10):  # 2·5 - 1 and below
        expected = vector @ np.linalg.matrix_power(matrix, power) @ vector
        assert weights @ nodes**power == pytest.approx(expected, rel=1e-9)


def test_a_vector_in_few_eigenspaces_ends_early():
    calls = []

    def product(vector):
        calls.append(1)
        return np.array([3.0, 3.0, 1.0, 1.0]) * vector

    nodes, _ = lanczos_quadrature(product, np.ones(4), 10)
    np.testing.assert_allclose(nodes, [1, 3])
    assert len(calls) == 2


def measured(problem, samples=40):
    h = problem.curvatures
    start = lanczos_quadrature(lambda v: h * v, np.full(len(h), problem.initial_variance**0.5), 24)
    drawn = RANDOM.normal(size=(samples, len(h))) * np.sqrt(problem.noise_variances)
    noise = tuple(lanczos_quadrature(lambda v: h * v, vector, 24) for vector in drawn)
    signs = RANDOM.choice([-1.0, 1.0], size=(4, len(h)))
    density = tuple(lanczos_quadrature(lambda v: h * v, vector, 24) for vector in signs)
    return MeasuredSpectrum(start, noise, density, len(h), 0, 0)


def test_a_measured_spectrum_trains_like_the_problem_it_was_measured_on():
    problem = NoisyQuadratic(dimension=300, noise=2.0)
    spectrum = measured(problem)
    assert spectrum.trace == pytest.approx((problem.curvatures.sum(), 0.0), rel=1e-6)  # signs: exact on a diagonal
    mean, error = spectrum.noise_trace
    assert abs(mean - problem.noise_variances.sum()) < 4 * error
    rule = UpdateRule("sgd", 0.3)
    for size in (4, 256):
        exact = closed_form_loss(problem, rule, size, 400)[400]
        assert closed_form_loss(spectrum.spectrum(bins=400), rule, size, 400)[400] == pytest.approx(exact, rel=0.1)
        steps = steps_to_loss(problem, rule, 256, 0.3)
        assert steps_to_loss(spectrum.spectrum(), rule, 256, 0.3) == pytest.approx(steps, rel=0.15)


def test_gathering_keeps_the_sums_of_noise_and_start():
    spectrum = measured(NoisyQuadratic(dimension=50)).spectrum(bins=1000)
    fewer = gather(spectrum, 8)
    assert len(fewer.counts) <= 8
    assert fewer.noise.sum() == pytest.approx(spectrum.noise.sum())
    assert fewer.start.sum() == pytest.approx(spectrum.start.sum())


def test_a_state_without_a_way_has_no_spectrum():
    still = MeasuredSpectrum((np.zeros(1), np.zeros(1)), ((np.ones(1), np.ones(1)),), (), 1, 0, 0)
    with pytest.raises(AnalysisError, match="away from the start"):
        still.spectrum()
