"""LM1B: the One Billion Word Benchmark, sentences of news in sub-words.

Training sentences are clipped to 64 tokens, evaluation sentences are not (paper, A.1).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from batchscale.errors import DataError
from batchscale.workloads.datasets.declaration import DatasetDeclaration, DatasetInfo, parse_options
from batchscale.workloads.datasets.files.locations import named_folder, named_or_required
from batchscale.workloads.datasets.files.official import DatasetFiles, Download, Origin
from batchscale.workloads.datasets.text.options import TokenOptions, sentence_info
from batchscale.workloads.datasets.text.splits import read_split_files
from batchscale.workloads.datasets.text.vocabulary import PAD

if TYPE_CHECKING:
    from batchscale.workloads.workload import Dataset

NUM_TRAIN = 30_301_028
_TOP = "1-billion-word-language-modeling-benchmark-r13output"
_TRAIN = "training-monolingual.tokenized.shuffled"
_HELD_OUT = "heldout-monolingual.tokenized.shuffled"


def has_lm1b_files(folder: Path) -> bool:
    """True if training and held-out files exist."""
    return all(_files(folder).values())


def find_lm1b_files(folder: Path) -> dict[str, list[Path]]:
    """Return the training files, and the first two held-out files as validation and test set (paper, A.1)."""
    files_by_split = _files(folder)
    if missing := [split for split, files in files_by_split.items() if not files]:
        raise DataError(f"{folder} must hold {_TRAIN}/ and {_HELD_OUT}/: no files for {', '.join(missing)}.")
    return files_by_split


def _files(folder: Path) -> dict[str, list[Path]]:
    base = folder / _TOP if (folder / _TOP).is_dir() else folder
    return {
        "train": sorted((base / _TRAIN).glob("news.en-*-of-00100*")),
        "val": sorted((base / _HELD_OUT).glob("news.en.heldout-00000-of-00050*")),
        "test": sorted((base / _HELD_OUT).glob("news.en.heldout-00001-of-00050*")),
    }


def _info(name: str, options: TokenOptions) -> DatasetInfo:
    """Describe LM1B; only the files can tell the number of packed rows."""
    folder = named_folder(name, options.path)
    if folder is not None:
        count = len(read_split_files(find_lm1b_files(folder), options).splits["train"])
        return sentence_info(name, count, options.num_outputs, options)
    return sentence_info(name, None if options.sequence_length else NUM_TRAIN, options.num_outputs, options)


def _load(name: str, options: TokenOptions, data_dir: Path | None) -> Dataset:
    from batchscale.workloads.datasets.text.dataset import make_text_dataset

    folder = named_or_required(LM1B_FILES, options.path, data_dir)
    splits = read_split_files(find_lm1b_files(folder), options).splits
    return make_text_dataset(name, splits, PAD, options.num_outputs, options)


_DOWNLOAD = Download(
    f"{_TOP}.tar.gz",
    (f"http://www.statmt.org/lm-benchmark/{_TOP}.tar.gz",),
    num_bytes=1_792_209_805,
    sha256="01ba60381110baf7f189dfd2b8374de371e8c9a340835793f190bdae9e90a34e",
    unpack=True,
)
LM1B_FILES = DatasetFiles(
    Origin("lm1b", (_DOWNLOAD,), "C. Chelba et al. (2014); news articles of the WMT 2011 shared task"), has_lm1b_files
)
LM1B = DatasetDeclaration("lm1b", partial(parse_options, TokenOptions), _info, _load, LM1B_FILES, label="LM1B")
