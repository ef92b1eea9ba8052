"""The batch sizes of an experiment: ``"1..4096"``, ``"2..8192 by 4"``, ``"full"``, ``"auto"``, and in tokens."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from batchscale.errors import SpecError, one_line
from batchscale.spec.adaptive import AUTO
from batchscale.spec.durations import tokens_unknown
from batchscale.spec.tokens import check_size_text, names_tokens, to_examples

MAX_BATCH_SIZE = 2**40
MAX_BATCH_SIZES = 1_000
FULL = "full"

_RANGE = re.compile(r"\s*(?P<low>\d{1,13})\s*\.\.\s*(?P<high>\d{1,13})(?:\s+by\s+(?P<factor>\d{1,4}))?\s*")
_RULE = (
    'Batch sizes are a list of whole numbers such as [1, 8, 64, "full"], or a range such as "1..4096" '
    '(powers of two) or "2..8192 by 4"; or all in tokens, such as ["16k tokens", "64k tokens"]; or "auto"'
)
FEWEST_AUTO = 3


@dataclass(frozen=True)
class BatchSizes:
    """The batch sizes of an experiment, in growing order; ``full`` adds the whole training set.

    ``tokens`` are texts of sizes in tokens, in place of both others, until `in_examples` converts them. ``auto`` has
    the smallest and the largest size (None: the training set) that an adaptive experiment chooses from, in place of
    all others.

    >>> BatchSizes.parse("2..40 by 4")
    BatchSizes(sizes=(2, 8, 32), full=False, tokens=())
    >>> BatchSizes.parse([64, 1, "full"]).resolve(1000)
    (1, 64, 1000)
    >>> BatchSizes.parse(["16k tokens", "64k tokens"]).in_examples(512)
    BatchSizes(sizes=(32, 128), full=False, tokens=())
    """

    sizes: tuple[int, ...]
    full: bool = False
    tokens: tuple[str, ...] = ()
    auto: tuple[int, int | None] | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, value: object) -> "BatchSizes":
        """Parse the batch sizes from their form in the experiment file."""
        items = value if isinstance(value, list | tuple) else [value]
        if not items:
            raise SpecError(f"{_RULE}; at least one is needed. Found an empty list.")
        if AUTO in items:
            if len(items) > 1:
                raise SpecError(f'{_RULE}; "auto" must stand alone. Found {len(items)} items with "auto" among them.')
            return cls((), auto=(1, None))
        if any(map(names_tokens, items)):
            return cls((), tokens=_read_token_sizes(items))
        sizes: set[int] = set()
        for item in items:
            if item != FULL:
                sizes |= set(_expand(item))
        if len(sizes) > MAX_BATCH_SIZES:
            raise SpecError(f"{_RULE}; at most {MAX_BATCH_SIZES:,} of them. Found {len(sizes):,}.")
        return cls(tuple(sorted(sizes)), full=FULL in items)

    def in_examples(self, tokens_per_example: int | None, keys: Iterable[str] = ()) -> "BatchSizes":
        """Return the batch sizes without tokens; ``keys`` are texts that name some of them again.

        Raises:
            SpecError: a size in tokens is not a whole number of examples.
        """
        if not self.tokens:
            return self
        if tokens_per_example is None:
            raise tokens_unknown(f"a batch size of {self.tokens[0]}")
        converted = to_examples(self.tokens, tokens_per_example, keys)
        sizes = {size for text in self.tokens for size in converted[text]}
        if not max(sizes) <= MAX_BATCH_SIZE:
            raise SpecError(f"{_RULE}; each from 1 to {MAX_BATCH_SIZE:,} examples. Found {max(sizes):,}.")
        return BatchSizes(tuple(sorted(sizes)))

    def resolve(self, num_train_examples: int | None, tokens_per_example: int | None = None) -> tuple[int, ...]:
        """Return the batch sizes in examples for a training set of this size (None: sampled data without end)."""
        if self.tokens:
            return self.in_examples(tokens_per_example).resolve(num_train_examples)
        if self.auto is not None:
            return _auto_sizes(*self.auto, num_train_examples)
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
        return [*self.sizes, *self.tokens, *([FULL] if self.full else []), *([AUTO] if self.auto else [])]


def _auto_sizes(smallest: int, largest: int | None, num_train_examples: int | None) -> tuple[int, ...]:
    """Return the sizes that an adaptive experiment chooses from: the smallest, and each twice the one before.

    >>> _auto_sizes(4, None, 100), _auto_sizes(3, 24, None)
    ((4, 8, 16, 32, 64), (3, 6, 12, 24))
    """
    limits = [limit for limit in (largest, num_train_examples) if limit is not None]
    if not limits:
        raise SpecError(
            'batch_sizes = "auto" needs a largest size where the training set has none (sampled data, or a script). '
            "Found no 'largest' in [adaptive]; give one."
        )
    if largest is not None and num_train_examples is not None and largest > num_train_examples:
        raise SpecError(
            f"adaptive.largest must not exceed the training set of {num_train_examples} examples. Found {largest}."
        )
    sizes = [smallest]
    while 2 * sizes[-1] <= min(limits):
        sizes.append(2 * sizes[-1])
    if len(sizes) < FEWEST_AUTO or smallest > min(limits):
        raise SpecError(
            f'batch_sizes = "auto" needs at least {FEWEST_AUTO} sizes, each twice the one before. Found {smallest:,} '
            f"to {min(limits):,}; lower 'smallest' in [adaptive], or list the batch sizes."
        )
    return tuple(sizes)


def _read_token_sizes(items: Sequence[object]) -> tuple[str, ...]:
    if len(items) > MAX_BATCH_SIZES:
        raise SpecError(f"{_RULE}; at most {MAX_BATCH_SIZES:,} of them. Found {len(items):,}.")
    for item in items:
        if not names_tokens(item):
            raise SpecError(f"{_RULE}; all in tokens, or none. Found {one_line(repr(item))} beside sizes in tokens.")
    return tuple(check_size_text(str(item)) for item in items)


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
        raise SpecError(f"{_RULE}; each from 1 to {MAX_BATCH_SIZE:,}. Found {one_line(repr(item))}.")
    return [item]
