"""Vocabularies: every byte, or byte-level pairs trained with the ``tokenizers`` library and kept in the cache.

Any text can be encoded and comes back unchanged, for every byte is a sub-word. ``tokenizers`` is the optional extra
``[text]``, imported only here, when asked for. Imports no jax.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, final

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError, one_line
from batchscale.records.durable import replace_durably
from batchscale.workloads.cache import cached
from batchscale.workloads.datasets.text.options import NUM_BYTE_TOKENS

PAD, EOS = 0, 1
"""Padding, which also stands before the first token of a sentence, and the end of a sentence."""
MAX_TRAINING_SENTENCES = 2_000_000
_SPECIAL = ["<pad>", "<eos>"]
_VERSION = "1"
_CHUNK = 4096


class Vocabulary(Protocol):
    """The tokens of a text; ``key`` is the same for the same tokens, for caches of what was encoded with it."""

    @property
    def key(self) -> str:
        """The name of these tokens."""

    def encode(self, sentences: Iterable[str]) -> Iterator[list[int]]:
        """The tokens of each sentence, with its end."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without the special ones."""

    def token_bytes(self) -> NDArray[np.float32]:
        """The number of bytes that each token stands for: the end of a sentence for one, padding for none."""


@final
@dataclass(frozen=True)
class ByteVocabulary:
    """Every byte is a token, after the two special ones."""

    key: str = "bytes"

    def encode(self, sentences: Iterable[str]) -> Iterator[list[int]]:
        """The bytes of each sentence, with its end."""
        for sentence in sentences:
            yield [*(byte + len(_SPECIAL) for byte in sentence.encode()), EOS]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of bytes, without the special ones; a character that was cut becomes a replacement mark."""
        return bytes(token - len(_SPECIAL) for token in tokens if token >= len(_SPECIAL)).decode(errors="replace")

    def token_bytes(self) -> NDArray[np.float32]:
        """One for each but padding."""
        return np.array([0] + [1] * (NUM_BYTE_TOKENS - 1), np.float32)


@final
@dataclass(frozen=True)
class SubwordVocabulary:
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

    def token_bytes(self) -> NDArray[np.float32]:
        """The bytes of each sub-word: the library writes every byte as one character."""
        special = {"<pad>": 0, "<eos>": 1}
        names = self.tokenizer.get_vocab()
        sizes = np.zeros(max(names.values()) + 1, np.float32)
        for name, token in names.items():
            sizes[token] = special.get(name, len(name))
        return sizes


def open_vocabulary(content: str, size: int, sentences: Iterable[str]) -> SubwordVocabulary:
    """The vocabulary of a text, from the cache or trained now on its first two million sentences.

    ``content`` is the digest of the text: together with ``size`` it names the cached file.
    """
    library = _import_library()
    key = f"{content}-{size}-v{_VERSION}"
    path = cached("vocabularies", f"{key}.json")
    if not path.is_file():
        replace_durably(path, _train(library, size, itertools.islice(sentences, MAX_TRAINING_SENTENCES)))
    try:
        return SubwordVocabulary(key, library.Tokenizer.from_file(str(path)))
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
