"""Convolution by tiles against XLA's own and against float64, forward and backward, and where it is used."""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from batchscale.workloads.models.layers import winograd
from batchscale.workloads.models.layers.conv import convolve, convolve_by_rows, convolve_natively, ordinary_products
from batchscale.workloads.models.layers.winograd import convolve_by_tiles, make_transforms, tiles_pay

sys.path.insert(0, str(Path(__file__).parents[1]))
from generated import cheap_jit


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def value_and_gradients(form):
    """The outputs of a form of convolution and both gradients: a function of images, kernel and outputs' gradient."""

    def run(images, kernel, above):
        value, pullback = jax.vjp(form, images, kernel)
        return (value, *pullback(above))

    return run


@pytest.mark.parametrize("size", [3, 5])
def test_the_sums_of_a_tile_are_an_exact_convolution(size):
    to_outputs, of_kernel, of_inputs = make_transforms(size)
    kernel, inputs = np.random.default_rng(1).normal(size=(2, 9))
    found = to_outputs @ ((of_kernel @ kernel[:size]) * (of_inputs @ inputs[: len(of_inputs)]))
    expected = np.correlate(inputs[: len(of_inputs)], kernel[:size])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(
    ("shape", "size"), [((4, 8, 6, 3), 5), ((3, 7, 9, 2), 5), ((1, 3, 2, 4), 5), ((2, 8, 9, 3), 3), ((5, 6, 3, 2), 3)]
)
def test_tiles_equal_the_native_convolution_and_its_gradients(shape, size, monkeypatch):
    monkeypatch.setattr(winograd, "_BLOCK_BYTES", 2**15)  # one or two images at a time
    images, kernel, above = draw(*shape), draw(size, size, shape[-1], 4, seed=1), draw(*shape[:-1], 4, seed=2)
    ours = cheap_jit(value_and_gradients(convolve_by_tiles))(images, kernel, above)
    native = cheap_jit(value_and_gradients(lambda i, k: convolve_natively(i, k, 1, "SAME")))(images, kernel, above)
    for found, expected in zip(ours, native, strict=True):
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)  # sums of up to 500 float32 products


@pytest.mark.parametrize(("shape", "size"), [((4, 14, 14, 32), 5), ((4, 16, 16, 32), 3)])
def test_the_error_is_a_few_times_that_of_ordinary_sums(shape, size):
    images, above = np.maximum(draw(*shape), 0), draw(*shape[:-1], 32, seed=2)
    kernel = draw(size, size, shape[-1], 32, seed=1) / size
    by_rows = value_and_gradients(lambda i, k: convolve_by_rows(i, k, 1, "SAME"))
    ours = cheap_jit(value_and_gradients(convolve_by_tiles))(images, kernel, above)
    rows = cheap_jit(by_rows)(images, kernel, above)
    with jax.enable_x64(True):
        exact = cheap_jit(by_rows)(*(np.asarray(values, np.float64) for values in (images, kernel, above)))
        exact = [np.asarray(values) for values in exact]
    for found, plain, expected in zip(ours, rows, exact, strict=True):
        errors = [np.sqrt(np.mean((np.asarray(values) - expected) ** 2)) for values in (found, plain)]
        assert errors[0] < 10 * errors[1]
        assert errors[0] < 3e-6 * np.sqrt(np.mean(np.square(expected)))


def test_a_population_of_kernels_equals_each_alone():
    images, kernels, above = draw(2, 6, 6, 2), draw(3, 5, 5, 2, 4, seed=1), draw(2, 6, 6, 4, seed=2)
    alone = value_and_gradients(convolve_by_tiles)
    together = cheap_jit(jax.vmap(alone, in_axes=(None, 0, None)))(images, kernels, above)
    for index in range(3):
        for found, expected in zip(together, cheap_jit(alone)(images, kernels[index], above), strict=True):
            np.testing.assert_allclose(found[index], expected, rtol=1e-4, atol=1e-4)  # two orders of float32 sums


def test_tiles_are_used_where_they_pay():
    def pays(images, kernel, dtype=jnp.float32):
        return tiles_pay(jnp.zeros(images, dtype), jnp.zeros(kernel, dtype))

    assert pays((2, 14, 14, 32), (5, 5, 32, 64)) and pays((8, 16, 16, 32), (3, 3, 32, 32))
    assert not pays((64, 28, 28, 1), (5, 5, 1, 32))  # few channels
    assert not pays((64, 8, 8, 256), (3, 3, 256, 256))  # many weights
    assert not pays((1, 4, 4, 32), (3, 3, 32, 32))  # few tiles
    assert not pays((64, 14, 14, 32), (1, 1, 32, 32)) and not pays((64, 14, 14, 32), (5, 3, 32, 32))
    assert not pays((64, 14, 14, 32), (5, 5, 32, 64), jnp.bfloat16)  # the sums lose bits that it does not have


def test_only_a_cpu_uses_tiles_and_counting_does_not(monkeypatch):
    images, kernel = jnp.zeros((4, 14, 14, 16)), jnp.zeros((5, 5, 16, 16))

    def trace(stride=1):
        return str(jax.make_jaxpr(lambda i, k: convolve(i, k, stride))(images, kernel))

    assert "convolve_by_tiles" in trace() and "convolve_by_tiles" not in trace(2)
    with ordinary_products():
        assert "convolve_by_tiles" not in trace()
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert "convolve_by_tiles" not in trace() and "conv_general_dilated" in trace()
