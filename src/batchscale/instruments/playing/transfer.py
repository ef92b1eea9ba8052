"""Timbre transfer: play a recording with a trained instrument. Imports jax only when something is played."""

import io
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError, SpecError, one_line
from batchscale.instruments.playing.instrument import Instrument
from batchscale.instruments.sound.features import (
    FRAMES_PER_S,
    HOP,
    SILENCE_DB,
    VOICED,
    Features,
    extract_features,
    hold_pitch,
)
from batchscale.instruments.sound.prepared import cut_windows, read_prepared
from batchscale.instruments.sound.recordings import (
    SAMPLE_RATE,
    BadRecordingError,
    Samples,
    require_audio_libraries,
    stream_mono,
)
from batchscale.records.output_file import write_output

MAX_MINUTES = 10
_NEAR = 1.0  # semitones beyond the trained range that still count as inside
_LOWEST_HZ, _HIGHEST_HZ = 20.0, SAMPLE_RATE / 2


@dataclass(frozen=True)
class TransferOptions:
    """The settings of a transfer.

    The pitch moves by ``octaves``. ``match_loudness`` maps the loudness of voiced frames, quantile by quantile, to that
    of the training recordings. Frames below ``silence_db`` in the recording, or with less ``confidence`` in their
    pitch, are silent. ``seed`` chooses the noise.
    """

    octaves: int = 0
    match_loudness: bool = True
    silence_db: float = -60.0
    confidence: float = VOICED
    seed: int = 0

    def __post_init__(self) -> None:
        if not -4 <= self.octaves <= 4:
            raise SpecError(f"The pitch must move by -4 to 4 octaves. Found {self.octaves}.")
        if not SILENCE_DB <= self.silence_db <= 0:
            raise SpecError(f"Silence must lie from {SILENCE_DB:g} to 0 dB. Found {self.silence_db:g}.")
        if not 0 <= self.confidence <= 1:
            raise SpecError(f"The confidence must lie from 0 to 1. Found {self.confidence:g}.")


@dataclass(frozen=True)
class Resynthesis:
    """An example of a prepared folder as it was recorded, and as the instrument plays it."""

    recorded: Samples
    played: Samples


def transfer(
    instrument: Instrument,
    source: Path,
    options: TransferOptions | None = None,
    notice: Callable[[str], None] = lambda _: None,
) -> Samples:
    """Return the recording ``source`` in the instrument's timbre, as samples at 16 kHz.

    ``notice`` receives a sentence if much of the pitch lies outside of what the instrument was trained on.

    Raises:
        DataError: The recording cannot be read, is longer than ten minutes, or has no pitch.
    """
    from batchscale.instruments.playing.play import play

    require_audio_libraries()
    options = options or TransferOptions()
    samples = read_whole(source)
    features = extract_features([samples])
    line = conform(features, instrument, options)
    warning = range_warning(line, instrument)
    if warning is not None:
        notice(warning)
    return play(instrument, _with_cepstra(line, samples, instrument.mfccs), options.seed)[: len(samples)]


def resynthesise(instrument: Instrument, prepared: Path, split: str = "val", number: int = 0) -> Resynthesis:
    """Return example ``number`` of a split of a prepared folder (up to four seconds), recorded and played.

    Raises:
        DataError: There is no such example.
    """
    from batchscale.instruments.playing.play import play

    description = read_prepared(prepared)
    lengths = [segment.end - segment.start for segment in description.segments if segment.split == split]
    longest = max(lengths, default=0) / FRAMES_PER_S
    windows = cut_windows(description, split, min(4.0, longest) or 4.0, 1.0)
    if not 0 <= number < len(windows):
        raise DataError(f"The split '{split}' has the examples 0 to {len(windows) - 1}. Found {number}.")
    window = windows.read(np.array([number]))
    recorded = (window["samples"][0] / 32767.0).astype(np.float32)
    line = np.stack([window["f0_hz"][0], window["loudness_db"][0]], axis=-1)
    return Resynthesis(recorded, play(instrument, _with_cepstra(line, recorded, instrument.mfccs)))


