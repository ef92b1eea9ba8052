"""The linear layer against the plain product."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from batchscale.workloads.models.layers.linear import Linear


def gradients(layer, inputs):
    graph, params = nnx.split(layer)
    return jax.grad(lambda params, inputs: jnp.sum(jnp.sin(nnx.merge(graph, params)(inputs))), argnums=(0, 1))(
        params, inputs
    )


@pytest.mark.parametrize(("rows", "outputs"), [(1, 600), (200, 600), (200, 256), (128, 257)])
def test_outputs_and_gradients_are_those_of_the_plain_layer(rows, outputs):
    ours, plain = (kind(30, outputs, rngs=nnx.Rngs(0)) for kind in (Linear, nnx.Linear))
    inputs = jax.random.normal(jax.random.key(1), (rows, 30))
    np.testing.assert_allclose(ours(inputs), plain(inputs), rtol=1e-6)
    for mine, theirs in zip(*(jax.tree.leaves(gradients(layer, inputs)) for layer in (ours, plain)), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


def test_a_population_has_the_gradients_of_its_members():
    layer = Linear(30, 600, rngs=nnx.Rngs(0))
    many = jax.random.normal(jax.random.key(1), (3, 200, 30))
    together = jax.vmap(lambda inputs: gradients(layer, inputs)[1])(many)
    for inputs, found in zip(many, together, strict=True):
        np.testing.assert_allclose(found, gradients(layer, inputs)[1], rtol=2e-5, atol=2e-5)
