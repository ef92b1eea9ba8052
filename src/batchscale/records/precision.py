"""Metrics in float32 without losing a printed digit, and back to the float64 that was printed.

Published metrics have six significant digits, which float32 keeps. A column is stored in float32 only if every value
is such a number; widened again, each value is the float64 that its text had: a table and a tree give equal numbers.
"""

import math

import numpy as np
import polars as pl

DIGITS = 6
_MAX_POWER = 22  # powers of ten up to this one are exact in float64, so that one product or quotient rounds only once
_LEAST = np.finfo(np.float32).tiny
_BLOCK = 32_768  # numbers at a time: intermediate arrays stay in the processor's cache
_EXPONENT_BITS, _BIAS = 52, 1023  # of a float64


def fits_float32(values: pl.Series) -> bool:
    """True if float32 keeps every value of a float64 series exactly as it was printed; null, NaN and inf always fit.

    >>> fits_float32(pl.Series([0.24406, 6.90948, float("nan"), None])), fits_float32(pl.Series([0.2440612]))
    (True, False)
    """
    numbers = values.drop_nulls().to_numpy()
    return all(_block_fits(numbers[start : start + _BLOCK]) for start in range(0, len(numbers), _BLOCK))


def _block_fits(numbers: np.ndarray) -> bool:
    size = np.abs(numbers)
    scale = np.where(size < 1, 10.0**DIGITS, 10.0 ** (DIGITS - 1))
    with np.errstate(all="ignore"):
        short = (np.rint(numbers * scale) / scale == numbers) & (size < 10)
    return bool(short.all()) or _rare_numbers_fit(numbers[~short])


def _rare_numbers_fit(numbers: np.ndarray) -> bool:
    """True if float32 keeps numbers of any size, tiny and infinite ones as well."""
    with np.errstate(over="ignore", under="ignore"):
        narrow = numbers.astype(np.float32)
    if ((np.abs(narrow) < _LEAST) & (narrow != 0)).any():
        return False  # denormal numbers have fewer digits, and their shortest text is of another float64
    return bool(((_block_decimals(narrow) == numbers) | ~np.isfinite(numbers)).all())


def widen(values: pl.Series) -> pl.Series:
    """Return the float64 numbers that a float32 series was printed as.

    >>> widen(pl.Series([0.1], dtype=pl.Float32)).item()
    0.1
    """
    if values.null_count():
        present = values.drop_nulls()
        return widen(present).gather((values.is_not_null().cum_sum() - 1).cast(pl.Int64).set(values.is_null(), None))
    return pl.Series(values.name, _decimals(values.to_numpy()))


def widen_number(value: np.float32) -> float:
    """Return the float64 number that a float32 was printed as.

    >>> widen_number(np.float32(0.1))
    0.1
    """
    return float(_decimals(np.array([value]))[0])


def widen_metrics(frame: pl.LazyFrame) -> pl.LazyFrame:
    """Return the frame with every float32 column widened; columns that a query does not use cost nothing."""
    narrow = [name for name, kind in frame.collect_schema().items() if kind == pl.Float32]
    return frame.with_columns(
        pl.col(name).map_batches(widen, return_dtype=pl.Float64, is_elementwise=True) for name in narrow
    )


def _decimals(values: np.ndarray) -> np.ndarray:
    """Return each float32 as the float64 nearest to its first six significant digits."""
    decimals = np.empty(len(values), np.float64)
    for start in range(0, len(values), _BLOCK):
        decimals[start : start + _BLOCK] = _block_decimals(values[start : start + _BLOCK])
    return decimals


def _block_decimals(values: np.ndarray) -> np.ndarray:
    wide = values.astype(np.float64)
    size = np.abs(wide)
    exponents = size.view(np.int64) >> _EXPONENT_BITS
    scale = _SCALES[2 * exponents + (size >= _NEXT_DECADE[exponents])]
    with np.errstate(all="ignore"):
        rounded: np.ndarray = np.rint(wide * scale) / scale
    unusual = np.flatnonzero(np.isnan(scale))
    rounded[unusual] = [float(f"{value:.{DIGITS - 1}e}") for value in wide[unusual].tolist()]
    return rounded


def _decades() -> tuple[np.ndarray, np.ndarray]:
    """Return, by exponent of two, the next power of ten, and the factors that give six digits below and from it on.

    A factor is NaN where it would not be exact, and 1 for zeros and for numbers that are not finite.
    """
    next_decade, scales = np.full(_BIAS * 2 + 2, np.inf), np.ones(_BIAS * 4 + 4)
    for exponent in range(-149, 128):  # of a float32
        decade = math.floor(exponent * math.log10(2))
        next_decade[_BIAS + exponent] = float(f"1e{decade + 1}")
        for above in (0, 1):
            power = DIGITS - 1 - decade - above
            scales[2 * (_BIAS + exponent) + above] = 10.0**power if 0 <= power <= _MAX_POWER else math.nan
    return next_decade, scales


_NEXT_DECADE, _SCALES = _decades()
