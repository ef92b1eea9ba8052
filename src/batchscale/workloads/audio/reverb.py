"""The room: one impulse response for all examples, convolved by Fourier transform. Pure, in float32."""

import jax
import jax.numpy as jnp


def add_reverb(samples: jax.Array, response: jax.Array) -> jax.Array:
    """The dry samples (batch, time) plus their convolution with a response whose first value is left out.

    That first value would be the dry sound once more.
    """
    length = samples.shape[-1]
    echo = response.astype(jnp.float32).at[0].set(0.0)[:length]
    size = 1 << (length + echo.shape[0] - 2).bit_length()
    wet = jnp.fft.irfft(jnp.fft.rfft(samples, size) * jnp.fft.rfft(echo, size), size)
    return samples + wet[..., :length]
