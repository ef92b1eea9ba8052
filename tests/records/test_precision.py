import math

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchscale.records.precision import fits_float32, widen, widen_metrics

SIX_DIGITS = st.builds(
    lambda digits, power, sign: sign * float(f"{digits}e{power}"),
    st.integers(0, 999_999), st.integers(-37, 30), st.sampled_from([1, -1]),
)  # fmt: skip
ANY = st.none() | st.floats() | SIX_DIGITS


def same(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return one is other
    return (math.isnan(one) and math.isnan(other)) or (
        one == other and math.copysign(1, one) == math.copysign(1, other)
    )


@given(st.lists(SIX_DIGITS))
@example([0.01, 0.1, 1.0, 10.0, 999_999.0, 1e-7, 9.99999e-7, 1.23457e20, 0.0, -0.0])
def test_six_printed_digits_survive_float32(values: list[float]) -> None:
    assert fits_float32(pl.Series(values, dtype=pl.Float64))


@given(st.lists(ANY))
@example([0.1, 0.10000001])
@example([1e300])
@example([float("inf"), float("nan"), None, -0.0])
def test_a_column_that_fits_float32_comes_back_exactly(values: list[float | None]) -> None:
    wide = pl.Series(values, dtype=pl.Float64)
    if fits_float32(wide):
        back = widen(wide.cast(pl.Float32))
        assert all(same(one, other) for one, other in zip(values, back.to_list(), strict=True))


@pytest.mark.parametrize("value", [0.1234567, 1 / 3, 1e39, 1e-46, 1.4013e-45, 1e-40, 16_777_217.0, math.pi])
def test_more_digits_need_float64(value: float) -> None:
    assert not fits_float32(pl.Series([0.5, value]))


def test_only_float32_columns_are_widened() -> None:
    frame = pl.DataFrame({"step": [1], "a": np.array([0.01], np.float32), "b": [0.01]}).lazy()
    assert widen_metrics(frame).collect().rows() == [(1, 0.01, 0.01)]
