"""Windows of prepared recordings as a data set: frames of pitch and loudness in, samples to be met."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import final

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from batchscale.workloads.audio.features import HOP
from batchscale.workloads.audio.mfcc import mel_cepstra
from batchscale.workloads.audio.recordings import SAMPLE_RATE
from batchscale.workloads.audio.windows import Windows
from batchscale.workloads.workload import ArraySplit, Batch, Dataset, HostBatch, IndexedSplit

_MEGABYTE = 10**6
FULL_SCALE = 32767.0


@final
@dataclass(frozen=True)
class WindowSplit(IndexedSplit):
    """A split that stays on disk; windows are read as they are asked for."""

    windows: Windows

    @property
    def num_examples(self) -> int:
        """The number of windows."""
        return len(self.windows)

    def read(self, indices: NDArray[np.int64], seeds: NDArray[np.int64] | None) -> HostBatch:  # noqa: ARG002
        """The windows; sound knows no augmentation here, so that seeds change nothing."""
        return self.windows.read(np.asarray(indices))


def make_sound_dataset(name: str, splits: Mapping[str, Windows], mfccs: int, memory_limit_mb: int) -> Dataset:
    """A data set whose stored windows become ``inputs`` (f0, loudness, MFCCs by frame) and ``labels`` (samples)."""
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
    """A ``prepare``: stored whole numbers become samples from -1 to 1, and features stand side by side."""

    def prepare(batch: Batch) -> Batch:
        samples = batch["samples"].astype(jnp.float32) / FULL_SCALE
        columns = jnp.stack([batch["f0_hz"], batch["loudness_db"]], axis=-1)
        if mfccs:
            columns = jnp.concatenate([columns, mel_cepstra(samples, HOP, SAMPLE_RATE, mfccs)], axis=-1)
        return {"inputs": columns, "labels": samples}

    return prepare


def _make_split(windows: Windows, memory_limit_mb: int) -> ArraySplit | WindowSplit:
    if windows.num_bytes > memory_limit_mb * _MEGABYTE:
        return WindowSplit(windows)
    return ArraySplit(windows.read(np.arange(len(windows))))
