"""Examples of equal length cut out of a prepared folder, in memory or read when they are asked for. Imports no jax."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError
from batchscale.workloads.audio.features import FRAMES_PER_S, HOP, hold_pitch
from batchscale.workloads.audio.prepared import Prepared


@dataclass(frozen=True)
class Windows:
    """Window i is ``length`` frames from frame ``starts[i]`` of recording ``recordings[i]`` on."""

    prepared: Prepared
    recordings: NDArray[np.int64]
    starts: NDArray[np.int64]
    length: int

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def num_bytes(self) -> int:
        """The size of all windows side by side."""
        return len(self) * self.length * (2 * HOP + 8)

    def read(self, indices: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Samples, pitch (held where there is none) and loudness of these windows, one row each."""
        samples = np.empty((len(indices), self.length * HOP), np.int16)
        f0_hz, loudness_db = (np.empty((len(indices), self.length), np.float32) for _ in range(2))
        for row, index in enumerate(indices):
            recording, start = int(self.recordings[index]), int(self.starts[index])
            cut = slice(start, start + self.length)
            features = self.prepared.features(recording)
            samples[row] = self.prepared.open_array(recording, "samples")[cut.start * HOP : cut.stop * HOP]
            f0_hz[row] = hold_pitch(np.asarray(features.f0_hz[cut]), np.asarray(features.confidence[cut]))
            loudness_db[row] = features.loudness_db[cut]
        return {"samples": samples, "f0_hz": f0_hz, "loudness_db": loudness_db}


def cut_windows(prepared: Prepared, split: str, seconds: float, spacing_s: float) -> Windows:
    """The windows of a split: each begins ``spacing_s`` after the one before, and lies in one segment.

    Raises:
        DataError: No part of the split is long enough.
    """
    length, spacing = round(seconds * FRAMES_PER_S), max(1, round(spacing_s * FRAMES_PER_S))
    recordings, starts = [], []
    for segment in prepared.segments:
        if segment.split == split:
            found = np.arange(segment.start, segment.end - length + 1, spacing)
            starts.append(found)
            recordings.append(np.full(len(found), segment.recording))
    total = sum(map(len, starts))
    if not total:
        raise DataError(
            f"{prepared.folder}: examples of {seconds:g} s need a part of the split '{split}' that is as long and has "
            f"no long rest. Found {prepared.seconds(split):.1f} s in pieces that are shorter; give more recordings, "
            "prepare with a larger --val-share, or set the option seconds."
        )
    return Windows(prepared, np.concatenate(recordings), np.concatenate(starts).astype(np.int64), length)
