"""What training relies on, for every architecture: populations, determinism, evaluation, precision, causality."""

import functools
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from batchscale.workloads.models import declaration
from batchscale.workloads.models.declaration import Shape, find_model

sys.path.insert(0, str(Path(__file__).parents[1]))
from generated import cheap_jit

IMAGES, WORDS = Shape((32, 32, 3), 5), Shape((6,), 11)
SOUND = Shape((8, 2), 8 * 64)
MODELS = {
    "fc_8_8": IMAGES,
    "simple_cnn_base": IMAGES,
    "resnet_8": IMAGES,
    "resnet_50": IMAGES,
    "vgg_11": IMAGES,
    "lstm": WORDS,
    "transformer_base": WORDS,
    "gpt_100k": WORDS,
    "ddsp": SOUND,
}
COUNT = 5
# Their programs take long to compile; their layers are tested on their own and in Simple CNN.
SLOW = ("resnet_8", "resnet_50", "vgg_11")
EVERY = [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in MODELS]


def build(name, **options):
    return find_model(name, {"tiny": True, **options}).for_data(MODELS[name])


@functools.cache
def start(name):
    return cheap_jit(build(name).init)(jax.random.key(0))


@functools.cache
def evaluation(name):
    """The compiled evaluation of the model as it starts, of inputs and a key; one for all tests."""
    model = build(name)
    params, state = start(name)
    return cheap_jit(lambda inputs, key: model.apply(params, state, inputs, train=False, key=key))


def draw_inputs(name):
    random = np.random.default_rng(0)
    if MODELS[name] is WORDS:
        return jnp.asarray(random.integers(0, 11, size=(COUNT, 6)), jnp.int32)
    if MODELS[name] is SOUND:  # hertz and decibels
        return jnp.asarray(random.uniform((100, -60), (800, 0), size=(COUNT, *SOUND.inputs)), jnp.float32)
    return jnp.asarray(random.normal(size=(COUNT, *IMAGES.inputs)), jnp.float32)


def test_every_architecture_is_tested_here():
    builders = {one.build for one in declaration.MODELS.all().values() if one.name != "quadratic"}
    assert {find_model(name, {}).build for name in MODELS} == builders


@pytest.mark.parametrize("name", EVERY)
def test_a_population_equals_each_member_alone(name):
    model, inputs = build(name), draw_inputs(name)

    def run(key):
        params, state = model.init(key)
        return model.apply(params, state, inputs, train=True, key=key)

    keys = jax.random.split(jax.random.key(1), 2)
    together, alone = cheap_jit(jax.vmap(run))(keys), cheap_jit(run)
    for index in range(2):
        expected = alone(keys[index])
        for found, leaf in zip(jax.tree.leaves(together), jax.tree.leaves(expected), strict=True):
            # float32 reordering; a wrong dropout mask or mixed members would differ by the size of the values
            np.testing.assert_allclose(found[index], leaf, rtol=2e-3, atol=2e-4)
    assert alone._cache_size() == 1


@pytest.mark.parametrize("name", EVERY)
def test_evaluation_ignores_the_key_and_leaves_the_state(name):
    inputs, (_, state) = draw_inputs(name), start(name)
    first, second = (evaluation(name)(inputs, jax.random.key(seed)) for seed in (1, 2))
    for one, other in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(jax.tree.leaves(state), jax.tree.leaves(first[1]), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", EVERY)
def test_half_precision_stays_near_and_parameters_stay_float32(name):
    half, inputs = build(name, precision="bfloat16"), draw_inputs(name)
    params, state = start(name)
    assert {leaf.dtype for leaf in jax.tree.leaves((params, state))} == {jnp.dtype("float32")}
    expected, _ = evaluation(name)(inputs, jax.random.key(0))
    assert expected.dtype == jnp.float32
    found, _ = cheap_jit(lambda p: half.apply(p, state, inputs, train=False, key=jax.random.key(0)))(params)
    # eight bits would be heard as noise: of a model of sound the networks compute in half precision, oscillators do not
    assert found.dtype == (jnp.float32 if MODELS[name] is SOUND else jnp.bfloat16)
    scale = float(jnp.abs(expected).max())
    np.testing.assert_allclose(found.astype(jnp.float32), expected, atol=0.05 * scale)  # 8 bits, up to 12 layers


@pytest.mark.parametrize("name", [name for name, shape in MODELS.items() if shape is WORDS])
def test_a_language_model_never_sees_what_comes_later(name):
    inputs, key = draw_inputs(name), jax.random.key(0)
    same, _ = evaluation(name)(inputs, key)
    for position in range(1, 6):
        changed, _ = evaluation(name)(inputs.at[:, position].set((inputs[:, position] + 1) % 11), key)
        np.testing.assert_allclose(changed[:, :position], same[:, :position], rtol=1e-5, atol=1e-6)
        assert np.abs(np.asarray(changed - same))[:, position:].max() > 1e-4


@pytest.mark.parametrize("name", ["fc_8_8", "simple_cnn_base", "transformer_base"])
def test_dropout_follows_the_key(name):
    model, inputs = build(name), draw_inputs(name)
    params, state = start(name)
    train = cheap_jit(lambda key: model.apply(params, state, inputs, train=True, key=key)[0])
    np.testing.assert_array_equal(train(jax.random.key(1)), train(jax.random.key(1)))
    assert np.abs(np.asarray(train(jax.random.key(1)) - train(jax.random.key(2)))).max() > 1e-3


@pytest.mark.slow
def test_microbatches_of_whole_ghost_batches_give_the_outputs_and_state_of_the_batch():
    model = build("resnet_50", ghost_batch_size=2)
    inputs = draw_inputs("resnet_50")
    assert model.microbatch_multiple == 2
    params, state = start("resnet_50")
    apply = cheap_jit(lambda part: model.apply(params, state, part, train=True, key=jax.random.key(0)))
    whole, whole_state = apply(inputs)
    parts = [apply(inputs[:2]), apply(inputs[2:])]
    np.testing.assert_allclose(jnp.concatenate([out for out, _ in parts]), whole, rtol=1e-4, atol=1e-4)
    average = jax.tree.map(lambda a, b: (2 * a + 3 * b) / 5, parts[0][1], parts[1][1])
    for found, expected in zip(jax.tree.leaves(average), jax.tree.leaves(whole_state), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
