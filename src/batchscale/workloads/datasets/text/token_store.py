"""Encoded text on disk: one flat, memory-mapped file of tokens and the offsets of its sentences. Imports no jax.

A store is written once, beside its final place, and appears whole by one rename; two processes that write the same
one do each other no harm.
"""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError
from batchscale.workloads.cache import cached, filling
from batchscale.workloads.datasets.text.token_rows import TokenArray, token_dtype

_FLUSH = 1 << 22


@dataclass(frozen=True)
class TokenStore:
    """Sentence i is ``tokens[offsets[i]:offsets[i + 1]]``."""

    tokens: TokenArray
    offsets: NDArray[np.int64]


def open_token_store(key: str, vocabulary_size: int, sentences: Iterable[list[int]]) -> TokenStore:
    """The store of this key from the cache, or written now from encoded sentences."""
    folder = cached("tokens", key)
    kind = token_dtype(vocabulary_size)
    if not folder.is_dir():
        _write(folder, kind, sentences)
    offsets = np.load(folder / "offsets.npy", mmap_mode="r", allow_pickle=False)
    size = (folder / "tokens.bin").stat().st_size
    if not len(offsets) or size != int(offsets[-1]) * kind.itemsize:
        raise DataError(f"{folder} is damaged. Remove it; it is made again.")
    if not size:
        return TokenStore(np.zeros(0, kind), np.asarray(offsets))
    return TokenStore(np.memmap(folder / "tokens.bin", kind, "r"), offsets)


def _write(folder: Path, kind: "np.dtype[np.unsignedinteger[Any]]", sentences: Iterable[list[int]]) -> None:
    lengths = array("q", [0])
    with filling(folder) as stage:
        with (stage / "tokens.bin").open("wb") as out:
            waiting: list[int] = []
            for sentence in sentences:
                waiting += sentence
                lengths.append(len(sentence))
                if len(waiting) >= _FLUSH:
                    out.write(np.array(waiting, kind).tobytes())
                    waiting.clear()
            out.write(np.array(waiting, kind).tobytes())
        np.save(stage / "offsets.npy", np.cumsum(np.frombuffer(lengths, np.int64)))
