"""A user's own text files, a sentence a line, or Parquet files, a text a row; options name them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from batchscale.workloads.datasets.declaration import DatasetDeclaration, DatasetInfo, parse_options
from batchscale.workloads.datasets.text.options import UserTextOptions, sentence_info
from batchscale.workloads.datasets.text.splits import read_user_text
from batchscale.workloads.datasets.text.vocabulary import PAD
from batchscale.workloads.tasks import Task

if TYPE_CHECKING:
    from batchscale.workloads.workload import Dataset


def _info(name: str, options: UserTextOptions) -> DatasetInfo:
    """Describe the text that the options name, which is encoded at the first call."""
    count = len(read_user_text(options).splits["train"])
    return sentence_info(name, count, options.num_outputs, options, Task.TEXT)


def _load(name: str, options: UserTextOptions, data_dir: Path | None) -> Dataset:
    from batchscale.workloads.datasets.text.dataset import make_text_dataset

    del data_dir
    text = read_user_text(options)
    token_bytes = text.vocabulary.token_bytes()
    return make_text_dataset(name, text.splits, PAD, options.num_outputs, options, token_bytes)


TEXT = DatasetDeclaration(
    "text",
    parse=partial(parse_options, UserTextOptions),
    info=_info,
    load=_load,
    without_files="your own files, named by the option path",
)
