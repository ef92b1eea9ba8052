"""Cut recordings into segments for training and validation, without long silences. Imports no jax."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError, SpecError
from batchscale.instruments.sound.features import FRAMES_PER_S, VOICED, Features
from batchscale.instruments.sound.prepared import Segment, SoundStatistics

_PERCENT = np.linspace(0, 100, 101)


@dataclass(frozen=True)
class Cutting:
    """The settings of cutting.

    Frames below ``silence_db`` are silent; silence longer than ``longest_rest_s`` is left out but for half of that at
    either side. ``val_share`` of the time that is left, the last of it, is for validation.
    """

    silence_db: float = -60.0
    longest_rest_s: float = 1.0
    val_share: float = 0.1

    def __post_init__(self) -> None:
        if not -80 < self.silence_db < 0:
            raise SpecError(f"The threshold of silence must lie between -80 and 0 dB. Found {self.silence_db:g}.")
        if not 0 < self.val_share < 1:
            raise SpecError(f"The share for validation must lie between 0 and 1. Found {self.val_share:g}.")
        if not 0 <= self.longest_rest_s < 3600:
            raise SpecError(f"The longest rest must be 0 to 3600 seconds. Found {self.longest_rest_s:g}.")


def cut_segments(loudness_db: Sequence[NDArray[np.float32]], cutting: Cutting) -> tuple[Segment, ...]:
    """Return the audible parts of all recordings, in order; the last share of their time is ``val``.

    Raises:
        DataError: All recordings are silent.
    """
    parts = [(number, *part) for number, levels in enumerate(loudness_db) for part in audible_parts(levels, cutting)]
    total = sum(end - start for _, start, end in parts)
    if not total:
        raise DataError(f"Recordings must not be silent. Found nothing above {cutting.silence_db:g} dB.")
    border = total - round(total * cutting.val_share)
    segments, before = [], 0
    for number, start, end in parts:
        middle = min(max(start + border - before, start), end)
        segments += [
            Segment(number, first, last, split)
            for first, last, split in ((start, middle, "train"), (middle, end, "val"))
            if last > first
        ]
        before += end - start
    return tuple(segments)


def audible_parts(loudness_db: NDArray[np.float32], cutting: Cutting) -> list[tuple[int, int]]:
    """Return the parts of one recording between long silences, as first and last frame.

    >>> loud, rest = np.zeros(500, np.float32), np.full(1000, -80, np.float32)
    >>> audible_parts(np.concatenate([loud, rest, loud]), Cutting(longest_rest_s=2.0))
    [(0, 750), (1250, 2000)]
    """
    audible = np.flatnonzero(loudness_db >= cutting.silence_db)
    if not len(audible):
        return []
    longest = round(cutting.longest_rest_s * FRAMES_PER_S)
    breaks = np.flatnonzero(np.diff(audible) > longest + 1)
    starts, ends = audible[np.r_[0, breaks + 1]], audible[np.r_[breaks, len(audible) - 1]] + 1
    margin = longest // 2
    return [
        (max(0, int(start) - margin), min(len(loudness_db), int(end) + margin))
        for start, end in zip(starts, ends, strict=True)
    ]


def measure_statistics(parts: Sequence[tuple[Features, Segment]]) -> SoundStatistics:
    """Return quantiles of loudness and pitch over the voiced frames of these segments."""
    loudness, notes, count = [np.zeros(0)], [np.zeros(0)], 0
    for features, segment in parts:
        cut = slice(segment.start, segment.end)
        voiced = np.asarray(features.confidence[cut]) >= VOICED
        loudness.append(np.asarray(features.loudness_db[cut], np.float64)[voiced])
        f0_hz = np.asarray(features.f0_hz[cut], np.float64)[voiced]
        notes.append(69 + 12 * np.log2(np.maximum(f0_hz, 1.0) / 440))
        count += segment.end - segment.start
    all_loudness, all_notes = np.concatenate(loudness), np.concatenate(notes)
    if not len(all_loudness):
        return SoundStatistics((-40.0,) * 101, (60.0,) * 101, 0.0)
    return SoundStatistics(
        tuple(np.percentile(all_loudness, _PERCENT).round(4).tolist()),
        tuple(np.percentile(all_notes, _PERCENT).round(4).tolist()),
        round(len(all_loudness) / count, 4),
    )
