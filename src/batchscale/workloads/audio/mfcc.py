"""Mel-frequency cepstral coefficients of every frame, for the encoder of what pitch and loudness leave out. Pure."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import scipy.fft
from numpy.typing import NDArray

_SIZE = 1024
_LEAST = 1e-5
LOWEST_HZ, HIGHEST_HZ = 20.0, 8_000.0


def mel_matrix(bands: int, size: int, sample_rate: int) -> NDArray[np.float64]:
    """Triangles evenly spaced on the mel scale (2595·log10(1 + f/700)), by (bin of a spectrum, band)."""
    highest = min(HIGHEST_HZ, sample_rate / 2)
    edges = np.linspace(float(_to_mel(LOWEST_HZ)), float(_to_mel(highest)), bands + 2)
    bins = _to_mel(np.fft.rfftfreq(size, 1 / sample_rate))[:, None]
    rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    return np.asarray(np.maximum(0.0, np.minimum(rising, falling)), np.float64)


def _to_mel(frequencies_hz: float | NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(2595 * np.log10(1 + np.asarray(frequencies_hz, np.float64) / 700))


def mel_cepstra(samples: jax.Array, hop: int, sample_rate: int, count: int) -> jax.Array:
    """The first ``count`` coefficients of frames centred ``hop`` samples apart: (batch, frames, count).

    Each coefficient is scaled by the root of the number of mel bands, so that they are of size 1 or so.
    """
    bands = max(128, count)
    frames_per_window = _SIZE // hop
    padded = jnp.pad(samples, ((0, 0), (_SIZE // 2, _SIZE // 2)))
    blocks = padded.reshape(samples.shape[0], -1, hop)
    frames = samples.shape[1] // hop
    windows = jnp.concatenate([blocks[:, part : part + frames] for part in range(frames_per_window)], axis=-1)
    hann = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_SIZE) / _SIZE)).astype(np.float32)
    power = jnp.abs(jnp.fft.rfft(windows * hann))
    logs = jnp.log(power @ jnp.asarray(mel_matrix(bands, _SIZE, sample_rate), jnp.float32) + _LEAST)
    cosines = scipy.fft.dct(np.eye(bands), norm="ortho")[:, :count] / np.sqrt(bands)
    return logs @ jnp.asarray(cosines, jnp.float32)
