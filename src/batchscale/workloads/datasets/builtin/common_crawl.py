"""Common Crawl: sentences of web pages in sub-words, from text files with one sentence a line.

A random 0.02 % of the sentences is held out, of which the first 6,075 are the validation set. Sentences are clipped to
64 tokens in training and to 476 in evaluation (paper, A.1). The others of the held-out sentences are the test set.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from batchscale.workloads.datasets.declaration import DatasetDeclaration, DatasetInfo, parse_options
from batchscale.workloads.datasets.files.locations import named_folder, named_or_required
from batchscale.workloads.datasets.files.official import DatasetFiles, Origin
from batchscale.workloads.datasets.text.files import find_text_files, has_text_files
from batchscale.workloads.datasets.text.options import CommonCrawlOptions, sentence_info
from batchscale.workloads.datasets.text.splits import EncodedText, read_held_out
from batchscale.workloads.datasets.text.vocabulary import PAD

if TYPE_CHECKING:
    from batchscale.workloads.workload import Dataset

NUM_VALIDATION = 6_075


def _read(folder: Path, options: CommonCrawlOptions) -> EncodedText:
    return read_held_out(find_text_files(folder), options.holdout, NUM_VALIDATION, options)


def _info(name: str, options: CommonCrawlOptions) -> DatasetInfo:
    """Describe Common Crawl; only the files can tell its size (the paper's had about 25.8 billion sentences)."""
    folder = named_folder(name, options.path)
    count = None if folder is None else len(_read(folder, options).splits["train"])
    return sentence_info(name, count, options.num_outputs, options)


def _load(name: str, options: CommonCrawlOptions, data_dir: Path | None) -> Dataset:
    from batchscale.workloads.datasets.text.dataset import make_text_dataset

    splits = _read(named_or_required(COMMON_CRAWL_FILES, options.path, data_dir), options).splits
    return make_text_dataset(name, splits, PAD, options.num_outputs, options)


COMMON_CRAWL_FILES = DatasetFiles(
    Origin(
        "common_crawl",
        (),
        "the terms of use of commoncrawl.org",
        "make text files with one sentence a line, then run `batchscale data get common_crawl --from FOLDER` "
        "with their folder",
    ),
    has_text_files,
    needs_its_name=True,  # any folder may hold text files
)
COMMON_CRAWL = DatasetDeclaration(
    "common_crawl", partial(parse_options, CommonCrawlOptions), _info, _load, COMMON_CRAWL_FILES, label="Common Crawl"
)
