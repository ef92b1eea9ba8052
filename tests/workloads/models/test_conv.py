"""The forms of a convolution against XLA's own, forward and backward; pooling against ``reduce_window``."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from batchscale.workloads.models.architectures.resnet_50 import _overlapping_max_pool
from batchscale.workloads.models.layers import conv
from batchscale.workloads.models.layers.conv import (
    Conv,
    convolve,
    convolve_by_patches,
    convolve_by_rows,
    convolve_natively,
    max_pool,
)

sys.path.insert(0, str(Path(__file__).parents[1]))
from generated import cheap_jit


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


CASES = [
    ((2, 8, 8, 3), 5, 1, "SAME"),
    ((1, 7, 9, 2), 3, 1, "SAME"),
    ((3, 9, 7, 2), 3, 2, "SAME"),
    ((2, 8, 6, 1), 7, 2, "SAME"),
    ((2, 6, 7, 4), 1, 2, "SAME"),
    ((1, 7, 9, 2), 3, 1, "VALID"),
    ((1, 11, 8, 2), 4, 3, "VALID"),
]


@pytest.mark.parametrize(("shape", "size", "stride", "padding"), CASES)
def test_both_forms_equal_the_native_convolution_and_its_gradients(shape, size, stride, padding):
    images, kernel = draw(*shape), draw(size, size, shape[-1], 4, seed=1)

    @cheap_jit
    def both(images, kernel):
        results = []
        for form in (convolve_by_rows, convolve_by_patches, convolve_natively):
            value, pullback = jax.vjp(lambda i, k, form=form: form(i, k, stride, padding), images, kernel)
            results.append((value, *pullback(jnp.cos(value))))
        return results

    *forms, native = both(images, kernel)
    for ours in forms:
        for found, expected in zip(ours, native, strict=True):
            assert found.shape == expected.shape
            np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)  # sums of up to 500 float32 products


@pytest.mark.parametrize(("count", "images_per_block"), [(5, 2), (8, 2), (5, 1)])
def test_blocks_of_images_equal_the_native_convolution_and_its_gradients(count, images_per_block, monkeypatch):
    images, kernel = draw(count, 9, 7, 3), draw(3, 3, 3, 4, seed=1)
    each = 4 * (9 * 7 * 3 * 3 + 9 * 7 * 4)
    monkeypatch.setattr(conv, "_BLOCK_BYTES", images_per_block * each)
    assert conv._block_size(images, kernel, 1, "SAME") == images_per_block

    @cheap_jit
    def both(images, kernel):
        results = []
        for form in (conv.convolve_in_blocks, convolve_natively):
            value, pullback = jax.vjp(lambda i, k, form=form: form(i, k, 1, "SAME"), images, kernel)
            results.append((value, *pullback(jnp.cos(value))))
        return results

    for found, expected in zip(*both(images, kernel), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)  # sums of up to 500 float32 products


def test_a_population_of_kernels_equals_each_alone():
    images, kernels = draw(2, 6, 6, 2), draw(3, 3, 3, 2, 4, seed=1)
    together = cheap_jit(jax.vmap(lambda kernel: convolve(images, kernel)))(kernels)
    alone = cheap_jit(lambda kernel: convolve(images, kernel))
    for index in range(3):
        np.testing.assert_allclose(together[index], alone(kernels[index]), rtol=1e-5, atol=1e-5)


def test_the_form_follows_the_backend(monkeypatch):
    images, kernel = draw(1, 5, 5, 1), draw(3, 3, 1, 1)
    assert "conv_general_dilated" not in str(jax.make_jaxpr(convolve)(images, kernel))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert "conv_general_dilated" in str(jax.make_jaxpr(lambda i, k: convolve(i, k))(images, kernel))


@pytest.mark.parametrize(
    ("kernel", "is_chosen"),
    [((5, 5, 1, 32), True), ((3, 3, 3, 64), True), ((3, 3, 3, 16), False), ((1, 1, 4, 8), False)],
)
def test_whole_patches_are_laid_out_where_they_are_no_larger_than_the_result(kernel, is_chosen, monkeypatch):
    chosen = []
    monkeypatch.setattr(conv, "convolve_by_patches", lambda images, *_: chosen.append(True) or images)
    images = draw(2, 8, 8, kernel[2])
    convolve(images, draw(*kernel))
    assert bool(chosen) == is_chosen
    with conv.ordinary_products():
        convolve(images, draw(*kernel))
    assert len(chosen) == is_chosen


def test_a_layer_computes_in_the_type_it_was_given_and_keeps_float32_parameters():
    layer = Conv(2, 3, 3, dtype=jnp.dtype("bfloat16"), rngs=nnx.Rngs(0))
    assert jax.eval_shape(layer, draw(1, 4, 4, 2)).dtype == jnp.bfloat16
    assert layer.kernel[...].dtype == jnp.float32
    follows = Conv(2, 3, 3, rngs=nnx.Rngs(0))
    assert jax.eval_shape(follows, draw(1, 4, 4, 2)).dtype == jnp.float32


def windows(images, size, padding):
    return jax.lax.reduce_window(images, -jnp.inf, jax.lax.max, (1, size, size, 1), (1, 2, 2, 1), padding)


@pytest.mark.parametrize("shape", [(2, 4, 6, 3), (1, 5, 7, 2), (2, 1, 4, 1)])
@pytest.mark.parametrize(("ours", "size", "padding"), [(max_pool, 2, "VALID"), (_overlapping_max_pool, 3, "SAME")])
def test_pooling_and_its_gradient_equal_the_window_form_where_no_values_tie(shape, ours, size, padding):
    @cheap_jit
    def both(images):
        results = []
        for form in (ours, lambda x: windows(x, size, padding)):
            value, pullback = jax.vjp(form, images)
            results.append((value, *pullback(jnp.cos(10 * value))))
        return results

    (found, gradient), (expected, expected_gradient) = both(draw(*shape))
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-6, atol=1e-6)


def test_ties_after_relu_pass_no_gradient():
    flat = np.full((1, 2, 2, 1), -1.0, np.float32)
    gradient = cheap_jit(jax.grad(lambda x: max_pool(jax.nn.relu(x)).sum()))(flat)
    np.testing.assert_array_equal(gradient, np.zeros((1, 2, 2, 1)))


def test_a_tie_shares_the_gradient():
    equal = np.ones((1, 2, 2, 1), np.float32)
    gradient = cheap_jit(jax.grad(lambda x: max_pool(x).sum()))(equal)
    np.testing.assert_allclose(gradient, np.full((1, 2, 2, 1), 0.25))
