"""Which sentences of a text are held out: a random share, fixed by the number of the sentence alone. Imports no jax."""

import numpy as np
from numpy.typing import NDArray

_CHUNK = 1 << 16


def held_out_draw(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """A number in [0, 1) for each sentence, by splitmix64: as good as random, the same everywhere, any order.

    A permutation would need the number of sentences beforehand and eight bytes for each of billions.
    """
    mixed = numbers.astype(np.uint64) + np.uint64(1)
    with np.errstate(over="ignore"):
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed = mixed ^ (mixed >> np.uint64(31))
    return (mixed >> np.uint64(11)) / 2.0**53


def is_held_out(start: int, share: float) -> NDArray[np.bool_]:
    """For the 65,536 sentences from ``start`` on, whether each is held out."""
    return held_out_draw(np.arange(start, start + _CHUNK)) < share


def split_held_out(num_sentences: int, share: float) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers of the sentences to train on, and of those held out, both growing."""
    mask = np.concatenate(
        [is_held_out(start, share) for start in range(0, num_sentences, _CHUNK)] or [np.zeros(0, bool)]
    )[:num_sentences]
    return np.flatnonzero(~mask), np.flatnonzero(mask)
