"""Hostile and torn reports: each line counts, is passed over, or is a fault in one sentence."""

import json
import math
import re
import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from batchscale.errors import SpecError
from batchscale.spec.goal import Goal
from batchscale.trainers.readers import (
    CsvReader,
    JsonLinesReader,
    LineTail,
    PatternReader,
    ProtocolReader,
    compile_pattern,
)
from batchscale.trainers.reports import Mark, ReportFault, ScriptReports, Stamp, describe_times
from batchscale.trainers.supervisor import match_segments

GOAL = Goal.parse("val/error < 0.2")


def report(*lines) -> ScriptReports:
    reports = ScriptReports(GOAL)
    reports.update(lines, now=1.0)
    return reports


def measurement(step, value=0.5, **rest):
    return {"step": step, "metrics": {"val/error": value}, **rest}


def read_all(path, text: str) -> ScriptReports:
    path.write_text(text)
    reports = ScriptReports(GOAL)
    reports.update(ProtocolReader(path).poll(), now=1.0)
    return reports


@pytest.mark.parametrize(
    "line",
    ['{"step": 10', "null", "[]", "NaN", '"x"', "\x01", "[" * 100_000, "1" * 5000, '{"a": {}}', '{"metrics": 3}'],
)
def test_lines_that_say_nothing_are_passed_over(tmp_path, line):
    text = "\n".join([json.dumps(measurement(10)), line, json.dumps(measurement(20)), ""])
    assert list(read_all(tmp_path / "reports.jsonl", text).rows) == [10, 20]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (measurement(-1), "whole number of steps"),
        (measurement(1.5), "whole number of steps"),
        (measurement(True), "whole number of steps"),
        (measurement(10**30), "whole number of steps"),
        (measurement(11, "low"), "must be a number"),
        (measurement(11, {}), "must be a number"),
        ({"step": 11, "metrics": {}}, "metrics by name"),
        ({"step": 11}, "metrics by name"),
        ({"step": 11, "metrics": {"error": 1.0}}, "split"),
        ({"step": 11, "metrics": {"val/los": 1.0}}, "goal's metric 'val/error'"),
        ({"saved": "x"}, "'saved' must be a whole number"),
        ({"diverged": None}, "'diverged' must be a whole number"),
        (measurement(9), "Steps must grow"),
    ],
)
def test_reports_that_break_a_rule_are_faults(line, words):
    with pytest.raises(ReportFault, match=words):
        report(measurement(10), line)


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf, 10**400])
def test_a_goal_metric_that_is_not_finite_is_divergence_at_its_step(value):
    reports = report(measurement(10), measurement(20, value), measurement(30))
    assert reports.diverged_at == 20 and list(reports.rows) == [10]


def test_the_same_step_again_replaces_what_was_said():
    assert report(measurement(10, 0.5), measurement(10, 0.4)).rows == {10: {"val/error": 0.4}}


def test_other_metrics_may_be_missing_or_null():
    reports = report({"step": 10, "metrics": {"val/error": 0.5, "train/loss": None}})
    assert math.isnan(reports.rows[10]["train/loss"])


@given(st.lists(st.binary(max_size=30), max_size=20), st.integers(1, 7))
def test_a_tail_gives_every_whole_line_once_however_it_is_written(tmp_path_factory, lines, size):
    path = tmp_path_factory.mktemp("tail") / "reports.jsonl"
    lines = [line.replace(b"\n", b"") for line in lines]
    data = b"".join(line + b"\n" for line in lines) + b"torn"
    tail, found = LineTail(path), []
    with path.open("wb", buffering=0) as file:
        for start in range(0, len(data), size):
            file.write(data[start : start + size])
            found += tail.poll()
    assert found == [line for line in lines if line.strip()]


# --- scripts that only print or write --------------------------------------------------------------------------------


def test_printed_lines_are_measurements_by_a_pattern(tmp_path):
    path = tmp_path / "printed.txt"
    path.write_text("[12:30]  step=10  (3.2 s) val/error=0.5\nstep=20 val/error=nan\n")
    reader = PatternReader(path, "step={step} {}val/error={val/error}")
    assert reader.poll()[0] == {"step": 10, "metrics": {"val/error": 0.5}}


def test_json_lines_are_put_together_by_step_and_renamed(tmp_path):
    path = tmp_path / "log.jsonl"
    names = {"global_step": "step", "eval_error": "val/error", "loss": "train/loss"}
    path.write_text(
        '{"global_step": 10, "loss": 2.0, "note": "x"}\n{"global_step": 10, "eval_error": 0.5}\n'
        '{"global_step": 20, "loss": 1.0}\n{"epoch": 1}\n'
    )
    found = JsonLinesReader(path, names, GOAL).poll()
    assert found == [{"step": 10, "metrics": {"train/loss": 2.0, "val/error": 0.5}}]


