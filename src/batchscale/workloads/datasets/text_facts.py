"""The facts of text data sets: the published ones, or those of the files that the user names. Imports no jax."""

from pathlib import Path

from batchscale.spec import Options
from batchscale.workloads.datasets.builtin.lm1b_files import NUM_TRAIN, find_lm1b_files
from batchscale.workloads.datasets.builtin.ptb_files import NUM_SENTENCES, NUM_TOKENS, NUM_WORDS, read_ptb
from batchscale.workloads.datasets.declaration import DatasetFacts
from batchscale.workloads.datasets.files.locations import named_folder
from batchscale.workloads.datasets.options import parse_options
from batchscale.workloads.datasets.text.files import find_text_files
from batchscale.workloads.datasets.text.options import (
    CommonCrawlOptions,
    SequenceOptions,
    SubwordOptions,
    UserTextOptions,
)
from batchscale.workloads.datasets.text.splits import (
    NUM_COMMON_CRAWL_VAL,
    read_held_out,
    read_split_files,
    read_user_text,
)
from batchscale.workloads.datasets.text.token_rows import TokenRows
from batchscale.workloads.tasks import Task


def lm1b_facts(name: str, options: Options) -> DatasetFacts:
    """LM1B; how many packed rows it makes is known only with the files."""
    chosen = parse_options(SubwordOptions, name, options)
    folder = named_folder(name, chosen.path)
    if folder is not None:
        return _of_rows(name, read_split_files(find_lm1b_files(folder), chosen), chosen)
    return _facts(name, None if chosen.sequence_length else NUM_TRAIN, chosen.vocabulary_size, chosen)


def common_crawl_facts(name: str, options: Options) -> DatasetFacts:
    """Common Crawl; its size is known only with the files (the paper's had about 25.8 billion sentences)."""
    chosen = parse_options(CommonCrawlOptions, name, options)
    folder: Path | None = named_folder(name, chosen.path)
    if folder is not None:
        rows = read_held_out(find_text_files(folder), chosen.holdout, NUM_COMMON_CRAWL_VAL, chosen)
        return _of_rows(name, rows, chosen)
    return _facts(name, None, chosen.vocabulary_size, chosen)


def user_text_facts(name: str, options: Options) -> DatasetFacts:
    """The text that the options name, encoded at the first call."""
    chosen = parse_options(UserTextOptions, name, options)
    return _of_rows(name, read_user_text(chosen), chosen)


def ptb_facts(name: str, options: Options) -> DatasetFacts:
    """Penn Treebank words."""
    chosen = parse_options(SequenceOptions, name, options)
    folder = named_folder(name, chosen.path)
    if folder is not None:
        text = read_ptb(folder, chosen)
        return _facts(name, len(text.splits["train"]), len(text.words), chosen)
    length = chosen.sequence_length
    return _facts(name, NUM_SENTENCES if length is None else -(-NUM_TOKENS // length), NUM_WORDS, chosen)


def _of_rows(name: str, splits: dict[str, TokenRows], options: SubwordOptions) -> DatasetFacts:
    return _facts(name, len(splits["train"]), options.vocabulary_size, options)


def _facts(name: str, count: int | None, num_outputs: int, options: SequenceOptions) -> DatasetFacts:
    return DatasetFacts(name, Task.LANGUAGE, count, num_outputs, (options.row_length,), "int32")
