"""Harmonic oscillators: a fundamental frequency and amplitudes per frame become samples (Engel et al. 2020, section 3).

Frame ``f`` stands at sample ``f·hop``; the last one holds to the end. All functions are pure and in float32.
"""

import jax
import jax.numpy as jnp


def exp_sigmoid(values: jax.Array) -> jax.Array:
    """Any number as an amplitude: ``2·sigmoid(x)^ln 10 + 1e-7``, a tenfold change for each unit where x is small.

    >>> round(float(exp_sigmoid(jnp.float32(0.0))), 4)  # 2 · 0.5^2.3026
    0.4054
    """
    return 2.0 * jax.nn.sigmoid(values) ** jnp.log(10.0) + 1e-7


def normalised_below_nyquist(distribution: jax.Array, f0_hz: jax.Array, sample_rate: int) -> jax.Array:
    """The share of each harmonic, summing to 1 over those below half the sample rate; 0 for the others."""
    numbers = jnp.arange(1, distribution.shape[-1] + 1, dtype=jnp.float32)
    kept = jnp.where(f0_hz[..., None] * numbers < sample_rate / 2, distribution, 0.0)
    total = jnp.sum(kept, axis=-1, keepdims=True)
    return kept / jnp.where(total > 0, total, 1.0)


def oscillate(
    f0_hz: jax.Array, amplitudes: jax.Array, hop: int, sample_rate: int, start: jax.Array | float = 0.0
) -> jax.Array:
    """The sum of the harmonics of ``f0_hz`` (batch, frames) with ``amplitudes`` (batch, frames, harmonics).

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
    """The frame after each, along the second axis; the last one stays."""
    return jnp.concatenate([frames[:, 1:], frames[:, -1:]], axis=1)


def _between(frames: jax.Array, places: jax.Array) -> jax.Array:
    """Values on straight lines from each frame to the next: (batch, frames, places)."""
    return frames[..., None] + (_next(frames) - frames)[..., None] * places


def _phases(cycles: jax.Array) -> jax.Array:
    """The phase at every sample in cycles: the sum of all frequencies before it.

    Whole cycles are dropped frame by frame: a plain sum over minutes would lose the phase in float32.
    """
    within = jnp.cumsum(cycles, axis=-1)
    totals = within[..., -1] % 1.0
    ends = jax.lax.associative_scan(lambda a, b: (a + b) % 1.0, totals, axis=1)
    starts = jnp.concatenate([jnp.zeros_like(ends[:, :1]), ends[:, :-1]], axis=1)
    return starts[..., None] + within - cycles
