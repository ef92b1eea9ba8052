"""Read recordings as streams of mono samples at one sample rate: any length, bounded memory. Imports no jax.

Supported are the formats of soundfile: wav, flac, ogg, mp3 and others. The length in a file's header is not trusted
where memory depends on it: samples are counted as they are read.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError, one_line
from batchscale.formatting import count_text

SAMPLE_RATE = 16_000
ENDINGS = (".wav", ".flac", ".ogg", ".oga", ".mp3", ".aif", ".aiff")
MAX_HOURS = 24
MAX_CHANNELS = 64
MAX_SAMPLE = 32.0
"""The largest sample in units of full scale, 30 dB above it; a file of floats can hold any number."""
_BLOCK_VALUES = 1 << 18  # of all channels together; with four times as many the tracker took 600 MB instead of 350

Samples = NDArray[np.float32]


class BadRecordingError(DataError):
    """A recording that cannot be used, with the reason; other recordings may still be usable."""


def require_audio_libraries() -> None:
    """Raise DataError unless the libraries of the extra ``audio`` are installed."""
    try:
        import soundfile  # noqa: F401
        import soxr  # noqa: F401
        import swift_f0  # noqa: F401
    except (ImportError, OSError) as error:  # soundfile raises OSError where its C library is missing
        raise DataError(
            f"Sound needs more libraries: pip install 'batchscale[audio]'. The import failed: {one_line(error)}."
        ) from error


def find_recordings(folder: Path) -> tuple[list[Path], list[Path]]:
    """Return the recordings below a folder in order of their names, and the files with other endings.

    Raises:
        DataError: The folder does not exist, or holds no recording.
    """
    if not folder.is_dir():
        raise DataError(f"Recordings must be the files of a folder. There is no folder {one_line(folder, 300)}.")
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.name.startswith("."))
    recordings = [path for path in files if path.suffix.lower() in ENDINGS]
    others = [path for path in files if path.suffix.lower() not in ENDINGS]
    if not recordings:
        endings = sorted({path.suffix.lower() or "none" for path in others})
        raise DataError(
            f"{one_line(folder, 300)} must hold recordings ({', '.join(ENDINGS)}). Found "
            + (
                f"{count_text(len(others), 'file')} with the endings {one_line(', '.join(endings))}."
                if others
                else "no files."
            )
        )
    return recordings, others


def read_duration_s(path: Path) -> float:
    """Return the duration in a recording's header, for a progress bar; 0 if it has none."""
    import soundfile

    try:
        return float(soundfile.info(os.fsencode(path)).duration)
    except (RuntimeError, OSError, ValueError, ZeroDivisionError):
        return 0.0


def is_cut_off(path: Path) -> bool:
    """True if a wav is shorter than its header says: the end of the recording is missing."""
    with path.open("rb") as file:
        start = file.read(8)
    size = int.from_bytes(start[4:8], "little")
    return start[:4] == b"RIFF" and size != 0xFFFFFFFF and size + 8 > path.stat().st_size + 1


def stream_mono(path: Path, sample_rate: int = SAMPLE_RATE) -> Iterator[Samples]:
    """Yield blocks of samples, averaged over all channels, at this rate.

    Raises:
        BadRecordingError: It cannot be read, or has too many channels, too many hours, or samples that are no numbers.
    """
    import soundfile
    import soxr

    try:
        # as bytes: names need not be text
        with soundfile.SoundFile(os.fsencode(path)) as file:
            rate, channels = int(file.samplerate), int(file.channels)
            if not 0 < channels <= MAX_CHANNELS or not 1_000 <= rate <= 1_000_000:
                raise BadRecordingError(
                    f"a recording has 1 to {MAX_CHANNELS} channels at 1,000 to 1,000,000 samples a second. "
                    f"Found {channels} at {rate:,}."
                )
            resampler = None if rate == sample_rate else soxr.ResampleStream(rate, sample_rate, 1, dtype="float32")
            for block, is_last in _read_blocks(file, rate, channels):
                if not np.isfinite(block).all():
                    raise BadRecordingError("samples are finite numbers. Found some that are not.")
                if np.abs(block).max(initial=0.0) > MAX_SAMPLE:
                    raise BadRecordingError(
                        f"samples lie between -1 and 1, and at most {MAX_SAMPLE:g} times as far out. Found "
                        f"{np.abs(block).max():.3g}. Scale the recording and save it again."
                    )
                mono = block.mean(axis=1, dtype=np.float32)
                yield mono if resampler is None else resampler.resample_chunk(mono, last=is_last)
    except (soundfile.LibsndfileError, RuntimeError, OSError, MemoryError) as error:
        if isinstance(error, BadRecordingError):
            raise
        raise BadRecordingError(f"it cannot be read: {one_line(error)}") from error


def _read_blocks(file: Any, rate: int, channels: int) -> Iterator[tuple[Samples, bool]]:
    """Yield samples as (time, channel), with True for the last block, which is empty."""
    max_samples, count = MAX_HOURS * 3600 * rate, 0
    size = max(1, _BLOCK_VALUES // channels)
    while True:
        block = file.read(size, dtype="float32", always_2d=True)
        count += len(block)
        if count > max_samples:
            raise BadRecordingError(f"a recording has at most {MAX_HOURS} hours. Found more.")
        yield block, len(block) == 0
        if not len(block):
            return
