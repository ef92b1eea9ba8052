"""The data set ``recordings``: a user's own, prepared by ``batchscale data audio`` and named by the option ``path``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from batchscale.instruments.sound.features import FRAMES_PER_S, HOP
from batchscale.instruments.sound.prepared import cut_windows, read_prepared
from batchscale.instruments.task import SOUND
from batchscale.workloads.datasets.declaration import DatasetDeclaration, DatasetInfo, NoOptions, parse_options

if TYPE_CHECKING:
    from batchscale.workloads.workload import Dataset


class RecordingOptions(NoOptions):
    """``path``: the prepared folder. Examples are ``seconds`` long and begin every ``spacing`` seconds.

    ``mfccs`` coefficients of each frame go to the model's encoder; 0: it has none. Above ``memory_limit_mb`` a split
    stays on disk.
    """

    path: str
    seconds: float = Field(default=4.0, ge=0.1, le=60)
    spacing: float = Field(default=1.0, ge=0.02, le=60)
    mfccs: int = Field(default=0, ge=0, le=128)
    memory_limit_mb: int = Field(default=512, ge=0)

    @property
    def num_frames(self) -> int:
        """The frames of an example."""
        return round(self.seconds * FRAMES_PER_S)


def _info(name: str, options: RecordingOptions) -> DatasetInfo:
    prepared = read_prepared(Path(options.path).expanduser())
    count = len(cut_windows(prepared, "train", options.seconds, options.spacing))
    shape = (options.num_frames, 2 + options.mfccs)
    return DatasetInfo(name, SOUND, count, options.num_frames * HOP, shape)


def _load(name: str, options: RecordingOptions, data_dir: Path | None) -> Dataset:
    from batchscale.instruments.synthesis.inputs import make_sound_dataset

    del data_dir
    prepared = read_prepared(Path(options.path).expanduser(), verify=True)
    splits = {split: cut_windows(prepared, split, options.seconds, options.spacing) for split in ("train", "val")}
    return make_sound_dataset(name, splits, options.mfccs, options.memory_limit_mb)


RECORDINGS = DatasetDeclaration(
    "recordings",
    partial(parse_options, RecordingOptions),
    _info,
    _load,
    without_files="your own, prepared by `batchscale data audio` and named by the option path",
)
