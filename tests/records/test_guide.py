"""The code blocks of the guide run, in the order in which a user has records: write, then read."""

import re
from pathlib import Path

from batchscale.records.rules import RULES

GUIDE = Path(__file__).parents[2] / "docs" / "records.md"


def test_the_examples_of_the_guide_work(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    reading, writing = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    exec(writing, {})
    exec(reading, {})
    assert "mnist" in capsys.readouterr().out


def test_the_guide_lists_every_rule():
    listed = dict(re.findall(r"^\| `([a-z0-9-]+)`(?: \*)? \| (.*) \|$", GUIDE.read_text(), re.MULTILINE))
    assert listed == dict(RULES)
