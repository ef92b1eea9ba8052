"""The attack table of docs/web.md names tests that exist, and its limits are the ones that hold."""

import re
from pathlib import Path

import pytest

from batchscale.web.settings import Limits

HERE = Path(__file__).parent
PAGE = (HERE.parents[1] / "docs" / "web.md").read_text(encoding="utf-8")
FILES = [path for folder in (HERE, HERE.parent / "instruments") for path in folder.glob("test_*.py")]
TESTS = {path.name: path.read_text(encoding="utf-8") for path in FILES}
NAMED = sorted(set(re.findall(r"`(test_[a-z_0-9]+)`", PAGE)))


@pytest.mark.parametrize("name", NAMED)
def test_every_named_test_exists(name):
    assert any(f"def {name}(" in text for text in TESTS.values())


def test_the_files_that_the_table_names_exist():
    assert set(re.findall(r"\((test_[a-z_]+\.py)", PAGE)) <= set(TESTS)


def test_every_attack_of_the_files_of_attacks_is_in_the_table():
    for file in ("test_slow_requests.py", "test_more_attacks.py"):
        attacks = set(re.findall(r"^def (test_[a-z_0-9]+)\(", TESTS[file], re.MULTILINE))
        assert attacks - set(NAMED) <= {"test_the_server_still_answers", "test_another_port_in_the_host_is_refused"}


def test_the_limits_of_the_table_are_those_of_the_code():
    limits = Limits()
    for words in (
        f"{limits.body_bytes // 1024} KiB", f"{limits.body_fields} fields", f"{limits.upload_bytes // 10**6} MB a file",
        f"{limits.upload_files} files", f"{limits.upload_total_bytes // 10**9} GB an instrument",
        f"{limits.uploads} a minute", f"{limits.actions} actions a minute", f"{limits.checks} checks",
    ):  # fmt: skip
        assert words in PAGE, words
