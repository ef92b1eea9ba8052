"""Common Crawl: sentences of web pages in sub-words, from text files with one sentence a line.

A random 0.02 % of the sentences is held out, of which the first 6,075 are the validation set. Sentences are clipped to
64 tokens in training and to 476 in evaluation (paper, A.1). The others of the held-out sentences are the test set.
"""

from pathlib import Path

from batchscale.spec import Options
from batchscale.workloads.datasets.files.locations import named_or_required
from batchscale.workloads.datasets.options import parse_options
from batchscale.workloads.datasets.text.dataset import make_text_dataset
from batchscale.workloads.datasets.text.files import find_text_files, has_text_files
from batchscale.workloads.datasets.text.options import CommonCrawlOptions
from batchscale.workloads.datasets.text.splits import NUM_COMMON_CRAWL_VAL, read_held_out
from batchscale.workloads.datasets.text.vocabulary import PAD
from batchscale.workloads.workload import Dataset


def load(name: str, options: Options, data_dir: Path | None) -> Dataset:
    """The sentences of the text files in the folder of the set."""
    chosen = parse_options(CommonCrawlOptions, name, options)
    folder = named_or_required("common_crawl", chosen.path, has_text_files, data_dir)
    splits = read_held_out(find_text_files(folder), chosen.holdout, NUM_COMMON_CRAWL_VAL, chosen)
    return make_text_dataset(name, splits, PAD, chosen.vocabulary_size, chosen)
