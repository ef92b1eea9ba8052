import math

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from batchscale.errors import RecordsError
from batchscale.records.model import parse_study, parse_trial
from batchscale.records.tree import measurements
from batchscale.records.tree.bulk import read_measurement_files
from batchscale.records.tree.journal import JournalText, decode_journal, encode_line
from batchscale.records.tree.measurements import format_number, parse_measurements
from batchscale.spec.workload_name import WorkloadName


def significant_digits(text: str) -> str:
    return text.split("e")[0].replace(".", "").lstrip("-").strip("0")


@given(st.floats(width=32).map(np.float32))
@example(np.float32(1_000_001))
@example(np.float32(1e-45))
@example(np.float32(3.4025002e38))
def test_float32_text_reads_back_as_the_same_float32_and_has_no_digit_too_many(value):
    text = format_number(value)
    back = np.float32(float(text))
    assert back == value or (np.isnan(back) and np.isnan(value))
    with np.errstate(over="ignore"):  # the largest numbers, rounded up to fewer digits, are none any more
        fewest = next(n for n in range(1, 10) if n == 9 or np.float32(float(f"{value:.{n}g}")) == value)
    assert not np.isfinite(value) or len(significant_digits(text)) <= fewest


@given(st.floats())
def test_float64_text_reads_back_as_the_same_float64(value):
    back = float(format_number(value))
    assert back == value or (math.isnan(back) and math.isnan(value))


def test_fixed_spellings():
    values = (math.nan, math.inf, -math.inf, None, np.float32("nan"), np.float32("-inf"), np.float64(0.1), 3)
    assert [format_number(v) for v in values] == ["nan", "inf", "-inf", "", "nan", "-inf", "0.1", "3.0"]
    with pytest.raises(RecordsError, match="True"):
        format_number(True)


pieces = st.sampled_from(
    [b"0", b"1", b"25", b",", b"\n", b"nan", b"-inf", b"1e3", b".5", b"-", b"x", b"\r\n", b" ", b'"', b"\0", b"\xff"]
)
bodies = st.lists(pieces, max_size=25).map(b"".join)
rows = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from(["1", "nan", "", "x"])).map(lambda r: f"{r[0]},{r[1]}\n".encode()),
    max_size=6,
).map(b"".join)


@settings(max_examples=300, deadline=None)
@given(st.lists(bodies | rows, min_size=1, max_size=4))
@example([b"0,1\n\n5\n", b"1,2\n"])
def test_many_files_at_once_read_the_same_as_one_by_one(texts):
    """The careful reader is the oracle of the fast one, on files sound and broken."""
    heard = {}
    files = [(8, number, b"step,val/e\n" + text) for number, text in enumerate(texts)]
    frame = read_measurement_files(files, lambda _, trial_id, faults: heard.setdefault(trial_id, faults))
    for _, trial_id, text in files:
        table = parse_measurements(text)
        assert heard.get(trial_id, []) == table.faults
        mine = frame.filter(pl.col("trial_id") == trial_id)
        assert mine["step"].to_list() == table.steps
        if table.metrics:
            assert mine["val/e"].equals(pl.Series(table.columns[0], dtype=pl.Float64).alias("val/e"), null_equal=True)


plain = st.sampled_from([b"0", b"7", b"12", b",", b",", b"\n", b".", b"e", b"E", b"+", b"-", b"1e999", b"0.5"])
plain_rows = st.tuples(st.integers(0, 40), st.floats(allow_nan=False, allow_infinity=False))


@settings(max_examples=300, deadline=None)
@given(
    st.lists(plain, max_size=25).map(b"".join)
    | st.lists(plain_rows.map(lambda row: b"%d,%r\n" % row), max_size=6).map(b"".join)
)
@example(b"0,1\n10,1e999\n")
@example(b"0,\n10,.5\n")
@example(b"0000000000000001,1\n2,1\n")
def test_files_of_plain_numbers_are_read_the_same_in_the_short_way(body):
    text = b"step,val/e\n" + body
    short = parse_measurements(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(measurements, "_parse_plain", lambda *_: None)
        assert parse_measurements(text) == short


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_parsed_or_refused(data):
    parse_measurements(data)
    decode_journal(data)
    for parse in (lambda: parse_trial(data, "x"), lambda: parse_study(data, WorkloadName("d", "m", "o"), "x")):
        with pytest.raises(RecordsError):
            parse()


@pytest.mark.parametrize("owner", [None, "d/m/o/8/1 abc"])
@given(st.lists(st.integers(0, 99), unique=True, max_size=5).map(sorted), st.data())
def test_a_journal_with_any_one_byte_changed_keeps_only_what_is_before_it(owner, steps, data):
    lines = ("step,val/e", *(f"{step},0.5" for step in steps))
    old = b"".join(map(encode_line, lines))
    text = old if owner is None else JournalText(lines, tuple(steps), 0).encode(owner)
    first = text.index(b"\n") + 1 if owner else 0
    assert decode_journal(text).owner == owner
    at = data.draw(st.integers(0, len(text) - 1))
    new = data.draw(st.integers(0, 255).filter(lambda byte: byte != text[at]))
    kept = decode_journal(text[:at] + bytes([new]) + text[at + 1 :])
    num_before = text.count(b"\n", first, at) if at >= first else 0
    assert list(kept.steps) == steps[: max(0, num_before - 1)]


def test_a_row_of_another_journal_is_no_row_here():
    lines = ("step,val/e", "0,0.5", "10,0.25")
    mine, other = (JournalText(lines, (0, 10), 0).encode(f"d/m/o/8/{trial} abc") for trial in (1, 2))
    assert decode_journal(mine).steps == (0, 10)
    mixed = mine.splitlines(keepends=True)[:3] + other.splitlines(keepends=True)[3:]
    assert decode_journal(b"".join(mixed)).steps == (0,)
    assert decode_journal(other).owner == "d/m/o/8/2 abc"


def test_a_line_of_a_hundred_million_characters_is_refused_with_a_message():
    table = parse_measurements(b"step,val/e\n0,1\n1," + b"9" * 100_000_000 + b"\n")
    assert table.steps == [0]
    assert [(fault.line, fault.rule) for fault in table.faults] == [(3, "long-line")]
    assert len(str(table.faults[0])) < 200
