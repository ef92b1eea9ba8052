"""A user's own text files, one sentence a line, named by the options ``path``, ``val_path`` and ``test_path``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from batchscale.workloads.datasets.declaration import DatasetDeclaration, DatasetInfo, parse_options
from batchscale.workloads.datasets.text.options import UserTextOptions, sentence_info
from batchscale.workloads.datasets.text.splits import read_user_text
from batchscale.workloads.datasets.text.vocabulary import PAD

if TYPE_CHECKING:
    from batchscale.workloads.workload import Dataset


def _info(name: str, options: UserTextOptions) -> DatasetInfo:
    """Describe the text that the options name, which is encoded at the first call."""
    return sentence_info(name, len(read_user_text(options)["train"]), options.vocabulary_size, options)


def _load(name: str, options: UserTextOptions, data_dir: Path | None) -> Dataset:
    from batchscale.workloads.datasets.text.dataset import make_text_dataset

    del data_dir
    return make_text_dataset(name, read_user_text(options), PAD, options.vocabulary_size, options)


TEXT = DatasetDeclaration(
    "text",
    parse=partial(parse_options, UserTextOptions),
    info=_info,
    load=_load,
    without_files="your own files, named by the option path",
)
