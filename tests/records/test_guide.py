"""The code blocks of the guide run, in the order in which a user has records: write, then read."""

import dataclasses
import re
from pathlib import Path

from batchscale.records.metadata.study import EdgeEnd, SearchMetadata, StudyMetadata, StudyResult, TrainerMetadata
from batchscale.records.metadata.trial import Hardware, Timing, TrialMetadata
from batchscale.records.rules import RULES

GUIDE = Path(__file__).parents[2] / "docs" / "records.md"


def test_the_examples_of_the_guide_work(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    reading, writing = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    exec(writing, {})
    exec(reading, {})
    assert "mnist" in capsys.readouterr().out


def test_the_guide_lists_every_rule():
    checking = GUIDE.read_text().partition("## Check records")[2]
    listed = dict(re.findall(r"^\| `([a-z0-9-]+)`(?: \*)? \| (.*) \|$", checking, re.MULTILINE))
    assert listed == dict(RULES)


def test_the_guide_lists_every_key():
    files = GUIDE.read_text().partition("## The files")[2].partition("## Read records")[0]
    listed = set(re.findall(r"`([a-z0-9_]+)`", files))
    kinds = (StudyMetadata, TrialMetadata, Timing, Hardware, SearchMetadata, StudyResult, TrainerMetadata, EdgeEnd)
    fields = [field for kind in kinds for field in dataclasses.fields(kind)]
    keys = {field.metadata.get("json_key", field.name) for field in fields} - {"other"}
    assert keys <= listed
