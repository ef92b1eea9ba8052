"""Loudness as the ear weighs it: the A-weighted level of each frame in decibels. Imports no jax.

0 dB is a full-scale sine at 1000 Hz. Weights are those of IEC 61672-1, as a closed form.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

WINDOW = 1024
SILENCE_DB = -80.0
_CHUNK = 4096


def a_weighting_db(frequencies_hz: NDArray[Any]) -> NDArray[np.float64]:
    """The weight of each frequency; 0 at 1000 Hz.

    >>> a_weighting_db(np.array([100.0, 1000.0, 10_000.0])).round(1).tolist()
    [-19.1, 0.0, -2.5]
    """
    f2 = np.square(np.maximum(frequencies_hz, 1e-3))
    upper = 12194.0**2 * f2**2
    lower = (f2 + 20.6**2) * np.sqrt((f2 + 107.7**2) * (f2 + 737.9**2)) * (f2 + 12194.0**2)
    return np.asarray(20 * np.log10(upper / lower) + 2.0)


def frame_loudness(padded: NDArray[np.float32], hop: int, sample_rate: int) -> NDArray[np.float32]:
    """The loudness of frames that are ``hop`` samples apart; the first begins with the first sample.

    A frame is ``WINDOW`` samples under a Hann window: to centre the first on sample 0, put half a window before it.
    """
    count = (len(padded) - WINDOW) // hop + 1
    if count <= 0:
        return np.zeros(0, np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::hop][:count]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    weights = 10 ** (a_weighting_db(np.fft.rfftfreq(WINDOW, 1 / sample_rate)) / 10)
    full_scale = WINDOW * np.sum(np.square(window)) / 4
    found = np.empty(count, np.float32)
    for start in range(0, count, _CHUNK):  # so many spectra at a time
        spectra = np.fft.rfft(frames[start : start + _CHUNK] * window.astype(np.float32))
        power = (np.square(spectra.real) + np.square(spectra.imag)) @ weights / full_scale
        found[start : start + _CHUNK] = 10 * np.log10(np.maximum(power, 10 ** (SILENCE_DB / 10)))
    return found
