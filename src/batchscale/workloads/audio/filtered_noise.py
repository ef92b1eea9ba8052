"""White noise through a filter that changes from frame to frame (Engel et al. 2020, section 3.4). Pure, in float32."""

import jax
import jax.numpy as jnp

from batchscale.workloads.random_bits import random_bits

_STREAM = 7  # the noise's own bits of a key


def white_noise(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Uniform noise in [-1, 1), by example: the same in any microbatch and on any device."""
    bits = random_bits(key, _STREAM, shape) >> 8
    return bits.astype(jnp.int32).astype(jnp.float32) * 2.0**-23 - 1.0


def filter_frames(noise: jax.Array, magnitudes: jax.Array) -> jax.Array:
    """Samples of ``noise`` (batch, frames, hop), each frame filtered by ``magnitudes`` (batch, frames, bands).

    Bands lie evenly from 0 Hz to half the sample rate. The filter of a frame is the linear-phase window design: the
    inverse transform of its magnitudes, centred, under a Hann window; its delay is taken out again.
    """
    hop, bands = noise.shape[-1], magnitudes.shape[-1]
    length = 2 * (bands - 1)
    window = 0.5 - 0.5 * jnp.cos(2 * jnp.pi * (jnp.arange(length) / length))
    impulse = jnp.roll(jnp.fft.irfft(magnitudes.astype(jnp.float32), length), length // 2, axis=-1) * window
    size = _power_of_two(hop + length - 1)
    filtered = jnp.fft.irfft(jnp.fft.rfft(noise, size) * jnp.fft.rfft(impulse, size), size)
    samples = overlap_add(filtered, hop)
    return jax.lax.dynamic_slice_in_dim(samples, length // 2, noise.shape[1] * hop, axis=1)


def overlap_add(frames: jax.Array, hop: int) -> jax.Array:
    """Frames (batch, frames, size) added up, each ``hop`` samples after the one before."""
    batch, count, size = frames.shape
    parts = -(-size // hop)
    padded = jnp.pad(frames, ((0, 0), (0, 0), (0, parts * hop - size))).reshape(batch, count, parts, hop)
    shifted = [jnp.pad(padded[:, :, part], ((0, 0), (part, parts - 1 - part), (0, 0))) for part in range(parts)]
    return sum(shifted[1:], shifted[0]).reshape(batch, -1)


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
