"""The DDSP model as a whole: sizes, shapes, gradients, and that it can learn a sound."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from batchscale.instruments.synthesis.spectral_loss import spectral_loss
from batchscale.workloads.models.declaration import Shape, find_model

FRAMES, HOP = 40, 64
KEY = jax.random.key(1)
SHAPE = Shape((FRAMES, 2), FRAMES * HOP)


def inputs(count=2, features=2):
    random = np.random.default_rng(0)
    columns = [random.uniform(100, 800, (count, FRAMES)), random.uniform(-60, 0, (count, FRAMES))]
    columns += [random.normal(size=(count, FRAMES)) for _ in range(features - 2)]
    return jnp.asarray(np.stack(columns, axis=-1), jnp.float32)


def count_parameters(name, shape=SHAPE):
    params, _ = jax.eval_shape(find_model(name, {}).for_data(shape).init, jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def test_the_published_size_has_the_parameters_of_the_original():
    # The library's solo_instrument model, layer by layer: two stacks of three layers of 512 with normalization, a GRU
    # of 512 with both biases, a stack after it, an output layer for 1 + 60 + 65 values, 48,000 samples of reverb.
    stack = (1 * 512 + 512) + 2 * (512 * 512 + 512) + 3 * 2 * 512
    gru = 3 * (1024 * 512 + 512 * 512 + 2 * 512)
    after = (1536 * 512 + 512) + 2 * (512 * 512 + 512) + 3 * 2 * 512
    assert count_parameters("ddsp") == 2 * stack + gru + after + (512 * 126 + 126) + 48_000 == 4_849_150


@pytest.mark.parametrize(("name", "count"), [("ddsp_small", 281_342), ("ddsp_tiny", 69_834)])
def test_smaller_sizes(name, count):
    assert count_parameters(name) == count


@pytest.mark.parametrize("features", [2, pytest.param(6, marks=pytest.mark.slow)])
def test_samples_and_gradients_are_finite(features):
    model = find_model("ddsp_tiny", {"tiny": True}).for_data(Shape((FRAMES, features), FRAMES * HOP))
    params, state = jax.jit(model.init)(jax.random.key(0))
    given = inputs(features=features).at[0, :10, 0].set(0.0)  # no pitch
    target = 0.1 * jnp.sin(jnp.arange(FRAMES * HOP) * 0.1)[None]

    def loss(params):
        found = model.apply(params, state, given, train=True, key=KEY)[0]
        assert found.shape == (2, FRAMES * HOP)
        return spectral_loss(found, target, (256,)).mean()

    slopes = jax.jit(jax.grad(loss))(params)
    sizes = [float(jnp.abs(leaf).sum()) for leaf in jax.tree.leaves(slopes)]
    assert np.isfinite(sizes).all()
    assert all(size > 0 for size in sizes)  # every parameter has a part in the sound


def test_evaluation_does_not_depend_on_the_batch_that_an_example_comes_in():
    model = find_model("ddsp_tiny", {"tiny": True}).for_data(SHAPE)
    params, _ = jax.jit(model.init)(jax.random.key(0))
    params["to_controls"]["bias"] = params["to_controls"]["bias"].at[-5:].set(5.0)  # mostly noise
    sound = jax.jit(lambda given: model.apply(params, {}, given, train=False, key=KEY)[0])
    given = inputs(2)
    np.testing.assert_allclose(sound(given)[1], sound(given[::-1])[0], atol=1e-5)


@pytest.mark.slow
def test_the_published_size_takes_a_step():
    frames = 1000
    model = find_model("ddsp", {}).for_data(Shape((frames, 2), frames * HOP))
    params, state = jax.jit(model.init)(jax.random.key(0))
    given = jnp.stack([jnp.full((1, frames), 440.0), jnp.full((1, frames), -20.0)], axis=-1)
    target = 0.1 * jnp.sin(2 * jnp.pi * 440 / 16_000 * jnp.arange(frames * HOP))[None]

    @jax.jit
    def slope(params):
        sound = lambda params: model.apply(params, state, given, train=True, key=KEY)[0]  # noqa: E731
        return jax.value_and_grad(lambda params: spectral_loss(sound(params), target).mean())(params)

    before, slopes = slope(params)
    after, _ = slope(jax.tree.map(lambda value, change: value - 1e-3 * jnp.sign(change), params, slopes))
    assert float(after) < float(before)
