import numpy as np
import pytest
from scipy.stats import qmc

from batchscale.search.points import draw_points, to_unit, unit_points
from batchscale.spec.experiment import Algorithm
from batchscale.spec.space import ParameterConfig, ParameterType, Scale, SearchSpace

SPACE = SearchSpace(
    (
        ParameterConfig("learning_rate", ParameterType.DOUBLE, 1e-4, 10, Scale.LOG),
        ParameterConfig("momentum", ParameterType.DOUBLE, 0.9, 0.9999, Scale.REVERSE_LOG),
        ParameterConfig("label_smoothing", ParameterType.DISCRETE, feasible_points=(0.0, 0.01, 0.1)),
    )
)


@pytest.mark.parametrize("algorithm", Algorithm)
def test_asking_for_more_continues_the_stream(algorithm):
    together = unit_points(3, 7, 0, 40, algorithm)
    apart = np.concatenate([unit_points(3, 7, start, 1, algorithm) for start in range(40)])
    np.testing.assert_array_equal(together, apart)


@pytest.mark.parametrize("algorithm", Algorithm)
def test_the_stream_is_scipys_own(algorithm):
    engine = {Algorithm.HALTON: qmc.Halton, Algorithm.SOBOL: qmc.Sobol}[algorithm]
    for dimension, seed, start in ((2, 3, 0), (1, 0, 1), (7, 2**40, 123_456), (20, 11, 5)):
        theirs = engine(dimension, scramble=True, rng=seed)
        if start:
            theirs.fast_forward(start)
        np.testing.assert_array_equal(unit_points(dimension, seed, start, 64, algorithm), theirs.random(64))


def test_another_seed_gives_another_stream():
    assert not np.allclose(unit_points(2, 1, 0, 8), unit_points(2, 2, 0, 8))


@pytest.mark.parametrize("algorithm", Algorithm)
def test_points_spread_more_evenly_than_random_ones(algorithm):
    points = unit_points(2, 0, 0, 128, algorithm)
    random = np.random.default_rng(0).random((128, 2))
    assert qmc.discrepancy(points) < 0.5 * qmc.discrepancy(random)


def test_the_same_unit_points_serve_every_space_of_the_same_shape():
    wider = SPACE.replace(ParameterConfig("learning_rate", ParameterType.DOUBLE, 1e-3, 100, Scale.LOG))
    for here, there in zip(draw_points(SPACE, 5, 0, 20), draw_points(wider, 5, 0, 20), strict=True):
        assert to_unit(SPACE["learning_rate"], here["learning_rate"]) == pytest.approx(
            to_unit(wider["learning_rate"], there["learning_rate"]), abs=1e-9
        )
        assert here["momentum"] == there["momentum"]


def test_drawn_values_lie_in_their_space():
    for point in draw_points(SPACE, 11, 100, 200):
        assert set(point) == set(SPACE.names)
        assert all(SPACE[name].contains(value) for name, value in point.items())


def test_a_space_without_metaparameters_gives_empty_points():
    assert draw_points(SearchSpace(), 0, 0, 3) == [{}, {}, {}]
