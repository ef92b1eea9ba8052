"""Tables within a width: nothing is lost, numbers stay whole, wide terminals see what they always saw."""

import re
import threading

import pytest

from batchscale.cli.output import Stages, available_width, lay_out, print_table

COLUMNS = ("batch size", "steps", "trial examples", "notes")
ROWS = (
    ("8", "1,234", "9,872", "at edge: learning_rate high; 2 searches"),
    ("4,096", "56", "229,376", ""),
)
RIGHT = frozenset((0, 1, 2))


@pytest.mark.parametrize("width", [*range(12, 90, 3), None])
def test_lines_fit_the_width_and_every_word_is_there(width):
    header, lines = lay_out(COLUMNS, ROWS, RIGHT, width)
    text = "\n".join([*header, *lines])
    longest = max(map(len, text.splitlines()))
    if width is not None:
        # in a block a name and one word stand side by side at the least: "trial examples  learning_rate"
        assert longest <= max(width, len("trial examples  learning_rate"))
    for row in ROWS:
        for cell in row:
            for word in cell.split():
                assert word in text
    for name in COLUMNS:
        assert all(word in text for word in name.split())


def test_a_wide_table_is_one_line_a_row():
    header, lines = lay_out(COLUMNS, ROWS, RIGHT, 200)
    assert (len(header), len(lines)) == (1, 2)
    assert lay_out(COLUMNS, ROWS, RIGHT, None) == (header, lines)


def test_a_middling_table_wraps_its_header_and_its_notes():
    header, lines = lay_out(COLUMNS, ROWS, RIGHT, 40)
    assert len(header) == 2
    assert len(lines) > 2
    assert lines[0].startswith("    8  1,234")


def test_a_pipe_has_no_bound_unless_columns_says_so(monkeypatch, capsys):
    monkeypatch.delenv("COLUMNS", raising=False)
    assert available_width() is None
    for nonsense in ("", "0", "-3", "wide"):
        monkeypatch.setenv("COLUMNS", nonsense)
        assert available_width() is None
    monkeypatch.setenv("COLUMNS", "30")
    print_table(COLUMNS, ROWS, RIGHT)
    found = capsys.readouterr().out
    assert max(map(len, found.splitlines())) <= 30
    assert not re.search(r"\x1b", found)


def test_a_short_command_prints_no_stage(capsys):
    with Stages(silent_s=60) as stages:
        stages.enter("drawing")
    assert capsys.readouterr().err == ""


def test_a_long_command_prints_its_stage_to_standard_error(capsys):
    with Stages(silent_s=0.01, every_s=0.01) as stages:
        stages.enter("drawing 24 panels")
        threading.Event().wait(0.5)
    output = capsys.readouterr()
    assert "drawing 24 panels …" in output.err and output.out == ""