def read_whole(source: Path) -> Samples:
    """Read all samples of a recording of at most ten minutes."""
    blocks, count = [], 0
    try:
        for block in stream_mono(source):
            count += len(block)
            if count > MAX_MINUTES * 60 * SAMPLE_RATE:
                raise BadRecordingError(f"a recording to be played has at most {MAX_MINUTES} minutes. Found more.")
            blocks.append(block)
        if not count:
            raise BadRecordingError("it has no samples.")
    except BadRecordingError as error:
        raise DataError(f"{one_line(source, 300)}: {error}") from error
    return np.concatenate(blocks)


def conform(features: Features, instrument: Instrument, options: TransferOptions) -> NDArray[np.float32]:
    """Return frames for the instrument: pitch shifted and held, loudness matched, unvoiced frames silent."""
    voiced = (features.confidence >= options.confidence) & (features.loudness_db >= options.silence_db)
    if not voiced.any():
        raise DataError(
            f"A recording to be played must have a pitch. Found none with confidence {options.confidence:g} above "
            f"{options.silence_db:g} dB."
        )
    f0_hz = hold_pitch(features.f0_hz, voiced.astype(np.float32)) * 2.0**options.octaves
    loudness = features.loudness_db.astype(np.float64)
    if options.match_loudness:
        quantiles = np.percentile(loudness[voiced], np.linspace(0, 100, 101))
        loudness = np.interp(loudness, *_increasing(quantiles, instrument.statistics.loudness_db))
    loudness = np.where(voiced, loudness, SILENCE_DB)
    return np.stack([np.clip(f0_hz, _LOWEST_HZ, _HIGHEST_HZ), loudness], axis=-1).astype(np.float32)


def range_warning(line: NDArray[np.float32], instrument: Instrument) -> str | None:
    """Return a sentence if more than a tenth of the audible frames lies outside of the trained pitches; else None."""
    audible = line[:, 1] > SILENCE_DB
    notes = 69 + 12 * np.log2(line[audible, 0].astype(np.float64) / 440)
    low, high = instrument.statistics.note[0], instrument.statistics.note[-1]

    def outside(octaves: int) -> float:
        moved = notes + 12 * octaves
        return float(np.mean((moved < low - _NEAR) | (moved > high + _NEAR))) if len(moved) else 0.0

    share = outside(0)
    if share <= 0.1:
        return None
    best = min(range(-4, 5), key=lambda octaves: (outside(octaves), abs(octaves)))
    advice = f" With {best:+d} octaves it would be {outside(best):.0%}." if outside(best) < share else ""
    ends = [440 * 2 ** ((note - 69) / 12) for note in (low, high)]
    return (
        f"{share:.0%} of the pitch lies outside of {ends[0]:.0f} to {ends[1]:.0f} Hz, which the instrument was trained "
        f"on: it may sound wrong there.{advice}"
    )


def write_wav(path: Path, samples: Samples) -> None:
    """Write the samples as a 16-bit wav, scaled down if they exceed full scale."""
    import soundfile

    peak = float(np.abs(samples).max(initial=0.0))
    file = io.BytesIO()
    soundfile.write(file, samples / max(1.0, peak), SAMPLE_RATE, format="WAV", subtype="PCM_16")
    write_output(path, file.getvalue())


def _increasing(values: Iterable[float], targets: Iterable[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return quantiles without repeated values, as interpolation needs them."""
    unique, places = np.unique(np.asarray(list(values)), return_index=True)
    return unique, np.asarray(list(targets))[places]


def _with_cepstra(line: NDArray[np.float32], samples: Samples, mfccs: int) -> NDArray[np.float32]:
    if not mfccs:
        return line
    import jax.numpy as jnp

    from batchscale.instruments.synthesis.inputs import mel_cepstra

    whole = np.pad(samples, (0, len(line) * HOP - len(samples)))[None]
    return np.concatenate([line, np.asarray(mel_cepstra(jnp.asarray(whole), HOP, SAMPLE_RATE, mfccs))[0]], axis=-1)
