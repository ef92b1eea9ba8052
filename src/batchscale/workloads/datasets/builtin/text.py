"""A user's own text files, one sentence a line, named by the options ``path``, ``val_path`` and ``test_path``."""

from pathlib import Path

from batchscale.spec import Options
from batchscale.workloads.datasets.options import parse_options
from batchscale.workloads.datasets.text.dataset import make_text_dataset
from batchscale.workloads.datasets.text.options import UserTextOptions
from batchscale.workloads.datasets.text.splits import read_user_text
from batchscale.workloads.datasets.text.vocabulary import PAD
from batchscale.workloads.workload import Dataset


def load(name: str, options: Options, data_dir: Path | None) -> Dataset:  # noqa: ARG001 - every set has this signature
    """The text that the options name; ``data_dir`` is not used."""
    chosen = parse_options(UserTextOptions, name, options)
    return make_text_dataset(name, read_user_text(chosen), PAD, chosen.vocabulary_size, chosen)
