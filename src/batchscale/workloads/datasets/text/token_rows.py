"""Rows of tokens cut out of one long array, in memory or on disk. Imports no jax."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

TokenArray = NDArray[np.unsignedinteger[Any]]
"""Two or four bytes a token, as the vocabulary needs."""


def token_dtype(vocabulary_size: int) -> "np.dtype[np.unsignedinteger[Any]]":
    """The smallest type that holds every token of a vocabulary."""
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
        """The padded rows at these indices, and how many tokens of each are real."""
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
    chosen: NDArray[np.int64] | None,
    clip: int | None,
    width: int | None = None,
) -> TokenRows:
    """One row per sentence, clipped to its first tokens; as wide as asked, else as the longest."""
    starts, ends = (offsets[:-1], offsets[1:]) if chosen is None else (offsets[chosen], offsets[chosen + 1])
    ends = ends if clip is None else np.minimum(ends, starts + clip)
    longest = int((ends - starts).max(initial=1))
    return TokenRows(tokens, starts, ends, longest if width is None else width)


def packed_rows(tokens: TokenArray, offsets: NDArray[np.int64], length: int) -> TokenRows:
    """All sentences end to end, cut into rows of this length; the last row may be shorter.

    >>> rows = packed_rows(np.arange(1, 6, dtype=np.uint16), np.array([0, 2, 5]), 2)
    >>> rows.read(np.array([0, 2]))[0].tolist()
    [[1, 2], [5, 0]]
    """
    total = int(offsets[-1])
    edges = np.minimum(np.arange(-(-total // length) + 1, dtype=np.int64) * length, total)
    return TokenRows(tokens, edges[:-1], edges[1:], length)
