"""The statistics of the cheap random bits, and that a population draws what each trial draws alone."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from batchscale.workloads.random_bits import dropout, keep_mask, random_bits

sys.path.insert(0, str(Path(__file__).parent))
from generated import cheap_jit

COUNT = 1 << 18
ALPHA = 1e-4  # fixed seeds: the bound only has to tell good from bad


draw = cheap_jit(random_bits, static_argnums=2)


def bits(key=0, stream=0, count=COUNT):
    return np.asarray(draw(jax.random.key(key), stream, (count,)))


@pytest.mark.parametrize("shift", [0, 8, 16, 24])
def test_every_byte_is_uniform(shift):
    found = np.bincount((bits() >> shift) & 255, minlength=256)
    assert stats.chisquare(found).pvalue > ALPHA


def test_neighbouring_elements_are_independent():
    high = bits() >> 28
    pairs = np.bincount(high[:-1:2] * 16 + high[1::2], minlength=256)
    assert stats.chisquare(pairs).pvalue > ALPHA


@pytest.mark.parametrize(
    ("first", "second"), [((0, 0), (1, 0)), ((0, 0), (0, 1)), ((5, 1), (6, 1)), ((0, 3), (3, 0)), ((1, 2), (2, 1))]
)
def test_neighbouring_keys_and_streams_are_independent(first, second):
    one, other = bits(*first), bits(*second)
    for lag in (0, 1, 2, 7):
        flips = np.bincount((one[: COUNT - lag] >> 28) * 16 + (other[lag:] >> 28), minlength=256)
        assert stats.chisquare(flips).pvalue > ALPHA


def test_single_bits_are_fair_and_uncorrelated_over_keys():
    keys = jax.random.split(jax.random.key(9), 4096)
    words = np.asarray(cheap_jit(jax.vmap(lambda key: random_bits(key, 0, (4,))))(keys))
    ones = ((words[..., None] >> np.arange(32, dtype=np.uint32)) & 1).reshape(4096, 128)
    assert np.all(np.abs(ones.mean(axis=0) - 0.5) < 5 * 0.5 / np.sqrt(4096))
    correlations = np.corrcoef(ones.T)[np.triu_indices(128, 1)]
    assert np.max(np.abs(correlations)) < 5.5 / np.sqrt(4096)  # 8,128 pairs


def test_sequential_raw_keys_give_fair_first_words():
    keys = np.stack([np.zeros(20_000, np.uint32), np.arange(20_000, dtype=np.uint32)], axis=1)
    first = np.asarray(cheap_jit(jax.vmap(lambda key: random_bits(key, 0, (1,))[0]))(keys))
    assert stats.kstest(first / 2**32, "uniform").pvalue > ALPHA


@pytest.mark.parametrize("rate", [0.0, 0.1, 0.4, 0.9])
def test_the_kept_part_is_one_minus_the_rate(rate):
    kept = np.asarray(cheap_jit(lambda key: keep_mask(key, 0, (1000, 1000), rate))(jax.random.key(4))).mean()
    assert abs(kept - (1 - rate)) <= 5 * np.sqrt(rate * (1 - rate)) / 1000


def test_a_population_draws_what_each_member_draws_alone():
    keys = jax.random.split(jax.random.key(2), 5)
    together = cheap_jit(jax.vmap(lambda key: random_bits(key, 3, (7, 11))))(keys)
    for index in range(5):
        np.testing.assert_array_equal(together[index], draw(keys[index], 3, (7, 11)))
    assert len({leaf.tobytes() for leaf in np.asarray(together)}) == 5


def test_typed_and_raw_keys_agree():
    key = jax.random.key(12)
    np.testing.assert_array_equal(draw(key, 1, (9,)), draw(jax.random.key_data(key), 1, (9,)))


def test_dropout_keeps_the_mean_and_is_off_in_evaluation():
    values = jnp.ones((500, 500))
    dropped = np.asarray(
        cheap_jit(lambda v, key: dropout(v, 0.4, train=True, key=key, stream=0))(values, jax.random.key(0))
    )
    assert set(np.unique(dropped).tolist()) == {0.0, float(np.float32(1 / 0.6))}
    assert float(dropped.mean()) == pytest.approx(1.0, abs=5 * np.sqrt(0.4 / 0.6) / 500)
    assert dropout(values, 0.4, train=False, key=jax.random.key(0), stream=0) is values
    assert dropout(values, 0.0, train=True, key=jax.random.key(0), stream=0) is values
