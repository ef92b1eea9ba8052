"""Attention against the library's, values and gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from batchscale.workloads.models.architectures.transformer import attend_backwards, softmax


def draw(dtype):
    keys = jax.random.split(jax.random.key(0), 4)
    return [jax.random.normal(key, (3, 7, 2, 5), jnp.float32).astype(dtype) for key in keys]


# float32 rounds to 6e-8 and bfloat16 to 4e-3, in sums of up to seven values of about one
@pytest.mark.parametrize(("dtype", "rounding"), [(jnp.float32, 2e-6), (jnp.bfloat16, 5e-2)])
def test_it_sees_what_the_librarys_attention_sees_forwards_and_backwards(dtype, rounding):
    *inputs, weights = draw(dtype)

    def library(query, key, value):
        return jax.nn.dot_product_attention(query, key, value, is_causal=True)

    def both_ways(see):
        def total(*given):
            seen = see(*given)
            return jnp.sum((seen * weights).astype(jnp.float32)), seen

        (_, seen), gradients = jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2), has_aux=True))(*inputs)
        assert seen.dtype == dtype
        return [seen, *gradients]

    for one, other in zip(both_ways(attend_backwards), both_ways(library), strict=True):
        np.testing.assert_allclose(one.astype(np.float32), other.astype(np.float32), rtol=0, atol=4 * rounding)


def test_shares_of_huge_scores_are_finite_and_add_up_to_one():
    shares = softmax(jnp.array([[1e30, 1e30, -1e30], [-3e38, 0.0, 0.0]]))
    np.testing.assert_allclose(shares, [[0.5, 0.5, 0], [0, 0.5, 0.5]])
