"""The linear layer against the plain product."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from batchscale.workloads.models.layers.linear import Embedding, Linear, sum_outer_products

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


@pytest.mark.parametrize(
    ("rows", "outputs"), [(1, 600), (2, 600), (8, 3000), (200, 600), (200, 256), (128, 257), (8, 600), (200, 10)]
)
def test_outputs_and_gradients_are_those_of_the_plain_layer(rows, outputs):
    ours, plain = (kind(30, outputs, rngs=nnx.Rngs(0)) for kind in (Linear, nnx.Linear))
    inputs = draw(rows, 30)
    (found, gradients), (expected, plain_gradients) = cheap_jit(run(ours))(inputs), cheap_jit(run(plain))(inputs)
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    for mine, theirs in zip(jax.tree.leaves(gradients), jax.tree.leaves(plain_gradients), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("rows", "height", "width"), [(64, 40, 4), (64, 41, 4), (64, 40, 5), (64, 41, 5), (3, 40, 4), (64, 4, 40)]
)
def test_the_sum_of_outer_products_is_a_product_however_it_is_laid_out(rows, height, width):
    left, right = draw(rows, height), draw(rows + 1, width)[1:]
    found = cheap_jit(sum_outer_products)(left, right)
    np.testing.assert_allclose(found, left.T.astype(float) @ right.astype(float), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("sentences", [1, 20])
@pytest.mark.parametrize("words", [1, 9])
def test_scores_and_their_gradients_are_those_of_the_plain_product(sentences, words):
    embedding = Embedding(30, 8, 1.0, dtype=None, rngs=nnx.Rngs(0))
    table, values, above = np.asarray(embedding.table[...]), draw(sentences, words, 8), draw(sentences, words, 30)
    graph, params = nnx.split(embedding)
    found, pull = jax.vjp(lambda params, values: nnx.merge(graph, params).scores(values), params, values)
    to_params, to_values = pull(above)
    (to_table,) = jax.tree.leaves(to_params)
    np.testing.assert_allclose(found, values @ table.T, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(to_table, np.einsum("ewv,ewc->vc", above, values), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(to_values, above @ table, rtol=1e-4, atol=1e-4)


def test_a_population_has_the_gradients_of_its_members():
    function = run(Linear(30, 600, rngs=nnx.Rngs(0)))
    many = draw(3, 200, 30)
    together = cheap_jit(jax.vmap(function))(many)[1][1]
    alone = cheap_jit(function)
    for inputs, found in zip(many, together, strict=True):
        np.testing.assert_allclose(found, alone(inputs)[1][1], rtol=2e-5, atol=2e-5)
