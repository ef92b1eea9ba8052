"""Penn Treebank words: plain text files whose words are the tokens. Imports no jax.

The vocabulary is that of the training file with ``<eos>`` for the end of a sentence, frequent words first.
"""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from batchscale.errors import DataError, one_line
from batchscale.workloads.datasets.text.files import iter_sentences
from batchscale.workloads.datasets.text.options import SequenceOptions
from batchscale.workloads.datasets.text.token_rows import TokenRows, packed_rows, sentence_rows, token_dtype

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
    """Whether the three files are there."""
    return all((folder / name).is_file() for name in FILES.values())


def read_ptb(folder: Path, options: SequenceOptions) -> WordRows:
    """The three splits.

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
