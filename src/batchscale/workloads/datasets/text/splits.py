"""Turn text files into rows of tokens by split: LM1B, Common Crawl and a user's text (paper, A.1). Imports no jax."""

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError
from batchscale.workloads.datasets.text.files import (
    hash_files,
    is_held_out,
    iter_sentences,
    require_text_files,
    split_held_out,
)
from batchscale.workloads.datasets.text.options import TokenOptions, UserTextOptions
from batchscale.workloads.datasets.text.tokens import (
    TokenArray,
    TokenRows,
    TokenStore,
    open_token_store,
    packed_rows,
    sentence_rows,
)
from batchscale.workloads.datasets.text.vocabulary import ByteVocabulary, Vocabulary, open_vocabulary

Files = Sequence[Path]


@dataclass(frozen=True)
class EncodedText:
    """The rows of tokens of each split, and the vocabulary they are encoded with."""

    splits: dict[str, TokenRows]
    vocabulary: Vocabulary


def read_split_files(files: Mapping[str, Files], options: TokenOptions) -> EncodedText:
    """Return the splits of a text that comes with files for each; the vocabulary is that of the training files."""
    content = {split: _hash(paths, options) for split, paths in files.items()}
    vocabulary = _vocabulary(content["train"], iter_sentences(files["train"], options.text_column), options)
    stores = {split: _encode(content[split], vocabulary, paths, options) for split, paths in files.items()}
    return EncodedText({split: make_rows(store, split, None, options) for split, store in stores.items()}, vocabulary)


def read_held_out(files: Files, share: float, num_val: int | None, options: TokenOptions) -> EncodedText:
    """Return the splits of a text in one piece: a random share of the sentences is held out.

    The first ``num_val`` of these are the validation set and the others the test set; half each if there are fewer
    than twice as many, or no number is given.
    """
    content = _hash(files, options)
    training = _training_sentences(files, share, options)
    vocabulary = _vocabulary(f"{content}-{share!r}", training, options)
    store = _encode(content, vocabulary, files, options)
    num_sentences = len(store.offsets) - 1
    train, held_out = split_held_out(num_sentences, share)
    if len(held_out) < 2 or not len(train):
        raise DataError(
            f"A share of {share:g} of {num_sentences:,} sentences leaves {len(train):,} for training and "
            f"{len(held_out):,} for validation and test: set the option holdout so that both have some."
        )
    half = (len(held_out) + 1) // 2
    border = half if num_val is None else min(num_val, half)
    parts = {"train": train, "val": held_out[:border], "test": held_out[border:]}
    rows = {split: make_rows(store, split, numbers, options) for split, numbers in parts.items()}
    return EncodedText(rows, vocabulary)


def read_user_text(options: UserTextOptions) -> EncodedText:
    """Return the splits of a user's text: the files that the options name, or a share held out.

    Raises:
        DataError: There are no files, or only one of validation and test set is named.
    """
    files = require_text_files("path", options.path)
    if options.val_path is None and options.test_path is None:
        return read_held_out(files, options.holdout, None, options)
    if options.val_path is None or options.test_path is None:
        raise DataError("The options val_path and test_path of data set 'text' belong together: give both or none.")
    val = require_text_files("val_path", options.val_path)
    return read_split_files(
        {"train": files, "val": val, "test": require_text_files("test_path", options.test_path)}, options
    )


def make_rows(store: TokenStore, split: str, numbers: NDArray[np.int64] | None, options: TokenOptions) -> TokenRows:
    """Return the rows of one split: packed, or one sentence each, clipped for training or evaluation."""
    if len(store.offsets) < 2:
        raise DataError(f"The text of the split {split!r} has no sentences.")
    if options.sequence_length is not None:
        tokens, offsets = _select(store, numbers)
        return packed_rows(tokens, offsets, options.sequence_length)
    if split == "train":
        return sentence_rows(store.tokens, store.offsets, numbers, options.train_length, options.train_length)
    return sentence_rows(store.tokens, store.offsets, numbers, options.eval_length)


def _select(store: TokenStore, numbers: NDArray[np.int64] | None) -> tuple[TokenArray, NDArray[np.int64]]:
    """Return the tokens of some sentences end to end."""
    if numbers is None:
        return store.tokens, store.offsets
    lengths = np.diff(store.offsets)
    chosen = np.zeros(len(lengths), bool)
    chosen[numbers] = True
    return store.tokens[np.repeat(chosen, lengths)], np.concatenate([[0], np.cumsum(lengths[chosen])])


def _hash(files: Files, options: TokenOptions) -> str:
    """Return the digest of the text: the files and, if it is not the usual one, the column that is read."""
    usual = TokenOptions.model_fields["text_column"].default
    return hash_files(files) + ("" if options.text_column == usual else f"-{_column_digest(options.text_column)}")


def _column_digest(column: str) -> str:
    return hashlib.blake2b(column.encode(errors="surrogatepass"), digest_size=8).hexdigest()


def _vocabulary(content: str, sentences: Iterable[str], options: TokenOptions) -> Vocabulary:
    if options.tokenizer == "bytes":
        return ByteVocabulary()
    return open_vocabulary(content, options.vocabulary_size, sentences)


def _encode(content: str, vocabulary: Vocabulary, files: Files, options: TokenOptions) -> TokenStore:
    key = f"{content}-{vocabulary.key}"
    return open_token_store(key, options.num_outputs, vocabulary.encode(iter_sentences(files, options.text_column)))


def _training_sentences(files: Files, share: float, options: TokenOptions) -> Iterator[str]:
    """Yield the sentences that are not held out, for a vocabulary that has not seen the others."""
    sentences = iter_sentences(files, options.text_column)
    for start in itertools.count(step=1 << 16):
        chunk = list(itertools.islice(sentences, 1 << 16))
        if not chunk:
            return
        mask = is_held_out(start, share)
        yield from (sentence for sentence, out in zip(chunk, mask, strict=False) if not out)