def test_a_table_that_is_written_anew_gives_each_measurement_once(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("step,val/error\n10,0.5\n20,0.4\n30,0")
    reader = CsvReader(path, {}, GOAL)
    assert [line["step"] for line in reader.poll()] == [10, 20]
    path.write_text("step,lr,val/error\n10,,0.5\n20,,0.4\n30,,0.3\n40,0.1,\n")
    assert reader.poll() == [{"step": 30, "metrics": {"val/error": 0.3}}]
    assert reader.poll() == []


OLD_NUMBER = r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?|nan|NaN|inf|Infinity)"


def match_with_backtracking(pattern: str, line: str) -> list[float] | None:
    """The same by one regular expression with gaps, which is right and may take forever."""
    parts = []
    for piece in re.split(r"(\{[^{}]*\}|\s+)", pattern):
        if piece.startswith("{"):
            parts.append(f"({OLD_NUMBER})" if piece != "{}" else ".*?")
        else:
            parts.append(r"\s+" if piece.isspace() else re.escape(piece))
    match = re.search("".join(parts), line)
    return None if match is None else [float(group) for group in match.groups()]


PATTERNS = (
    "step {step}: {} error={val/error}",
    "{} step={step} {} val/loss={val/loss} {}",
    "{step} {val/error}",
    "step {step}. error {val/error}",
    "[{step}/{}] {} {val/error}%",
    "{step}{}|{val/error}",
)
WORDS = ("step", "step=", "val/loss=", "error", "error=", *":|%/[].", " ", "  ", "12", "-0.5e3", "7.")


@given(st.sampled_from(PATTERNS), st.lists(st.sampled_from(WORDS), max_size=14))
@example(PATTERNS[0], ["step", " ", "12", ":", "  ", "error=", "7."])
@example(PATTERNS[3], ["step", " ", "12", ".", " ", "error", "  ", "-0.5e3"])
@example(PATTERNS[2], ["12", "-0.5e3", " ", "12"])
def test_a_pattern_matches_what_one_expression_with_gaps_matches(pattern, words):
    # whether a number may be cut is all they differ in
    line = re.sub(r"(?<=\d)(?=12|7)|(?<=[\d.])(?=-0)", "|", "".join(words))
    segments, _ = compile_pattern(pattern)
    groups = match_segments([re.compile(segment) for segment in segments], line)
    assert (None if groups is None else [float(group) for group in groups]) == match_with_backtracking(pattern, line)


@pytest.mark.parametrize(
    "line", ["x " * 32_000, " " * 64_000, "1" * 64_000, "1." * 32_000, "step=1 " * 9_000, "1e" * 32_000]
)
def test_no_printed_line_takes_long_to_match(line):
    """One expression with four gaps takes n**5 steps; hours for the first of these lines."""
    for pattern in ("{} {} {} {} step={step} x={val/x}", "{step} {} {} {val/x} {} y", " {step} {val/x}e"):
        segments = [re.compile(segment) for segment in compile_pattern(pattern)[0]]
        started = time.process_time()
        match_segments(segments, line)
        assert time.process_time() - started < 2  # milliseconds, on a machine of its own


@pytest.mark.parametrize("pattern", ["", "{step}", "{val/error}", "{step} {error}", "{step} {step} {val/error}"])
def test_a_pattern_without_step_or_metric_is_refused(pattern, tmp_path):
    with pytest.raises(SpecError, match=r"must have \{step\} once"):
        PatternReader(tmp_path / "x", pattern)


# --- times ---------------------------------------------------------------------------------------------


def test_step_time_is_that_of_steps_behind_the_first_measurement_and_without_pauses():
    stamps = [Stamp(10, 5.0), Stamp(20, 7.0), Stamp(30, 20.0), Stamp(40, 22.0)]
    times = describe_times(stamps, [Mark(0, 1.0), Mark(20, 18.0)], batch_size=4)
    assert times["warm_up_s"] == 4.0
    assert times["step_time_s"] == pytest.approx(6.0 / 30)
    assert times["examples_per_s"] == pytest.approx(30 * 4 / 6.0)


def test_a_script_that_tells_its_times_is_believed():
    stamps = [Stamp(10, 5.0, 1.0, 0.5), Stamp(20, 99.0, 3.0, 1.0)]
    times = describe_times(stamps, [Mark(0, 0.0)], batch_size=1)
    assert times["step_time_s"] == pytest.approx(0.2) and times["evaluation_s"] == pytest.approx(0.5)
