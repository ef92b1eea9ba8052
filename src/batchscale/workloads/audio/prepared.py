"""A prepared folder: recordings as arrays of samples and features, with what they are described in ``prepared.json``.

Layout: ``FOLDER/prepared.json`` and ``FOLDER/arrays/KEY/{samples,f0_hz,confidence,loudness_db}.bin``, little-endian. A
recording's arrays appear whole by one rename; ``prepared.json`` is written last, so that a folder that has it has
everything that it names. Imports no jax.
"""

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError, one_line
from batchscale.workloads.audio.features import FRAMES_PER_S, HOP, Features

VERSION = 1
FILE = "prepared.json"
ARRAYS = {"samples": "<i2", "f0_hz": "<f4", "confidence": "<f4", "loudness_db": "<f4"}


@dataclass(frozen=True)
class Recording:
    """One recording: where it came from, its key among the arrays, its length, and the checksums of its arrays."""

    name: str
    key: str
    num_frames: int
    sha256: dict[str, str]


@dataclass(frozen=True)
class Segment:
    """Frames ``start`` to ``end`` of a recording (by number) that are heard; ``split`` is train or val."""

    recording: int
    start: int
    end: int
    split: str


@dataclass(frozen=True)
class SoundStatistics:
    """What transfer needs to know of the training part: quantiles in percent steps, and how much of it is voiced.

    ``loudness_db`` and ``note`` (MIDI numbers, with fractions) have 101 values each, over voiced frames.
    """

    loudness_db: tuple[float, ...]
    note: tuple[float, ...]
    voiced_share: float


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
        """An array of a recording, mapped from disk."""
        found = self.recordings[recording]
        return np.memmap(self.folder / "arrays" / found.key / f"{name}.bin", ARRAYS[name], "r")

    def features(self, recording: int) -> Features:
        """The features of a whole recording."""
        f0_hz, confidence, loudness_db = (self.open_array(recording, name) for name in list(ARRAYS)[1:])
        return Features(f0_hz, confidence, loudness_db)

    def seconds(self, split: str) -> float:
        """How long the heard parts of a split are together."""
        return sum(one.end - one.start for one in self.segments if one.split == split) / FRAMES_PER_S


def prepared_to_json(prepared: Prepared) -> dict[str, Any]:
    """What ``prepared.json`` says."""
    found = {name: value for name, value in asdict(prepared).items() if name != "folder"}
    return {"version": VERSION, **found}


def read_prepared(folder: Path, verify: bool = False) -> Prepared:
    """The description of a prepared folder; with ``verify`` every array is read and its checksum compared.

    Raises:
        DataError: It is none, or damaged.
    """
    path = folder / FILE
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
        if said["version"] != VERSION:
            raise DataError(f"{one_line(path, 300)} is of version {one_line(said['version'])}; this reads {VERSION}.")
        prepared = Prepared(
            folder,
            str(said["tracker"]),
            tuple(Recording(**one) for one in said["recordings"]),
            tuple(Segment(**one) for one in said["segments"]),
            SoundStatistics(
                tuple(map(float, said["statistics"]["loudness_db"])),
                tuple(map(float, said["statistics"]["note"])),
                float(said["statistics"]["voiced_share"]),
            ),
            dict(said["skipped"]),
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


def hash_file(path: Path) -> str:
    """The SHA-256 of a file's content."""
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
        wanted = recording.num_frames * np.dtype(kind).itemsize * (HOP if name == "samples" else 1)
        found = path.stat().st_size if path.is_file() else None
        if found != wanted or (verify and hash_file(path) != recording.sha256[name]):
            raise DataError(
                f"{one_line(path, 300)} must be as it was prepared ({wanted:,} bytes and their checksum). Found "
                f"{'nothing' if found is None else f'{found:,} bytes'}. Remove the folder {recording.key} and prepare "
                "the recordings again."
            )
