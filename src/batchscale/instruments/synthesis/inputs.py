"""Windows of prepared recordings as a data set: frames of pitch, loudness and MFCCs in, samples as labels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

import jax
import jax.numpy as jnp
import numpy as np
import scipy.fft
from numpy.typing import NDArray

from batchscale.instruments.sound.features import HOP
from batchscale.instruments.sound.prepared import Windows
from batchscale.instruments.sound.recordings import SAMPLE_RATE
from batchscale.workloads.workload import ArraySplit, Batch, Dataset, HostBatch, IndexedSplit

FULL_SCALE = 32767.0
LOWEST_HZ, HIGHEST_HZ = 20.0, 8_000.0
_MEGABYTE = 10**6
_WINDOW = 1024
_LEAST_POWER = 1e-5


@final
@dataclass(frozen=True)
class WindowSplit(IndexedSplit):
    """A split that stays on disk; windows are read when they are needed."""

    windows: Windows

    @property
    def num_examples(self) -> int:
        """The number of windows."""
        return len(self.windows)

    def read(self, indices: NDArray[np.int64], seeds: NDArray[np.int64] | None) -> HostBatch:  # noqa: ARG002
        """Return the windows; there is no augmentation, so seeds change nothing."""
        return self.windows.read(np.asarray(indices))


def make_sound_dataset(name: str, splits: Mapping[str, Windows], mfccs: int, memory_limit_mb: int) -> Dataset:
    """Return a data set with ``inputs`` (f0, loudness, MFCCs by frame) and ``labels`` (samples)."""
    length = splits["train"].length
    return Dataset(
        name=name,
        splits={split: _make_split(windows, memory_limit_mb) for split, windows in splits.items()},
        prepare=as_model_inputs(mfccs),
        input_shape=(length, 2 + mfccs),
        input_dtype=jnp.float32,
        num_outputs=length * HOP,
    )


def as_model_inputs(mfccs: int) -> Callable[[Batch], Batch]:
    """Return a ``prepare`` that scales stored samples to -1 … 1 and stacks the features."""

    def prepare(batch: Batch) -> Batch:
        samples = batch["samples"].astype(jnp.float32) / FULL_SCALE
        columns = jnp.stack([batch["f0_hz"], batch["loudness_db"]], axis=-1)
        if mfccs:
            columns = jnp.concatenate([columns, mel_cepstra(samples, HOP, SAMPLE_RATE, mfccs)], axis=-1)
        return {"inputs": columns, "labels": samples}

    return prepare


def mel_matrix(bands: int, size: int, sample_rate: int) -> NDArray[np.float64]:
    """Return triangles evenly spaced on the mel scale (2595·log10(1 + f/700)), by (bin of a spectrum, band)."""
    highest = min(HIGHEST_HZ, sample_rate / 2)
    edges = np.linspace(float(_to_mel(LOWEST_HZ)), float(_to_mel(highest)), bands + 2)
    bins = _to_mel(np.fft.rfftfreq(size, 1 / sample_rate))[:, None]
    rising = (bins - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - bins) / (edges[2:] - edges[1:-1])
    return np.asarray(np.maximum(0.0, np.minimum(rising, falling)), np.float64)


def mel_cepstra(samples: jax.Array, hop: int, sample_rate: int, count: int) -> jax.Array:
    """Return the first ``count`` MFCCs of frames centred ``hop`` samples apart: (batch, frames, count).

    Each coefficient is divided by the root of the number of mel bands, so that they are of the order of 1.
    """
    bands = max(128, count)
    frames_per_window = _WINDOW // hop
    padded = jnp.pad(samples, ((0, 0), (_WINDOW // 2, _WINDOW // 2)))
    blocks = padded.reshape(samples.shape[0], -1, hop)
    frames = samples.shape[1] // hop
    windows = jnp.concatenate([blocks[:, part : part + frames] for part in range(frames_per_window)], axis=-1)
    hann = (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(_WINDOW) / _WINDOW)).astype(np.float32)
    power = jnp.abs(jnp.fft.rfft(windows * hann))
    logs = jnp.log(power @ jnp.asarray(mel_matrix(bands, _WINDOW, sample_rate), jnp.float32) + _LEAST_POWER)
    cosines = scipy.fft.dct(np.eye(bands), norm="ortho")[:, :count] / np.sqrt(bands)
    return logs @ jnp.asarray(cosines, jnp.float32)


def _to_mel(frequencies_hz: float | NDArray[Any]) -> NDArray[np.float64]:
    return np.asarray(2595 * np.log10(1 + np.asarray(frequencies_hz, np.float64) / 700))


def _make_split(windows: Windows, memory_limit_mb: int) -> ArraySplit | WindowSplit:
    if windows.num_bytes > memory_limit_mb * _MEGABYTE:
        return WindowSplit(windows)
    return ArraySplit(windows.read(np.arange(len(windows))))
