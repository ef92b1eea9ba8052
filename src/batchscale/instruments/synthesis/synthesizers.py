"""The synthesizers of DDSP: harmonic oscillators, filtered noise and reverb (Engel et al. 2020, section 3).

Frame ``f`` stands at sample ``f·hop``; the last one holds to the end. All functions are pure and in float32.
"""

import jax
import jax.numpy as jnp

from batchscale.workloads.random_bits import random_bits

_STREAM = 7  # the noise's own bits of a key


def exp_sigmoid(values: jax.Array) -> jax.Array:
    """Turn any number into an amplitude: ``2·sigmoid(x)^ln 10 + 1e-7``, a tenfold change per unit where x is small.

    >>> round(float(exp_sigmoid(jnp.float32(0.0))), 4)  # 2 · 0.5^2.3026
    0.4054
    """
    return 2.0 * jax.nn.sigmoid(values) ** jnp.log(10.0) + 1e-7


def normalised_below_nyquist(distribution: jax.Array, f0_hz: jax.Array, sample_rate: int) -> jax.Array:
    """Return the share of each harmonic, summing to 1 over those below half the sample rate; 0 for the others."""
    numbers = jnp.arange(1, distribution.shape[-1] + 1, dtype=jnp.float32)
    below = jnp.where(f0_hz[..., None] * numbers < sample_rate / 2, distribution, 0.0)
    total = jnp.sum(below, axis=-1, keepdims=True)
    return below / jnp.where(total > 0, total, 1.0)


def oscillate(
    f0_hz: jax.Array, amplitudes: jax.Array, hop: int, sample_rate: int, start: jax.Array | float = 0.0
) -> jax.Array:
    """Return the sum of the harmonics of ``f0_hz`` (batch, frames) with ``amplitudes`` (batch, frames, harmonics).

    Between frames the frequency is interpolated linearly and amplitudes along a raised cosine, as overlapping Hann
    windows would; a harmonic that lies above half the sample rate is silent at that sample. ``start`` is the phase of
    the first sample in cycles.
    """
    numbers = jnp.arange(1, amplitudes.shape[-1] + 1, dtype=jnp.float32)
    places = jnp.arange(hop, dtype=jnp.float32) / hop
    cycles = _between(f0_hz, places) / sample_rate
    phases = start + _phases(cycles)
    # (batch, frames, hop, harmonics); no parameter has a part in it, so that the backward pass stops here
    waves = jnp.sin(2 * jnp.pi * ((phases[..., None] * numbers) % 1.0))
    waves = jnp.where(cycles[..., None] * numbers < 0.5, waves, 0.0)
    ends = jnp.stack([amplitudes, _next(amplitudes)], axis=-1)
    sums = jnp.einsum("bfsh,bfhe->bfse", waves, ends)
    rising = 0.5 - 0.5 * jnp.cos(jnp.pi * places)
    samples = sums[..., 0] * (1 - rising) + sums[..., 1] * rising
    return samples.reshape(samples.shape[0], -1)


def _next(frames: jax.Array) -> jax.Array:
    """Return the frame after each, along the second axis; the last one stays."""
    return jnp.concatenate([frames[:, 1:], frames[:, -1:]], axis=1)


def _between(frames: jax.Array, places: jax.Array) -> jax.Array:
    """Return values on straight lines from each frame to the next: (batch, frames, places)."""
    return frames[..., None] + (_next(frames) - frames)[..., None] * places


def _phases(cycles: jax.Array) -> jax.Array:
    """Return the phase at every sample in cycles: the sum of all frequencies before it.

    Whole cycles are dropped frame by frame: a plain sum over minutes would lose the phase in float32.
    """
    within = jnp.cumsum(cycles, axis=-1)
    totals = within[..., -1] % 1.0
    ends = jax.lax.associative_scan(lambda a, b: (a + b) % 1.0, totals, axis=1)
    starts = jnp.concatenate([jnp.zeros_like(ends[:, :1]), ends[:, :-1]], axis=1)
    return starts[..., None] + within - cycles


def white_noise(key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """Return uniform noise in [-1, 1), by example: the same in any microbatch and on any device."""
    bits = random_bits(key, _STREAM, shape) >> 8
    return bits.astype(jnp.int32).astype(jnp.float32) * 2.0**-23 - 1.0


def filter_frames(noise: jax.Array, magnitudes: jax.Array) -> jax.Array:
    """Return samples of ``noise`` (batch, frames, hop), each frame filtered by ``magnitudes`` (batch, frames, bands).

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
    """Add up frames (batch, frames, size), each ``hop`` samples after the one before."""
    batch, count, size = frames.shape
    parts = -(-size // hop)
    padded = jnp.pad(frames, ((0, 0), (0, 0), (0, parts * hop - size))).reshape(batch, count, parts, hop)
    shifted = [jnp.pad(padded[:, :, part], ((0, 0), (part, parts - 1 - part), (0, 0))) for part in range(parts)]
    return sum(shifted[1:], shifted[0]).reshape(batch, -1)


def add_reverb(samples: jax.Array, response: jax.Array) -> jax.Array:
    """Return the dry samples (batch, time) plus their convolution with a response whose first value is left out.

    That first value would be the dry sound once more. One response serves all examples.
    """
    length = samples.shape[-1]
    echo = response.astype(jnp.float32).at[0].set(0.0)[:length]
    size = _power_of_two(length + echo.shape[0] - 1)
    wet = jnp.fft.irfft(jnp.fft.rfft(samples, size) * jnp.fft.rfft(echo, size), size)
    return samples + wet[..., :length]


def _power_of_two(least: int) -> int:
    return 1 << (least - 1).bit_length()
