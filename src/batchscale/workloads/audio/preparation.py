"""From a folder of recordings to a prepared folder: once, whole or resumed, bad files named and passed over. No jax.

A recording is known by its content, so that an interrupted preparation goes on behind the last whole recording, and
recordings may be added later or renamed without being heard again.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from batchscale.errors import DataError, one_line
from batchscale.records.durable import replace_durably, storing
from batchscale.workloads.audio.features import HOP, TRACKER, FeatureStream
from batchscale.workloads.audio.prepared import (
    ARRAYS,
    FILE,
    Prepared,
    Recording,
    hash_file,
    prepared_to_json,
    read_prepared,
)
from batchscale.workloads.audio.recordings import (
    SAMPLE_RATE,
    BadRecordingError,
    Samples,
    find_recordings,
    need_extra,
    seconds_of,
    stream_mono,
)
from batchscale.workloads.audio.segments import Cutting, cut_segments, measure_statistics


@dataclass(frozen=True)
class PreparationProgress:
    """How far a preparation is: the recording that is heard now, and seconds of sound done and in all."""

    recording: str
    number: int
    count: int
    done_s: float
    total_s: float


ShowProgress = Callable[[PreparationProgress], None]


def prepare_recordings(
    source: Path, out: Path, cutting: Cutting | None = None, show: ShowProgress = lambda _: None
) -> Prepared:
    """Prepares the recordings below ``source`` into the folder ``out``, and says what was made.

    May be stopped at any time and called again: what is done is kept. ``show`` is called often.

    Raises:
        DataError: No recording can be used, or nothing is left to train on; the message names what was found.
        StorageError: The disk refuses.
    """
    need_extra()
    paths, others = find_recordings(source)
    skipped = {_name(path, source): "its ending is not that of a recording" for path in others}
    lengths = [seconds_of(path) for path in paths]
    recordings: list[Recording] = []
    for number, path in enumerate(paths):
        name, before = _name(path, source), sum(lengths[:number])

        def tell(seconds: float, name: str = name, number: int = number, before: float = before) -> None:
            show(PreparationProgress(name, number + 1, len(paths), before + seconds, sum(lengths)))

        tell(0.0)
        try:
            found = _prepare_one(path, name, out, tell)
        except BadRecordingError as error:
            skipped[name] = str(error)
            continue
        if found.key in {one.key for one in recordings}:
            skipped[name] = "it has the same sound as another recording"
            continue
        recordings.append(found)
        tell(lengths[number])
    if not recordings:
        reasons = "; ".join(f"{one_line(name)}: {why}" for name, why in list(skipped.items())[:3])
        raise DataError(f"At least one recording must be usable. Of {len(skipped)} none is: {reasons}")
    return _describe(out, recordings, skipped, cutting or Cutting())


def _name(path: Path, source: Path) -> str:
    """The path below the folder; bytes that are no text are shown by their codes."""
    return os.fsencode(path.relative_to(source)).decode("utf-8", "backslashreplace")


def _prepare_one(path: Path, name: str, out: Path, tell: Callable[[float], None]) -> Recording:
    """The arrays of one recording, which are there already or are made now."""
    try:
        content = hash_file(path)
    except OSError as error:
        raise BadRecordingError(f"it cannot be read: {error.strerror or error}") from error
    key = hashlib.sha256(f"{content} {TRACKER} {SAMPLE_RATE} {HOP}".encode()).hexdigest()[:32]
    place = out / "arrays" / key
    with storing("preparing recordings", place):
        if not (place / "checksums.json").is_file():
            place.parent.mkdir(parents=True, exist_ok=True)
            stage = Path(tempfile.mkdtemp(prefix=".new-", dir=place.parent))
            try:
                _write_arrays(stream_mono(path), stage, tell)
                if place.exists():  # without checksums: not ours, or damaged
                    shutil.rmtree(place)
                stage.replace(place)
            finally:
                shutil.rmtree(stage, ignore_errors=True)
        sums = json.loads((place / "checksums.json").read_text())
    frames = (place / "f0_hz.bin").stat().st_size // 4
    return Recording(name, key, frames, sums)


def _write_arrays(blocks: Iterable[Samples], stage: Path, tell: Callable[[float], None]) -> None:
    features, count = FeatureStream(), 0
    with (stage / "samples.bin").open("wb") as out:
        for block in blocks:
            features.push(block)
            # 16 bits: what recordings have; half a step of noise lies 96 dB below full scale
            out.write(np.round(np.clip(block, -1, 1) * 32767).astype(ARRAYS["samples"]).tobytes())
            count += len(block)
            tell(count / SAMPLE_RATE)
        if not count:
            raise BadRecordingError("it has no samples.")
        out.write(bytes(2 * (-count % HOP)))
        out.flush()
        os.fsync(out.fileno())
    found = features.finish()
    for name in list(ARRAYS)[1:]:
        values = np.asarray(getattr(found, name), ARRAYS[name])
        with (stage / f"{name}.bin").open("wb") as out:
            out.write(values.tobytes())
            out.flush()
            os.fsync(out.fileno())
    sums = {name: hash_file(stage / f"{name}.bin") for name in ARRAYS}
    replace_durably(stage / "checksums.json", json.dumps(sums))


def _describe(out: Path, recordings: list[Recording], skipped: dict[str, str], cutting: Cutting) -> Prepared:
    """Cuts the recordings into segments, measures them, and writes the description."""
    bare = Prepared(out, TRACKER, tuple(recordings), (), measure_statistics([]), skipped)
    features = [bare.features(number) for number in range(len(recordings))]
    segments = cut_segments([one.loudness_db for one in features], cutting)
    heard = [(features[one.recording], one) for one in segments if one.split == "train"]
    prepared = Prepared(out, TRACKER, tuple(recordings), segments, measure_statistics(heard), skipped)
    replace_durably(out / FILE, json.dumps(prepared_to_json(prepared), indent=1) + "\n")
    return read_prepared(out)
