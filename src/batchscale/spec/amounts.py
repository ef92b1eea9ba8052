"""Amounts that a user writes with a suffix: 20B tokens, 1.3M parameters, a batch of 16k."""

import math
import re

from batchscale.errors import SpecError, one_line

FACTORS = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}
LARGEST = 1e18
_AMOUNT = re.compile(
    r"\s*([0-9][0-9_,]*\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?\s*([kmbgt]?)(\s*tokens?)?\s*", re.IGNORECASE | re.ASCII
)


def parse_amount(text: str, name: str) -> float:
    """Parse a positive number with an optional suffix: k, M, B (or G) and T, by thousands.

    Args:
        text: The amount.
        name: The option or key, for the message.

    >>> parse_amount("20B", "--tokens"), parse_amount("1e9", "--tokens"), parse_amount("16k tokens", "--batch-size")
    (20000000000.0, 1000000000.0, 16000.0)
    """
    match = _AMOUNT.fullmatch(text)
    value = math.nan
    if match:
        digits = match[1].replace(",", "").replace("_", "") + (match[2] or "")
        value = float(digits) * FACTORS[match[3].lower()]
    if not 0 < value <= LARGEST:
        raise SpecError(
            f"{name} must be a positive number up to 1e18, with k, M, B or T behind it if you like. Found "
            f"'{one_line(text, 60)}'; write 20B or 2e10, say."
        )
    return value
