"""Parameters start with the variance that their place asks for, each with values of its own."""

import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from batchscale.workloads.models.declaration import Shape, find_model
from batchscale.workloads.models.layers.initializers import before_output, before_relu, between, uniform

sys.path.insert(0, str(Path(__file__).parent))
from generated import cheap_jit


@pytest.mark.parametrize(
    ("init", "shape", "variance"),
    [
        (before_relu(), (3, 3, 16, 200), 2 / (9 * 16)),
        (before_relu(), (500, 300), 2 / 500),
        (before_output(), (500, 300), 1 / 500),
        (between, (500, 300), 2 / 800),
        (uniform(0.3), (400, 400), 0.09),
    ],
)
def test_values_have_mean_zero_and_the_stated_variance(init, shape, variance):
    values = np.asarray(cheap_jit(lambda key: init(key, shape, np.float32))(jax.random.key(3)))
    count = values.size
    assert abs(values.mean()) < 5 * np.sqrt(variance / count)
    assert values.var() == pytest.approx(variance, rel=5 * np.sqrt(0.8 / count))  # kurtosis of a uniform: 1.8
    assert np.abs(values).max() <= np.sqrt(3 * variance)


def test_no_two_layers_and_no_two_keys_start_alike():
    model = find_model("fc_32_32_32", {}).for_data(Shape((32,), 32))
    kernels, start = [], cheap_jit(model.init)
    for seed in range(2):
        params, _ = start(jax.random.key(seed))
        kernels += [layer["kernel"] for layer in (*params["hidden"].values(), params["output"])]
    flat = np.stack([np.ravel(kernel) for kernel in kernels])
    correlations = np.corrcoef(flat)[np.triu_indices(8, 1)]
    assert np.abs(correlations).max() < 5 / np.sqrt(1024)


def test_the_same_key_starts_the_same_alone_and_in_a_population():
    model = find_model("simple_cnn_base", {"tiny": True}).for_data(Shape((8, 8, 1), 4))
    keys = jax.random.split(jax.random.key(0), 3)
    together = cheap_jit(jax.vmap(model.init))(keys)
    for found, expected in zip(jax.tree.leaves(together), jax.tree.leaves(cheap_jit(model.init)(keys[1])), strict=True):
        np.testing.assert_array_equal(found[1], expected)
