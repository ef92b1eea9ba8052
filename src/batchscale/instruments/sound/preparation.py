"""Prepare a folder of recordings for training; unusable files are skipped with a reason. Imports no jax.

A recording is identified by its content, so that an interrupted preparation continues after the last whole recording,
and recordings may be added later or renamed without being processed again.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from batchscale.errors import DataError, one_line
from batchscale.instruments.sound.features import HOP, SILENCE_DB, TRACKER, FeatureStream
from batchscale.instruments.sound.prepared import (
    ARRAYS,
    FILE,
    Prepared,
    Recording,
    hash_file,
    read_prepared,
)
from batchscale.instruments.sound.recordings import (
    SAMPLE_RATE,
    BadRecordingError,
    Samples,
    find_recordings,
    is_cut_off,
    read_duration_s,
    require_audio_libraries,
    stream_mono,
)
from batchscale.instruments.sound.segments import Cutting, cut_segments, measure_statistics
from batchscale.records.durable import replace_durably, storing

_STEPS = 2  # of this preparation: arrays that were made in another way are made again
_CLIPPED = "clipped"
_ABOVE = 1.05  # beyond what resampling a full-scale recording overshoots
_ROUNDING = 2  # of 32767: the same sound in 16 and in 24 bits
_COMPARED = 1 << 20  # samples at a time


@dataclass(frozen=True)
class PreparationProgress:
    """The progress of a preparation: the current recording, and seconds of sound done and in total."""

    recording: str
    number: int
    count: int
    done_s: float
    total_s: float


ShowProgress = Callable[[PreparationProgress], None]


def prepare_recordings(
    source: Path, out: Path, cutting: Cutting | None = None, show: ShowProgress = lambda _: None
) -> Prepared:
    """Prepare the recordings below ``source`` into the folder ``out``, and return its description.

    May be stopped at any time and called again: finished recordings stay. ``show`` is called often. Files of unknown
    origin are safe: one that cannot be used is named in ``Prepared.skipped``, and nothing in it is run.

    Raises:
        DataError: No recording can be used, or nothing is left to train on; the message gives the reasons.
        StorageError: The disk cannot be written.
    """
    require_audio_libraries()
    paths, others = find_recordings(source)
    skipped = {_name(path, source): "its ending is not that of a recording" for path in others}
    lengths = [read_duration_s(path) for path in paths]
    recordings: list[Recording] = []
    for number, path in enumerate(paths):
        name, before = _name(path, source), sum(lengths[:number])

        def report(seconds: float, name: str = name, number: int = number, before: float = before) -> None:
            show(PreparationProgress(name, number + 1, len(paths), before + seconds, sum(lengths)))

        report(0.0)
        try:
            recording = _prepare_recording(path, name, out, report)
        except BadRecordingError as error:
            skipped[name] = str(error)
            continue
        same = _find_same(recording, recordings, out)
        if same is not None:
            skipped[name] = f"it has the same sound as another recording, '{one_line(same.name)}'"
            continue
        recordings.append(recording)
        report(lengths[number])
    if not recordings:
        reasons = "; ".join(f"{one_line(name)}: {why}" for name, why in list(skipped.items())[:3])
        raise DataError(f"At least one recording must be usable. None of {len(skipped)} is: {reasons}")
    return _describe(out, recordings, skipped, cutting or Cutting())


def _name(path: Path, source: Path) -> str:
    """Return the path below the folder; bytes that are no text are escaped."""
    return os.fsencode(path.relative_to(source)).decode("utf-8", "backslashreplace")


def _prepare_recording(path: Path, name: str, out: Path, report: Callable[[float], None]) -> Recording:
    """Return the description of one recording, whose arrays are written unless they exist."""
    try:
        content = hash_file(path)
    except OSError as error:
        raise BadRecordingError(f"it cannot be read: {error.strerror or error}") from error
    key = hashlib.sha256(f"{content} {TRACKER} {SAMPLE_RATE} {HOP} {_STEPS}".encode()).hexdigest()[:32]
    place = out / "arrays" / key
    with storing("preparing recordings", place):
        if not (place / "checksums.json").is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            stage = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
            try:
                _write_arrays(stream_mono(path), stage, report)
                if place.exists():  # without checksums: from elsewhere, or damaged
                    shutil.rmtree(place)
                stage.replace(place)
            finally:
                shutil.rmtree(stage, ignore_errors=True)
        sums = json.loads((place / "checksums.json").read_text())
        clipped = int(sums.pop(_CLIPPED, 0))
    frames = (place / "f0_hz.bin").stat().st_size // 4
    if np.memmap(place / "loudness_db.bin", ARRAYS["loudness_db"], "r").max(initial=SILENCE_DB) <= SILENCE_DB:
        raise BadRecordingError("it is silent.")
    return Recording(name, key, frames, sums, _describe_flaws(path, clipped))


def _describe_flaws(path: Path, clipped: int) -> str:
    flaws = []
    if clipped:
        flaws.append(f"{clipped:,} samples above full scale are clipped to it, as if it had been recorded so.")
    if is_cut_off(path):
        flaws.append("The file is cut off: its end is missing, and what is there is used.")
    return " ".join(flaws)


def _find_same(recording: Recording, others: list[Recording], out: Path) -> Recording | None:
    """Return another recording with the same samples, up to the rounding of another sample format.

    The same sound in two formats must not be in training and in validation.
    """

    def samples(of: Recording) -> np.memmap[Any, Any]:
        return np.memmap(out / "arrays" / of.key / "samples.bin", ARRAYS["samples"], "r")

    for other in others:
        if other.key == recording.key or other.sha256["samples"] == recording.sha256["samples"]:
            return other
        if other.num_frames == recording.num_frames and _are_close(samples(recording), samples(other)):
            return other
    return None


def _are_close(first: np.memmap[Any, Any], second: np.memmap[Any, Any]) -> bool:
    pieces = range(0, len(first), _COMPARED)
    return all(
        np.abs(first[start : start + _COMPARED].astype(np.int32) - second[start : start + _COMPARED]).max() <= _ROUNDING
        for start in pieces
    )


def _write_arrays(blocks: Iterable[Samples], stage: Path, report: Callable[[float], None]) -> None:
    features, count, clipped = FeatureStream(), 0, 0
    with (stage / "samples.bin").open("wb") as out:
        for block in blocks:
            inside = np.clip(block, -1, 1)  # for features too: they describe the sound that is trained on
            clipped += int((np.abs(block) > _ABOVE).sum())
            features.push(inside)
            # 16 bits: what recordings have; half a step of noise lies 96 dB below full scale
            out.write(np.round(inside * 32767).astype(ARRAYS["samples"]).tobytes())
            count += len(block)
            report(count / SAMPLE_RATE)
        if not count:
            raise BadRecordingError("it has no samples.")
        out.write(bytes(2 * (-count % HOP)))
        out.flush()
        os.fsync(out.fileno())
    finished = features.finish()
    for name in list(ARRAYS)[1:]:
        values = np.asarray(getattr(finished, name), ARRAYS[name])
        with (stage / f"{name}.bin").open("wb") as out:
            out.write(values.tobytes())
            out.flush()
            os.fsync(out.fileno())
    sums: dict[str, str | int] = {name: hash_file(stage / f"{name}.bin") for name in ARRAYS}
    sums[_CLIPPED] = clipped
    replace_durably(stage / "checksums.json", json.dumps(sums))


def _describe(out: Path, recordings: list[Recording], skipped: dict[str, str], cutting: Cutting) -> Prepared:
    """Cut the recordings into segments, measure them, and write the description."""
    bare = Prepared(out, TRACKER, tuple(recordings), (), measure_statistics([]), skipped)
    features = [bare.features(number) for number in range(len(recordings))]
    segments = cut_segments([recording.loudness_db for recording in features], cutting)
    parts = [(features[segment.recording], segment) for segment in segments if segment.split == "train"]
    prepared = Prepared(out, TRACKER, tuple(recordings), segments, measure_statistics(parts), skipped)
    replace_durably(out / FILE, json.dumps(prepared.to_json(), indent=1) + "\n")
    return read_prepared(out)
