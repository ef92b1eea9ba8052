"""A prepared folder: recordings as arrays of samples and features, described in ``prepared.json``. Imports no jax.

Layout: ``FOLDER/prepared.json`` and ``FOLDER/arrays/KEY/{samples,f0_hz,confidence,loudness_db}.bin``, little-endian. A
recording's arrays appear whole by one rename; ``prepared.json`` is written last, so that a folder that has it has
everything that it names. ``Windows`` are examples of equal length cut out of such a folder.
"""

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError, one_line
from batchscale.instruments.sound.features import FRAMES_PER_S, HOP, Features, hold_pitch
from batchscale.spec.untrusted_text import parse_json

VERSION = 1
FILE = "prepared.json"
ARRAYS = {"samples": "<i2", "f0_hz": "<f4", "confidence": "<f4", "loudness_db": "<f4"}


@dataclass(frozen=True)
class Recording:
    """One recording: its file name, its key among the arrays, its length, and the checksums of its arrays.

    ``note`` is a sentence about what is wrong with it, although it is used; empty if nothing is.
    """

    name: str
    key: str
    num_frames: int
    sha256: dict[str, str]
    note: str = ""


@dataclass(frozen=True)
class Segment:
    """Audible frames ``start`` to ``end`` of a recording (by number); ``split`` is train or val."""

    recording: int
    start: int
    end: int
    split: str


@dataclass(frozen=True)
class SoundStatistics:
    """Quantiles of the training part in percent steps, for timbre transfer, and the share of voiced frames.

    ``loudness_db`` and ``note`` (MIDI numbers, with fractions) have 101 values each, over voiced frames.
    """

    loudness_db: tuple[float, ...]
    note: tuple[float, ...]
    voiced_share: float

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "SoundStatistics":
        """Parse the statistics of a description."""
        loudness_db, note = (tuple(map(float, data[key])) for key in ("loudness_db", "note"))
        return cls(loudness_db, note, float(data["voiced_share"]))


@dataclass(frozen=True)
class Prepared:
    """The description of a prepared folder."""

    folder: Path
    tracker: str
    recordings: tuple[Recording, ...]
    segments: tuple[Segment, ...]
    statistics: SoundStatistics
    skipped: dict[str, str]

    def open_array(self, recording: int, name: str) -> NDArray[Any]:
        """Return an array of a recording, mapped from disk."""
        key = self.recordings[recording].key
        return np.memmap(self.folder / "arrays" / key / f"{name}.bin", ARRAYS[name], "r")

    def features(self, recording: int) -> Features:
        """Return the features of a whole recording."""
        f0_hz, confidence, loudness_db = (self.open_array(recording, name) for name in list(ARRAYS)[1:])
        return Features(f0_hz, confidence, loudness_db)

    def seconds(self, split: str) -> float:
        """Return the total length of a split's segments."""
        return sum(segment.end - segment.start for segment in self.segments if segment.split == split) / FRAMES_PER_S

    def to_json(self) -> dict[str, Any]:
        """Return the content of ``prepared.json``."""
        fields = {name: value for name, value in asdict(self).items() if name != "folder"}
        return {"version": VERSION, **fields}


def read_prepared(folder: Path, verify: bool = False) -> Prepared:
    """Read the description of a prepared folder; with ``verify`` every array is read and its checksum compared.

    Raises:
        DataError: It is not a prepared folder, or is damaged.
    """
    path = folder / FILE
    try:
        data = parse_json(path.read_text(encoding="utf-8"))
        if data["version"] != VERSION:
            raise DataError(f"{one_line(path, 300)} is of version {one_line(data['version'])}; this reads {VERSION}.")
        prepared = Prepared(
            folder,
            str(data["tracker"]),
            tuple(Recording(**fields) for fields in data["recordings"]),
            tuple(Segment(**fields) for fields in data["segments"]),
            SoundStatistics.from_json(data["statistics"]),
            dict(data["skipped"]),
        )
        _check(prepared)
    except FileNotFoundError as error:
        raise DataError(
            f"{one_line(folder, 300)} must be a folder of prepared recordings, with a {FILE}. There is none: run "
            f"`batchscale data audio RECORDINGS --out {one_line(folder, 300)}`."
        ) from error
    except (KeyError, TypeError, ValueError, OSError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(
            f"{one_line(path, 300)} is damaged: {one_line(error)}. Prepare the recordings again."
        ) from error
    for recording in prepared.recordings:
        _check_arrays(prepared, recording, verify)
    return prepared


@dataclass(frozen=True)
class Windows:
    """Window i is ``length`` frames of recording ``recordings[i]``, starting at frame ``starts[i]``."""

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
        """Return samples, pitch (held in unvoiced frames) and loudness of these windows, one row each."""
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
    """Return the windows of a split: each begins ``spacing_s`` after the one before, and lies in one segment.

    Raises:
        DataError: No segment of the split is long enough.
    """
    length, spacing = round(seconds * FRAMES_PER_S), max(1, round(spacing_s * FRAMES_PER_S))
    recordings, starts = [], []
    for segment in prepared.segments:
        if segment.split == split:
            segment_starts = np.arange(segment.start, segment.end - length + 1, spacing)
            starts.append(segment_starts)
            recordings.append(np.full(len(segment_starts), segment.recording))
    if not sum(map(len, starts)):
        raise DataError(
            f"{prepared.folder}: examples of {seconds:g} s need a part of the split '{split}' that is as long and has "
            f"no long rest. Found {prepared.seconds(split):.1f} s in pieces that are shorter; give more recordings, "
            "prepare with a larger --val-share, or set the option seconds."
        )
    return Windows(prepared, np.concatenate(recordings), np.concatenate(starts).astype(np.int64), length)


def hash_file(path: Path) -> str:
    """Return the SHA-256 of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check(prepared: Prepared) -> None:
    for recording in prepared.recordings:
        if not recording.key.isalnum() or set(recording.sha256) != set(ARRAYS) or recording.num_frames < 1:
            raise ValueError(f"recording {recording.name!r}")
    for segment in prepared.segments:
        if not 0 <= segment.start < segment.end <= prepared.recordings[segment.recording].num_frames:
            raise ValueError(f"segment {segment}")


def _check_arrays(prepared: Prepared, recording: Recording, verify: bool) -> None:
    folder = prepared.folder / "arrays" / recording.key
    for name, kind in ARRAYS.items():
        path = folder / f"{name}.bin"
        expected = recording.num_frames * np.dtype(kind).itemsize * (HOP if name == "samples" else 1)
        actual = path.stat().st_size if path.is_file() else None
        if actual != expected or (verify and hash_file(path) != recording.sha256[name]):
            raise DataError(
                f"{one_line(path, 300)} must be as it was prepared ({expected:,} bytes and their checksum). Found "
                f"{'nothing' if actual is None else f'{actual:,} bytes'}. Remove the folder {recording.key} and "
                "prepare the recordings again."
            )
