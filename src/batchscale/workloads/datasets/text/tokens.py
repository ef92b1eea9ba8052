"""Encoded text: sentences as tokens in the cache, and rows of tokens for training. Imports no jax."""

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchscale.errors import DataError
from batchscale.workloads.cache import cached, filling

_FLUSH = 1 << 22

TokenArray = NDArray[np.unsignedinteger[Any]]
"""Two or four bytes a token, as the vocabulary needs."""


@dataclass(frozen=True)
class TokenStore:
    """Sentence i is ``tokens[offsets[i]:offsets[i + 1]]``."""

    tokens: TokenArray
    offsets: NDArray[np.int64]


def open_token_store(key: str, vocabulary_size: int, sentences: Iterable[list[int]]) -> TokenStore:
    """Open the store of this key in the cache; it is written from encoded sentences if it does not exist."""
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
            buffer: list[int] = []
            for sentence in sentences:
                buffer += sentence
                lengths.append(len(sentence))
                if len(buffer) >= _FLUSH:
                    out.write(np.array(buffer, kind).tobytes())
                    buffer.clear()
            out.write(np.array(buffer, kind).tobytes())
        np.save(stage / "offsets.npy", np.cumsum(np.frombuffer(lengths, np.int64)))


def token_dtype(vocabulary_size: int) -> "np.dtype[np.unsignedinteger[Any]]":
    """Return the smallest type that holds every token of a vocabulary."""
    return np.dtype(np.uint16) if vocabulary_size <= 2**16 else np.dtype(np.uint32)


@dataclass(frozen=True)
class TokenRows:
    """Row i holds ``tokens[starts[i]:ends[i]]``, padded with 0 to ``width``."""

    tokens: TokenArray
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    width: int

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def num_bytes(self) -> int:
        """The size of all rows side by side."""
        return len(self) * self.width * self.tokens.itemsize

    def read(self, indices: NDArray[np.int64]) -> tuple[TokenArray, NDArray[np.int32]]:
        """Return the padded rows at these indices, and the number of real tokens of each."""
        starts = self.starts[indices]
        lengths = self.ends[indices] - starts
        steps = np.arange(self.width)
        real = steps < lengths[:, None]
        rows = np.zeros((len(starts), self.width), self.tokens.dtype)
        rows[real] = self.tokens[(starts[:, None] + steps)[real]]
        return rows, lengths.astype(np.int32)


def sentence_rows(
    tokens: TokenArray,
    offsets: NDArray[np.int64],
    numbers: NDArray[np.int64] | None,
    clip: int | None,
    width: int | None = None,
) -> TokenRows:
    """Return one row per sentence, clipped to its first tokens; as wide as ``width``, else as the longest."""
    starts, ends = (offsets[:-1], offsets[1:]) if numbers is None else (offsets[numbers], offsets[numbers + 1])
    ends = ends if clip is None else np.minimum(ends, starts + clip)
    longest = int((ends - starts).max(initial=1))
    return TokenRows(tokens, starts, ends, longest if width is None else width)


def packed_rows(tokens: TokenArray, offsets: NDArray[np.int64], length: int) -> TokenRows:
    """Return all sentences end to end, cut into rows of this length; the last row may be shorter.

    >>> rows = packed_rows(np.arange(1, 6, dtype=np.uint16), np.array([0, 2, 5]), 2)
    >>> rows.read(np.array([0, 2]))[0].tolist()
    [[1, 2], [5, 0]]
    """
    total = int(offsets[-1])
    edges = np.minimum(np.arange(-(-total // length) + 1, dtype=np.int64) * length, total)
    return TokenRows(tokens, edges[:-1], edges[1:], length)
