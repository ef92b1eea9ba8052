"""Texts that would cost the parsers of the standard library far more than their size are refused at once."""

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import RecordsError, SpecError
from batchscale.records.model import parse_trial
from batchscale.spec.file import parse_experiment
from batchscale.spec.untrusted_text import parse_json, parse_toml

ROOT = Path(__file__).parents[2]
HOSTILE = {
    "dotted key": ".".join("a" * 60_000) + " = 1",
    "dotted quoted key": ".".join(['"a"'] * 30_000) + " = 1",
    "table": "[" + ".".join("a" * 60_000) + "]",
    "list of tables": "[[" + ".".join("a" * 60_000) + "]]",
    "inline table": "x = {" + ".".join("a" * 60_000) + " = 1}",
    "arrays": "x = " + "[" * 50_000 + "]" * 50_000,
    "inline tables": "x = " + "{a = " * 5_000 + "1" + "}" * 5_000,
    "dots behind a string": 'x = "a" # "\n' + ".".join("a" * 60_000) + " = 1",
    "dots behind blanks": " . ".join("a" * 60_000) + " = 1",
    "long": "# " + "x" * 1_000_000,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_hostile_toml_is_refused_before_it_is_parsed(text, monkeypatch):
    monkeypatch.setattr(tomllib, "loads", lambda _: pytest.fail("parsed"))
    with pytest.raises(SpecError, match=r"must have at most|must be nested at most"):
        parse_experiment(text)


@pytest.mark.parametrize("command", [("validate",), ("run", "--out", "x"), ("plan", "curve.csv", "--machines")])
def test_commands_refuse_it_with_a_sentence(tmp_path, command):
    (tmp_path / "x.toml").write_text(HOSTILE["dotted key"][:20_000] + " = 1")
    (tmp_path / "curve.csv").write_text("batch_size,steps\n8,1000\n32,300\n128,120\n")
    words = [str(tmp_path / word) if word in ("x", "curve.csv") else word for word in command]
    where = [*words, str(tmp_path / "x.toml")] if command[0] != "run" else ["run", str(tmp_path / "x.toml"), *words[1:]]
    error = CliRunner().invoke(make_app(), where).exception
    assert "a key must have at most 16 parts. Found more in line 1" in str(error)
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "text", ['"""\\' + '"""\\' * 100_000, "'''" * 100_001, '"' * 200_001, "[" * 30 + '"' * 100_000]
)
def test_unclosed_strings_take_no_longer_than_their_length(text):
    with pytest.raises(ValueError):
        parse_toml(text)


def test_every_experiment_file_of_ours_is_parsed_as_before():
    files = [*ROOT.glob("examples/**/*.toml"), *ROOT.glob("src/**/*.toml"), ROOT / "pyproject.toml"]
    assert len(files) > 5
    for file in files:
        assert parse_toml(file.read_text()) == tomllib.loads(file.read_text())


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=60), st.text("abc.'[]{}#,=\n", max_size=80))
def test_dots_and_brackets_in_values_do_not_count(numbers, text):
    toml = f"x = {numbers!r}\ny = {json.dumps(text)}\nz = '''\n{text.replace(chr(39), '')}'''\n"
    assert parse_toml(toml) == tomllib.loads(toml)


@pytest.mark.parametrize("deep", ["[" * 100_000, "[" * 900 + "]" * 900, '{"a":' * 500 + "1" + "}" * 500])
def test_deep_json_is_refused(deep):
    with pytest.raises(ValueError, match="nested at most 100 deep"):
        parse_json(deep)
    with pytest.raises(RecordsError, match=r"x: the file is not valid JSON"):
        parse_trial(f'{{"trial_id": 1, "status": "COMPLETE", "steps": 1, "parameters": {{}}, "extra": {deep}}}', "x")


def test_wide_json_is_parsed():
    wide = [{"a": [1, 2]}] * 1000
    assert parse_json(json.dumps(wide)) == wide
