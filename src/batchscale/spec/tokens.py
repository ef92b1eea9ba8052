"""Numbers of tokens as people write them, ``"16k tokens"``, and their conversion to examples.

A batch size in tokens must be a whole number of examples. ``k`` and ``M`` are powers of 1,024 where that makes all
sizes of an experiment whole numbers of examples, as for sequences of 512 tokens; otherwise they are powers of 1,000.
In durations, where the steps are rounded up, they are powers of 1,000.
"""

import re
from collections.abc import Iterable
from fractions import Fraction

from batchscale.errors import SpecError, one_line

MAX_TOKENS = 2**53
MAX_TOKENS_PER_EXAMPLE = 2**31 - 1
MAX_RANGE = 100
DECIMAL = 1000

_BASES = (1024, DECIMAL)
_POWERS = {"": 0, "k": 1, "m": 2, "b": 3}
_AMOUNT = r"(?:\d{1,3}(?:,\d{3})+|\d[\d_]{0,20}(?:\.\d{1,12})?(?:e\d{1,2})?)\s*[kmb]?"
_TEXT = re.compile(
    rf"\s*(?P<low>{_AMOUNT})(?:\s*\.\.\s*(?P<high>{_AMOUNT}))?\s*tokens?(?:\s+by\s+(?P<factor>\d{{1,4}}))?\s*", re.I
)
_RULE = (
    'A number of tokens is written like "16k tokens", "16,384 tokens" or "0.5M tokens" (k, M and B: thousands, '
    "millions, billions)"
)


def names_tokens(value: object) -> bool:
    """True if a value is meant as a number of tokens, well-formed or not.

    >>> names_tokens("16 kB tokens"), names_tokens("16k"), names_tokens(64)
    (True, False, False)
    """
    return isinstance(value, str) and "token" in value.lower()


def split_sizes(text: str) -> list[str]:
    """Split a list of batch sizes at its commas, except those within a number of tokens.

    >>> split_sizes("64, 128"), split_sizes("16,384 tokens, 32k tokens")
    (['64', '128'], ['16,384 tokens', '32k tokens'])
    """
    parts = re.split(r"(?<=tokens)\s*,", text, flags=re.I) if names_tokens(text) else text.split(",")
    return [part.strip() for part in parts]


def check_size_text(text: str) -> str:
    """Return the text of a batch size, or of a range of them, in tokens.

    Raises:
        SpecError: it is not a number of tokens.
    """
    for base in _BASES:
        sizes = _expand(text, base)
        if any(size < 1 for size in sizes):
            raise SpecError(f"{_RULE}, of at least one token. Found {_quote(text)}.")
    return text


def parse_duration(text: str) -> int:
    """Return a number of tokens that need not be whole examples, such as a budget.

    >>> parse_duration("20M tokens"), parse_duration("16,384 tokens")
    (20000000, 16384)
    """
    match = _TEXT.fullmatch(text)
    amounts = [] if match is None or match["high"] or match["factor"] else _expand(text, DECIMAL)
    if not amounts or amounts[0].denominator != 1 or amounts[0] < 1:
        raise SpecError(f"{_RULE}, and is whole and at least 1. Found {_quote(text)}.")
    return int(amounts[0])


def to_examples(texts: Iterable[str], tokens_per_example: int, keys: Iterable[str] = ()) -> dict[str, tuple[int, ...]]:
    """Return the batch sizes in examples of each text in tokens; ``keys`` are texts that name sizes again.

    >>> to_examples(["16k tokens", "32k..128k tokens"], 512)
    {'16k tokens': (32,), '32k..128k tokens': (64, 128, 256)}
    >>> to_examples(["16k tokens"], 1000)
    {'16k tokens': (16,)}

    Raises:
        SpecError: a size is not a whole number of examples; the message has the nearest that are.
    """
    named = list(dict.fromkeys((*texts, *keys)))
    base = min(_BASES, key=lambda base: len(_not_whole(named, base, tokens_per_example)))
    wrong = _not_whole(named, base, tokens_per_example)
    if wrong:
        raise _make_error(*wrong[0], tokens_per_example)
    return {text: tuple(int(size) // tokens_per_example for size in _expand(text, base)) for text in named}


def _not_whole(texts: list[str], base: int, tokens_per_example: int) -> list[tuple[str, Fraction]]:
    return [(text, size) for text in texts for size in _expand(text, base) if size % tokens_per_example]


def _make_error(text: str, size: Fraction, per_example: int) -> SpecError:
    below = int(size // per_example)
    nearest = [f"{count * per_example:,} tokens ({count:,})" for count in (below, below + 1) if count]
    is_plain = f"{int(size)}" in text.replace(",", "").replace("_", "")
    found = text if is_plain else f"{text} = {_number(size)} tokens"
    return SpecError(
        f"A batch size in tokens must be a whole number of examples, and an example has {per_example:,} tokens. "
        f"Found {_quote(found)}, {_number(size / per_example)} examples. Nearest: {' and '.join(nearest)}."
    )


def _expand(text: str, base: int) -> list[Fraction]:
    match = _TEXT.fullmatch(text)
    if match is None:
        raise SpecError(f"{_RULE}. Found {_quote(text)}.")
    low, high = (_amount(part, base, text) for part in (match["low"], match["high"] or match["low"]))
    factor = int(match["factor"] or 2)
    if low > high or factor < 2 or (match["factor"] and not match["high"]):
        raise SpecError(
            f'A range of batch sizes is written like "16k..1M tokens", perhaps "by 4". Found {_quote(text)}.'
        )
    sizes = [low]
    while sizes[-1] * factor <= high and low and len(sizes) < MAX_RANGE:
        sizes.append(sizes[-1] * factor)
    return sizes


def _amount(text: str, base: int, whole_text: str) -> Fraction:
    digits = text.strip().rstrip("kmbKMB").strip()
    power = _POWERS[text.strip()[len(digits) :].strip().lower()]
    amount = Fraction(digits.replace(",", "").replace("_", "")) * Fraction(base**power)
    if amount > MAX_TOKENS:
        raise SpecError(f"A number of tokens must not exceed {MAX_TOKENS:,}. Found {_quote(whole_text)}.")
    return amount


def _number(value: Fraction) -> str:
    return f"{int(value):,}" if value.denominator == 1 else f"{float(value):,.6g}"


def _quote(text: str) -> str:
    return one_line(repr(text))
