"""The code blocks of the guide run on the synthetic table."""

import re
from pathlib import Path

import pytest

from batchscale.records.rules import STORAGE_RULES

from .conftest import Synthetic

GUIDE = Path(__file__).parents[3] / "docs" / "archive.md"


def test_the_examples_of_the_guide_work(
    synthetic: Synthetic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "science").symlink_to(synthetic.table)
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(block, {})
    assert "WorkloadName(dataset='cifar_10'" in capsys.readouterr().out


def test_the_guide_lists_every_rule_of_storage() -> None:
    listed = dict(re.findall(r"^\| `([a-z]+-[a-z]+)` \| (.*) \|$", GUIDE.read_text(), re.MULTILINE))
    assert listed == dict(STORAGE_RULES)
