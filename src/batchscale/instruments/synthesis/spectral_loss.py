"""The multi-scale spectral loss: a distance of two sounds that ignores their phases. Pure, in float32.

For every FFT size the L1 distance of magnitudes plus that of log magnitudes, each a mean over frames and bins, summed
over the sizes (Engel et al. 2020, section 4.2.1; the weights are the library's: 1 and 1).
"""

import jax
import jax.numpy as jnp
import numpy as np

from batchscale.workloads.losses import sum_over_examples
from batchscale.workloads.workload import Batch, LossSum, Metaparameters

FFT_SIZES = (2048, 1024, 512, 256, 128, 64)
LEAST_MAGNITUDE = 1e-5  # below it logarithms are equal


def magnitudes(samples: jax.Array, size: int) -> jax.Array:
    """Return the magnitudes of Hann-windowed frames, three quarters overlapping; the end is padded with zeros.

    ``samples`` is (batch, time), the result (batch, frames, size / 2 + 1).
    """
    step = size // 4
    count = -(-samples.shape[-1] // step)
    padded = jnp.pad(samples, ((0, 0), (0, (count + 3) * step - samples.shape[-1])))
    blocks = padded.reshape(samples.shape[0], count + 3, step)
    frames = jnp.concatenate([blocks[:, part : part + count] for part in range(4)], axis=-1)
    window = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(size) / size)).astype(np.float32)
    spectra = jnp.fft.rfft(frames * window)
    power = jnp.square(spectra.real) + jnp.square(spectra.imag)
    # the slope of a square root at 0 is infinite, so the root is taken of 1 there and left out
    return jnp.where(power > 0, jnp.sqrt(jnp.where(power > 0, power, 1.0)), 0.0)


def spectral_loss(outputs: jax.Array, targets: jax.Array, sizes: tuple[int, ...] = FFT_SIZES) -> jax.Array:
    """Return the loss of each example: 0 for equal sounds."""
    total = jnp.zeros(outputs.shape[0], jnp.float32)
    for size in sizes:
        actual, target = magnitudes(outputs, size), magnitudes(targets, size)
        linear = jnp.mean(jnp.abs(actual - target), axis=(1, 2))
        total += linear + jnp.mean(jnp.abs(_log(actual) - _log(target)), (1, 2))
    return total


def sound_loss(outputs: jax.Array, batch: Batch, values: Metaparameters) -> LossSum:
    """Return the multi-scale spectral loss summed over the examples."""
    del values
    return sum_over_examples(spectral_loss(outputs, batch["labels"]), batch)


def _log(values: jax.Array) -> jax.Array:
    return jnp.log(jnp.maximum(values, LEAST_MAGNITUDE))
