"""The order of examples: permutations, the same on device and host, equally often across epoch boundaries."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchscale.training.order import batch_indices, host_indices

KEY = np.array([123456789, 4011223344], np.uint32)


@settings(max_examples=60, deadline=None)
@given(num_examples=st.integers(1, 3000), epoch=st.integers(0, 2**31 - 1), word=st.integers(0, 2**32 - 1))
def test_an_epoch_holds_every_example_once(num_examples, epoch, word):
    key = np.array([word, word ^ 0x12345678], np.uint32)
    indices, epochs = host_indices(key, epoch * num_examples, num_examples, num_examples)
    assert sorted(indices) == list(range(num_examples))
    assert set(epochs) == {epoch}


@pytest.mark.parametrize(("num_examples", "batch_size"), [(10, 3), (12, 4), (7, 7), (1000, 64)])
def test_batches_on_the_device_are_those_on_the_host_and_run_across_epochs(num_examples, batch_size):
    program = jax.jit(lambda epoch, offset: batch_indices(jnp.asarray(KEY), epoch, offset, batch_size, num_examples))
    seen = []
    for step in range(num_examples if num_examples < 100 else 125):  # whole numbers of epochs
        epoch, offset = divmod(step * batch_size, num_examples)
        found = np.asarray(program(jnp.int32(epoch), jnp.int32(offset)))
        expected, _ = host_indices(KEY, step * batch_size, batch_size, num_examples)
        np.testing.assert_array_equal(found, expected)
        seen.append(found)
    counts = np.bincount(np.concatenate(seen), minlength=num_examples)
    assert len(set(counts)) == 1


def test_every_example_is_equally_likely_at_every_place_and_next_to_every_other():
    num_examples, epochs = 12, 40_000
    indices, _ = host_indices(KEY, 0, num_examples * epochs, num_examples)
    table = indices.reshape(epochs, num_examples)
    for place in range(num_examples):
        assert _chi_square(np.bincount(table[:, place], minlength=num_examples)) < 40  # 11 degrees: p < 4e-5 each
    pairs = np.bincount(table[:, 0] * num_examples + table[:, 1], minlength=num_examples**2)
    apart = pairs[[i * num_examples + j for i in range(num_examples) for j in range(num_examples) if i != j]]
    assert _chi_square(apart) < 210  # 131 degrees: p < 2e-5
    # the same example's place in following epochs
    places = np.argsort(table, axis=1)[:, 0]
    follow = np.bincount(places[:-1] * num_examples + places[1:], minlength=num_examples**2)
    assert _chi_square(follow) < 225  # 143 degrees: p < 2e-5


def _chi_square(counts):
    expected = counts.sum() / len(counts)
    return float(np.sum((counts - expected) ** 2) / expected)
