"""LM1B: the One Billion Word Benchmark, sentences of news in sub-words.

Training sentences are clipped to 64 tokens, evaluation sentences are not (paper, A.1).
"""

from pathlib import Path

from batchscale.spec import Options
from batchscale.workloads.datasets.builtin.lm1b_files import find_lm1b_files, has_lm1b_files
from batchscale.workloads.datasets.files.locations import named_or_required
from batchscale.workloads.datasets.options import parse_options
from batchscale.workloads.datasets.text.dataset import make_text_dataset
from batchscale.workloads.datasets.text.options import SubwordOptions
from batchscale.workloads.datasets.text.splits import read_split_files
from batchscale.workloads.datasets.text.vocabulary import PAD
from batchscale.workloads.workload import Dataset


def load(name: str, options: Options, data_dir: Path | None) -> Dataset:
    """LM1B with a vocabulary trained on its training set."""
    chosen = parse_options(SubwordOptions, name, options)
    folder = named_or_required("lm1b", chosen.path, has_lm1b_files, data_dir)
    splits = read_split_files(find_lm1b_files(folder), chosen)
    return make_text_dataset(name, splits, PAD, chosen.vocabulary_size, chosen)
