"""Frames of fundamental frequency, confidence and loudness, from a stream of samples. Imports no jax.

250 frames a second; frame f stands at sample ``f·HOP``. Pitch is SwiftF0's, which has a frame every 256 samples;
between them it is interpolated in the logarithm. The weights of the tracker come with its package.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchscale.workloads.audio.loudness import WINDOW, frame_loudness
from batchscale.workloads.audio.recordings import SAMPLE_RATE, Samples

FRAMES_PER_S = 250
HOP = SAMPLE_RATE // FRAMES_PER_S
VOICED = 0.5  # the tracker's own border of confidence
TRACKER = "swift-f0"
_TRACKER_HOP = 256
_PER_TRACKED = _TRACKER_HOP // HOP


@dataclass(frozen=True)
class Features:
    """A value of each for every frame."""

    f0_hz: NDArray[np.float32]
    confidence: NDArray[np.float32]
    loudness_db: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.f0_hz)


class FeatureStream:
    """Features of samples that arrive in blocks. Samples are not kept, only their frames: 6 MB for an hour.

    There are as many frames as hops were pushed, the last one perhaps only begun.
    """

    def __init__(self) -> None:
        from swift_f0 import SwiftF0

        self._pitch = SwiftF0(threads=1, spin=False).stream()
        self._padded: Samples = np.zeros(WINDOW // 2, np.float32)
        self._tracked: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
        self._loudness: list[NDArray[np.float32]] = []
        self._count = 0

    def push(self, samples: Samples) -> None:
        """The next samples."""
        self._count += len(samples)
        if not len(samples):
            return
        found = self._pitch.push(samples, SAMPLE_RATE)
        self._tracked.append((found.pitch_hz, found.confidence))
        self._hear(samples)

    def finish(self) -> Features:
        """All features; nothing may be pushed after it."""
        if not self._count:
            empty = np.zeros(0, np.float32)
            return Features(empty, empty, empty)
        found = self._pitch.flush()
        self._tracked.append((found.pitch_hz, found.confidence))
        self._hear(np.zeros(WINDOW, np.float32))
        frames = -(-self._count // HOP)
        pitch, confidence = (np.concatenate([part[side] for part in self._tracked]) for side in (0, 1))
        places = np.arange(frames) / _PER_TRACKED
        knots = np.arange(len(pitch))
        f0_hz = np.exp(np.interp(places, knots, np.log(np.maximum(pitch, 1.0))))
        sure = np.interp(places, knots, confidence)
        loudness = np.concatenate(self._loudness)[:frames]
        return Features(f0_hz.astype(np.float32), sure.astype(np.float32), loudness)

    def _hear(self, samples: Samples) -> None:
        padded = np.concatenate([self._padded, samples])
        found = frame_loudness(padded, HOP, SAMPLE_RATE)
        self._loudness.append(found)
        self._padded = padded[len(found) * HOP :]


def extract_features(blocks: Iterable[Samples]) -> Features:
    """The features of a whole sound."""
    stream = FeatureStream()
    for block in blocks:
        stream.push(block)
    return stream.finish()


def hold_pitch(f0_hz: NDArray[np.float32], confidence: NDArray[np.float32]) -> NDArray[np.float32]:
    """The pitch, held from the last voiced frame where there is none; before the first one, that of the first.

    A tracker's guesses in silence would otherwise be notes that nobody played. Without any voiced frame: as it is.

    >>> hold_pitch(np.array([9, 100, 7, 200], np.float32), np.array([0, 1, 0, 1], np.float32)).tolist()
    [100.0, 100.0, 100.0, 200.0]
    """
    voiced = np.flatnonzero(confidence >= VOICED)
    if not len(voiced):
        return f0_hz
    last = np.searchsorted(voiced, np.arange(len(f0_hz)), side="right") - 1
    return f0_hz[voiced[np.maximum(last, 0)]]
