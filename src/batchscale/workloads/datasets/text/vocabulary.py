"""Sub-word vocabularies: byte-level pairs, trained with the ``tokenizers`` library and kept in the cache.

Any text can be encoded and comes back unchanged, for every byte is a sub-word. ``tokenizers`` is the optional extra
``[text]``, imported only here, when asked for. Imports no jax.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from batchscale.errors import DataError, one_line
from batchscale.records.durable import replace_durably
from batchscale.workloads.cache import cached

PAD, EOS = 0, 1
"""Padding, which also stands before the first token of a sentence, and the end of a sentence."""
MAX_TRAINING_SENTENCES = 2_000_000
_SPECIAL = ["<pad>", "<eos>"]
_VERSION = "1"
_CHUNK = 4096


@dataclass(frozen=True)
class Vocabulary:
    """A trained vocabulary; ``key`` is the same for the same sub-words, for caches of what was encoded with it."""

    key: str
    tokenizer: Any

    def encode(self, sentences: Iterable[str]) -> Iterator[list[int]]:
        """The sub-words of each sentence, with the end of the sentence."""
        iterator = iter(sentences)
        while chunk := list(itertools.islice(iterator, _CHUNK)):
            for encoding in self.tokenizer.encode_batch_fast(chunk, add_special_tokens=False):
                yield [*encoding.ids, EOS]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of sub-words, without the special ones."""
        text: str = self.tokenizer.decode([token for token in tokens if token >= len(_SPECIAL)])
        return text


def open_vocabulary(content: str, size: int, sentences: Iterable[str]) -> Vocabulary:
    """The vocabulary of a text, from the cache or trained now on its first two million sentences.

    ``content`` is the digest of the text: together with ``size`` it names the cached file.
    """
    library = _import_library()
    key = f"{content}-{size}-v{_VERSION}"
    path = cached("vocabularies", f"{key}.json")
    if not path.is_file():
        replace_durably(path, _train(library, size, itertools.islice(sentences, MAX_TRAINING_SENTENCES)))
    try:
        return Vocabulary(key, library.Tokenizer.from_file(str(path)))
    except Exception as error:
        raise DataError(f"{path} is damaged: {one_line(error)}. Remove it; it is made again.") from error


def _import_library() -> Any:
    try:
        import tokenizers
    except ImportError:
        raise DataError("Text data sets need the tokenizers library. Run `pip install 'batchscale[text]'`.") from None
    return tokenizers


def _train(library: Any, size: int, sentences: Iterable[str]) -> str:
    byte_level = library.pre_tokenizers.ByteLevel
    tokenizer = library.Tokenizer(library.models.BPE())
    tokenizer.pre_tokenizer = byte_level(add_prefix_space=False)
    tokenizer.decoder = library.decoders.ByteLevel()
    trainer = library.trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=_SPECIAL,
        initial_alphabet=sorted(byte_level.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(sentences, trainer)
    text: str = tokenizer.to_str()
    return text
