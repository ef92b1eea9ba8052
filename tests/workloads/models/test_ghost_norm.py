"""Ghost batch normalization against plain numpy, for every way a batch can divide into groups."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from batchscale.workloads.models.architectures.resnet_50 import GhostNorm

SIZE = 4
train = nnx.jit(lambda norm, values: norm(values, train=True))  # one program instead of one per operation


def draw(count):
    return np.random.default_rng(count).normal(2.0, 3.0, size=(count, 3, 2, 5)).astype(np.float32)


@pytest.mark.parametrize("count", [1, 3, 4, 5, 8, 11])
def test_each_group_is_normalised_on_its_own(count):
    values = draw(count)
    found = train(GhostNorm(5, SIZE, 0.9), values)
    groups = [values[start : start + SIZE].astype(np.float64) for start in range(0, count, SIZE)]
    expected = np.concatenate([(g - g.mean(axis=(0, 1, 2))) / np.sqrt(g.var(axis=(0, 1, 2)) + 1e-5) for g in groups])
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [3, 8, 11])
def test_running_statistics_are_the_example_weighted_mean_over_groups(count):
    values = draw(count)
    norm = GhostNorm(5, SIZE, 0.9)
    train(norm, values)
    mean, variance = np.zeros(5), np.zeros(5)
    for start in range(0, count, SIZE):
        group = values[start : start + SIZE].astype(np.float64)
        mean += len(group) / count * group.mean(axis=(0, 1, 2))
        variance += len(group) / count * group.var(axis=(0, 1, 2))
    np.testing.assert_allclose(norm.mean[...], 0.1 * mean, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(norm.variance[...], 0.9 + 0.1 * variance, rtol=1e-4)


def test_states_of_microbatches_average_to_the_state_of_the_batch():
    values = draw(11)
    whole = GhostNorm(5, SIZE, 0.9)
    outputs = train(whole, values)
    parts, made = [values[:8], values[8:]], []
    for part in parts:
        norm = GhostNorm(5, SIZE, 0.9)
        made.append((train(norm, part), norm))
    np.testing.assert_allclose(np.concatenate([out for out, _ in made]), outputs, rtol=1e-5, atol=1e-6)
    for name in ("mean", "variance"):
        average = sum(len(p) / 11 * np.asarray(getattr(n, name)[...]) for p, (_, n) in zip(parts, made, strict=True))
        np.testing.assert_allclose(average, getattr(whole, name)[...], rtol=1e-5)


def test_evaluation_uses_the_running_statistics_and_changes_nothing():
    norm = GhostNorm(5, SIZE, 0.9)
    norm.mean[...] = jnp.full(5, 2.0)
    norm.variance[...] = jnp.full(5, 9.0)
    values = draw(6)
    np.testing.assert_allclose(norm(jnp.asarray(values), train=False), (values - 2) / np.sqrt(9 + 1e-5), rtol=1e-5)
    np.testing.assert_array_equal(norm.mean[...], np.full(5, 2.0))


def test_half_precision_in_half_precision_out_with_exact_statistics():
    norm = GhostNorm(5, SIZE, 0.0)
    values = jnp.asarray(draw(4) + 100).astype(jnp.bfloat16)
    assert train(norm, values).dtype == jnp.bfloat16
    exact = np.asarray(values.astype(jnp.float32), np.float64)
    np.testing.assert_allclose(norm.variance[...], exact.var(axis=(0, 1, 2)), rtol=1e-4)
    assert isinstance(norm.variance, nnx.BatchStat)
