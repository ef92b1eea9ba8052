"""The batch sizes of an experiment: a list, or a range written as text, and the full training set.

Owns the text forms ``"1..4096"``, ``"2..8192 by 4"`` and ``"full"``. A batch size is the number of examples
per optimizer step over all devices.
"""

import re
from dataclasses import dataclass

from batchscale.errors import SpecError, one_line

MAX_BATCH_SIZE = 2**40
MAX_BATCH_SIZES = 1_000
FULL = "full"

_RANGE = re.compile(r"\s*(?P<low>\d{1,13})\s*\.\.\s*(?P<high>\d{1,13})(?:\s+by\s+(?P<factor>\d{1,4}))?\s*")
_RULE = (
    'Batch sizes are a list of whole numbers such as [1, 8, 64, "full"], or a range such as "1..4096" '
    '(powers of two) or "2..8192 by 4"'
)


@dataclass(frozen=True)
class BatchSizes:
    """The batch sizes of an experiment, in growing order; ``full`` adds the whole training set.

    >>> BatchSizes.parse("2..40 by 4")
    BatchSizes(sizes=(2, 8, 32), full=False)
    >>> BatchSizes.parse([64, 1, "full"]).resolve(1000)
    (1, 64, 1000)
    """

    sizes: tuple[int, ...]
    full: bool = False

    @classmethod
    def parse(cls, value: object) -> "BatchSizes":
        """Parse the batch sizes from their form in the experiment file."""
        items = value if isinstance(value, list | tuple) else [value]
        if not items:
            raise SpecError(f"{_RULE}; at least one is needed. Found an empty list.")
        sizes: set[int] = set()
        for item in items:
            if item != FULL:
                sizes |= set(_expand(item))
        if len(sizes) > MAX_BATCH_SIZES:
            raise SpecError(f"{_RULE}; at most {MAX_BATCH_SIZES:,} of them. Found {len(sizes):,}.")
        return cls(tuple(sorted(sizes)), full=FULL in items)

    def resolve(self, num_train_examples: int | None) -> tuple[int, ...]:
        """Return the batch sizes as numbers for a training set of this size (None: sampled data without end)."""
        if num_train_examples is None:
            if self.full:
                raise SpecError('Batch size "full" needs a training set of fixed size. Found sampled data.')
            return self.sizes
        largest = max(self.sizes, default=1)
        if largest > num_train_examples:
            raise SpecError(
                f"A batch size must not exceed the training set of {num_train_examples} examples. Found {largest}. "
                'Write "full" for the whole training set.'
            )
        return tuple(sorted({*self.sizes, num_train_examples})) if self.full else self.sizes

    def to_json(self) -> list[int | str]:
        """Return the batch sizes as a list."""
        return [*self.sizes, FULL] if self.full else list(self.sizes)


def _expand(item: object) -> list[int]:
    if isinstance(item, str) and (match := _RANGE.fullmatch(item)):
        low, high, factor = int(match["low"]), int(match["high"]), int(match["factor"] or 2)
        if not 1 <= low <= high <= MAX_BATCH_SIZE or factor < 2:
            raise SpecError(f"{_RULE}, with 1 ≤ first ≤ last and a factor of at least 2. Found {one_line(item)}.")
        sizes = [low]
        while sizes[-1] * factor <= high:
            sizes.append(sizes[-1] * factor)
        return sizes
    if isinstance(item, bool) or not isinstance(item, int) or not 1 <= item <= MAX_BATCH_SIZE:
        raise SpecError(f"{_RULE}; each at least 1. Found {one_line(repr(item))}.")
    return [item]
