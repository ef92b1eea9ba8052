"""Penn Treebank words: a small public text set, one row per sentence or, with ``sequence_length``, packed."""

from pathlib import Path

from batchscale.spec import Options
from batchscale.workloads.datasets.builtin.ptb_files import has_ptb_files, read_ptb
from batchscale.workloads.datasets.files.locations import named_or_required
from batchscale.workloads.datasets.options import parse_options
from batchscale.workloads.datasets.text.dataset import make_text_dataset
from batchscale.workloads.datasets.text.options import SequenceOptions
from batchscale.workloads.workload import Dataset


def load(name: str, options: Options, data_dir: Path | None) -> Dataset:
    """The three files; the end of a sentence also stands before its first word."""
    chosen = parse_options(SequenceOptions, name, options)
    text = read_ptb(named_or_required("ptb", chosen.path, has_ptb_files, data_dir), chosen)
    return make_text_dataset(name, text.splits, text.eos, len(text.words), chosen)
