"""The linear layer against the plain product."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from batchscale.workloads.models.layers.linear import Linear

sys.path.insert(0, str(Path(__file__).parents[1]))
from generated import cheap_jit


def draw(*shape):
    return np.random.default_rng(1).normal(size=shape).astype(np.float32)


def run(layer):
    """The outputs of a layer and their gradients by its parameters and inputs, as one function of the inputs."""
    graph, params = nnx.split(layer)

    def loss(params, inputs):
        outputs = nnx.merge(graph, params)(inputs)
        return jnp.sum(jnp.sin(outputs)), outputs

    both = jax.grad(loss, argnums=(0, 1), has_aux=True)
    return lambda inputs: both(params, inputs)[::-1]


@pytest.mark.parametrize(("rows", "outputs"), [(1, 600), (200, 600), (200, 256), (128, 257)])
def test_outputs_and_gradients_are_those_of_the_plain_layer(rows, outputs):
    ours, plain = (kind(30, outputs, rngs=nnx.Rngs(0)) for kind in (Linear, nnx.Linear))
    inputs = draw(rows, 30)
    (found, gradients), (expected, plain_gradients) = cheap_jit(run(ours))(inputs), cheap_jit(run(plain))(inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    for mine, theirs in zip(jax.tree.leaves(gradients), jax.tree.leaves(plain_gradients), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


def test_a_population_has_the_gradients_of_its_members():
    function = run(Linear(30, 600, rngs=nnx.Rngs(0)))
    many = draw(3, 200, 30)
    together = cheap_jit(jax.vmap(function))(many)[1][1]
    alone = cheap_jit(function)
    for inputs, found in zip(many, together, strict=True):
        np.testing.assert_allclose(found, alone(inputs)[1][1], rtol=2e-5, atol=2e-5)
