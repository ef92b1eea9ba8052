import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchscale.training.devices import Devices
from batchscale.training.evaluation import pack

ONE = Devices(jax.devices()[:1])


@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 50))
def test_every_example_is_packed_once_and_padding_weighs_nothing(count, largest):
    packed = pack({"inputs": np.arange(count, dtype=np.float32), "labels": np.ones((count, 3))}, largest, ONE)
    weights = np.asarray(packed.weights)
    assert weights.shape == packed.arrays["inputs"].shape
    assert weights.shape[1] <= largest
    assert packed.arrays["labels"].shape == (*weights.shape, 3)
    kept = np.asarray(packed.arrays["inputs"])[weights == 1]
    np.testing.assert_array_equal(kept, np.arange(count))


@pytest.mark.parametrize(("count", "largest", "shape"), [(2110, 1000, (3, 704)), (8, 4, (2, 4)), (3, 10, (1, 3))])
def test_batches_are_as_equal_as_they_can_be(count, largest, shape):
    assert pack({"inputs": np.zeros(count)}, largest, ONE).weights.shape == shape
