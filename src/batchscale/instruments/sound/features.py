"""Frames of fundamental frequency, confidence and loudness, from a stream of samples. Imports no jax.

250 frames a second; frame f stands at sample ``f·HOP``. Pitch is tracked by SwiftF0 every 256 samples, and interpolated
in the logarithm between them. The weights of the tracker come with its package. Loudness is the A-weighted level
(IEC 61672-1, as a closed form) in decibels: 0 dB is a full-scale sine at 1000 Hz.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchscale.instruments.sound.recordings import SAMPLE_RATE, Samples

FRAMES_PER_S = 250
HOP = SAMPLE_RATE // FRAMES_PER_S
VOICED = 0.5  # the tracker's own threshold of confidence
TRACKER = "swift-f0"
WINDOW = 1024
SILENCE_DB = -80.0
_TRACKER_HOP = 256
_PER_TRACKED = _TRACKER_HOP // HOP
_CHUNK = 4096


@dataclass(frozen=True)
class Features:
    """Pitch, confidence and loudness of every frame."""

    f0_hz: NDArray[np.float32]
    confidence: NDArray[np.float32]
    loudness_db: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.f0_hz)


class FeatureStream:
    """Features of samples that arrive in blocks. Only frames are stored, not samples: 6 MB for an hour.

    There are as many frames as hops were pushed; the last one may be incomplete.
    """

    def __init__(self) -> None:
        from swift_f0 import SwiftF0

        self._pitch = SwiftF0(threads=1, spin=False).stream()
        self._padded: Samples = np.zeros(WINDOW // 2, np.float32)
        self._tracked: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
        self._loudness: list[NDArray[np.float32]] = []
        self._count = 0

    def push(self, samples: Samples) -> None:
        """Process the next samples."""
        self._count += len(samples)
        if not len(samples):
            return
        tracked = self._pitch.push(samples, SAMPLE_RATE)
        self._tracked.append((tracked.pitch_hz, tracked.confidence))
        self._measure_loudness(samples)

    def finish(self) -> Features:
        """Return all features; nothing may be pushed afterwards."""
        if not self._count:
            empty = np.zeros(0, np.float32)
            return Features(empty, empty, empty)
        tracked = self._pitch.flush()
        self._tracked.append((tracked.pitch_hz, tracked.confidence))
        self._measure_loudness(np.zeros(WINDOW, np.float32))
        num_frames = -(-self._count // HOP)
        pitch, confidence = (np.concatenate([part[side] for part in self._tracked]) for side in (0, 1))
        places = np.arange(num_frames) / _PER_TRACKED
        knots = np.arange(len(pitch))
        f0_hz = np.exp(np.interp(places, knots, np.log(np.maximum(pitch, 1.0))))
        interpolated = np.interp(places, knots, confidence)
        loudness = np.concatenate(self._loudness)[:num_frames]
        return Features(f0_hz.astype(np.float32), interpolated.astype(np.float32), loudness)

    def _measure_loudness(self, samples: Samples) -> None:
        padded = np.concatenate([self._padded, samples])
        levels = frame_loudness(padded, HOP, SAMPLE_RATE)
        self._loudness.append(levels)
        self._padded = padded[len(levels) * HOP :]


def extract_features(blocks: Iterable[Samples]) -> Features:
    """Return the features of a whole sound."""
    stream = FeatureStream()
    for block in blocks:
        stream.push(block)
    return stream.finish()


def hold_pitch(f0_hz: NDArray[np.float32], confidence: NDArray[np.float32]) -> NDArray[np.float32]:
    """Replace the pitch of unvoiced frames by that of the last voiced frame; before the first one, by the first.

    The tracker's guesses in silence would otherwise be notes that nobody played. Without voiced frames nothing changes.

    >>> hold_pitch(np.array([9, 100, 7, 200], np.float32), np.array([0, 1, 0, 1], np.float32)).tolist()
    [100.0, 100.0, 100.0, 200.0]
    """
    voiced = np.flatnonzero(confidence >= VOICED)
    if not len(voiced):
        return f0_hz
    last = np.searchsorted(voiced, np.arange(len(f0_hz)), side="right") - 1
    return f0_hz[voiced[np.maximum(last, 0)]]


def a_weighting_db(frequencies_hz: NDArray[Any]) -> NDArray[np.float64]:
    """Return the weight of each frequency; 0 at 1000 Hz.

    >>> a_weighting_db(np.array([100.0, 1000.0, 10_000.0])).round(1).tolist()
    [-19.1, 0.0, -2.5]
    """
    f2 = np.square(np.maximum(frequencies_hz, 1e-3))
    upper = 12194.0**2 * f2**2
    lower = (f2 + 20.6**2) * np.sqrt((f2 + 107.7**2) * (f2 + 737.9**2)) * (f2 + 12194.0**2)
    return np.asarray(20 * np.log10(upper / lower) + 2.0)


def frame_loudness(padded: NDArray[np.float32], hop: int, sample_rate: int) -> NDArray[np.float32]:
    """Return the loudness of frames that are ``hop`` samples apart; the first begins with the first sample.

    A frame is ``WINDOW`` samples under a Hann window: to centre the first on sample 0, put half a window before it.
    """
    count = (len(padded) - WINDOW) // hop + 1
    if count <= 0:
        return np.zeros(0, np.float32)
    frames = np.lib.stride_tricks.sliding_window_view(padded, WINDOW)[::hop][:count]
    window = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(WINDOW) / WINDOW)
    weights = 10 ** (a_weighting_db(np.fft.rfftfreq(WINDOW, 1 / sample_rate)) / 10)
    full_scale = WINDOW * np.sum(np.square(window)) / 4
    levels = np.empty(count, np.float32)
    for start in range(0, count, _CHUNK):  # bounds the memory of the spectra
        spectra = np.fft.rfft(frames[start : start + _CHUNK] * window.astype(np.float32))
        power = (np.square(spectra.real) + np.square(spectra.imag)) @ weights / full_scale
        levels[start : start + _CHUNK] = 10 * np.log10(np.maximum(power, 10 ** (SILENCE_DB / 10)))
    return levels
