"""Timbre transfer: another recording, played by a trained instrument. No jax until something is played."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError, SpecError, one_line
from batchscale.workloads.audio.features import FRAMES_PER_S, HOP, VOICED, Features, extract_features, hold_pitch
from batchscale.workloads.audio.instrument import Instrument
from batchscale.workloads.audio.loudness import SILENCE_DB
from batchscale.workloads.audio.prepared import read_prepared
from batchscale.workloads.audio.recordings import SAMPLE_RATE, BadRecordingError, Samples, need_extra, stream_mono
from batchscale.workloads.audio.windows import cut_windows

MAX_MINUTES = 10
_LOWEST_HZ, _HIGHEST_HZ = 20.0, SAMPLE_RATE / 2


@dataclass(frozen=True)
class TransferOptions:
    """How a recording is played.

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
            raise SpecError(f"A line is moved by -4 to 4 octaves. Found {self.octaves}.")
        if not SILENCE_DB <= self.silence_db <= 0:
            raise SpecError(f"The border of silence lies from {SILENCE_DB:g} to 0 dB. Found {self.silence_db:g}.")
        if not 0 <= self.confidence <= 1:
            raise SpecError(f"A confidence lies from 0 to 1. Found {self.confidence:g}.")


@dataclass(frozen=True)
class Resynthesis:
    """An example of a prepared folder as it was recorded, and as the instrument plays it."""

    recorded: Samples
    played: Samples


def transfer(instrument: Instrument, source: Path, options: TransferOptions | None = None) -> Samples:
    """The recording ``source`` in the instrument's timbre, as samples at 16 kHz.

    Raises:
        DataError: The recording cannot be read, is longer than ten minutes, or has no pitch.
    """
    from batchscale.workloads.audio.playing import play

    need_extra()
    chosen = options or TransferOptions()
    samples = read_whole(source)
    features = extract_features([samples])
    line = conform(features, instrument, chosen)
    return play(instrument, _with_cepstra(line, samples, instrument.mfccs), chosen.seed)[: len(samples)]


def resynthesise(instrument: Instrument, prepared: Path, split: str = "val", number: int = 0) -> Resynthesis:
    """Example ``number`` of a split of a prepared folder, four seconds or what there is, recorded and played.

    Raises:
        DataError: There is no such example.
    """
    from batchscale.workloads.audio.playing import play

    found = read_prepared(prepared)
    longest = max((one.end - one.start for one in found.segments if one.split == split), default=0) / FRAMES_PER_S
    windows = cut_windows(found, split, min(4.0, longest) or 4.0, 1.0)
    if not 0 <= number < len(windows):
        raise DataError(f"The split '{split}' has the examples 0 to {len(windows) - 1}. Found {number}.")
    read = windows.read(np.array([number]))
    recorded = (read["samples"][0] / 32767.0).astype(np.float32)
    line = np.stack([read["f0_hz"][0], read["loudness_db"][0]], axis=-1)
    return Resynthesis(recorded, play(instrument, _with_cepstra(line, recorded, instrument.mfccs)))


def read_whole(source: Path) -> Samples:
    """All samples of a recording of at most ten minutes."""
    blocks, count = [], 0
    try:
        for block in stream_mono(source):
            count += len(block)
            if count > MAX_MINUTES * 60 * SAMPLE_RATE:
                raise BadRecordingError(f"at most {MAX_MINUTES} minutes are played at once. Found more.")
            blocks.append(block)
        if not count:
            raise BadRecordingError("it has no samples.")
    except BadRecordingError as error:
        raise DataError(f"{one_line(source, 300)}: {error}") from error
    return np.concatenate(blocks)


def conform(features: Features, instrument: Instrument, options: TransferOptions) -> NDArray[np.float32]:
    """Frames as the instrument knows them: shifted, held, matched, and silent where nothing is to be heard."""
    voiced = (features.confidence >= options.confidence) & (features.loudness_db >= options.silence_db)
    if not voiced.any():
        raise DataError(
            f"A recording to be played has a pitch. Found none with confidence {options.confidence:g} above "
            f"{options.silence_db:g} dB."
        )
    f0_hz = hold_pitch(features.f0_hz, voiced.astype(np.float32)) * 2.0**options.octaves
    loudness = features.loudness_db.astype(np.float64)
    if options.match_loudness:
        mine = np.percentile(loudness[voiced], np.linspace(0, 100, 101))
        loudness = np.interp(loudness, *_increasing(mine, instrument.statistics.loudness_db))
    loudness = np.where(voiced, loudness, SILENCE_DB)
    return np.stack([np.clip(f0_hz, _LOWEST_HZ, _HIGHEST_HZ), loudness], axis=-1).astype(np.float32)


def write_wav(path: Path, samples: Samples) -> None:
    """The samples as a 16-bit wav; louder than full scale is scaled down as a whole."""
    import soundfile

    from batchscale.records.durable import replacing_atomically, storing

    peak = float(np.abs(samples).max(initial=0.0))
    with storing("writing a sound", path):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing_atomically(path) as file:
            soundfile.write(file, samples / max(1.0, peak), SAMPLE_RATE, format="WAV", subtype="PCM_16")


def _increasing(found: Iterable[float], wanted: Iterable[float]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Quantiles without repeats, as interpolation needs them."""
    values, places = np.unique(np.asarray(list(found)), return_index=True)
    return values, np.asarray(list(wanted))[places]


def _with_cepstra(line: NDArray[np.float32], samples: Samples, mfccs: int) -> NDArray[np.float32]:
    if not mfccs:
        return line
    import jax.numpy as jnp

    from batchscale.workloads.audio.mfcc import mel_cepstra

    whole = np.pad(samples, (0, len(line) * HOP - len(samples)))[None]
    return np.concatenate([line, np.asarray(mel_cepstra(jnp.asarray(whole), HOP, SAMPLE_RATE, mfccs))[0]], axis=-1)
