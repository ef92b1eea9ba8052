"""Pages and parts of pages that are made from the code are as the code makes them now."""

import importlib
import inspect
import re
from pathlib import Path

import api_pages
import experiment_reference
import import_graph
import make_pages
import pytest

from batchscale.errors import SpecError
from batchscale.spec.file import parse_experiment
from batchscale.spec.tables import ExperimentTable

DOCS = Path(__file__).parents[2] / "docs"
RECORDS = sorted((DOCS / "decisions").glob("[0-9]*.md"))
PARTS = {"Superseded", "Context", "Tried", "Decision", "Consequence", "Measured"}


@pytest.fixture(scope="module")
def made():
    return make_pages.make_pages()


@pytest.mark.parametrize("page", ["experiment-file.md", "decisions/index.md", "architecture.md"])
def test_the_page_is_current(page, made):
    written = (DOCS / page).read_text(encoding="utf-8")
    assert written == made[DOCS / page], f"docs/{page} is not what the code makes now: run `make pages` and commit it"


def test_no_package_and_no_module_imports_itself_over_others():
    modules = import_graph.read_modules()
    assert import_graph.cycles(modules) == []
    assert import_graph.cycles(import_graph.to_packages(modules)) == []


def test_every_package_has_a_row_that_says_what_it_owns():
    table = (DOCS / "architecture.md").read_text(encoding="utf-8").partition("## Which package")[0]
    rows = re.findall(r"^\| (`.+`) \| .+ \|$", table, re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(named) == sorted(set(import_graph.to_packages(import_graph.read_modules())) - {"__main__"})


def test_every_key_of_the_experiment_file_is_described():
    page = (DOCS / "experiment-file.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## `?\[?([\w. ]+?)\]?`?\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))

    def check(table, section, prefix):
        for key, field in table.model_fields.items():
            inner = experiment_reference.inner_table(field.annotation)
            if inner is not None:
                name = f"{prefix}{key}"
                check(inner, sections[name], f"{name}.")
            else:
                row = re.search(rf"^\| `{key}` \| (.+) \| (.+) \| (.+) \|$", section, re.MULTILINE)
                assert row, f"{prefix}{key} is not on the page"
                assert row[3].endswith("."), f"{prefix}{key} has no description"

    check(ExperimentTable, sections["At the top"], "")


def test_only_keys_that_the_page_calls_required_are_required():
    page = (DOCS / "experiment-file.md").read_text(encoding="utf-8")
    required = re.findall(r"^\| `(\w+)` \| [^|]+ \| required \|", page.partition("## `[trainer]`")[0], re.MULTILINE)
    lines = {
        "goal": 'goal = "val/loss < 1"',
        "dataset": 'workload.dataset = "d"',
        "model": 'workload.model = "m"',
        "optimizer": 'workload.optimizer = "o"',
    }
    assert set(required) == {*lines, "half_life"}  # the last one of a table that itself may be left out
    parse_experiment("\n".join(lines.values()))
    for left_out in lines:
        with pytest.raises(SpecError, match=f"{left_out}' is required"):
            parse_experiment("\n".join(line for name, line in lines.items() if name != left_out))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.name[:4])
def test_a_decision_record_has_the_style_of_all(record):
    lines = record.read_text(encoding="utf-8").splitlines()
    assert re.fullmatch(rf"# {record.name[:4]} \S.*[^.]", lines[0]), "the heading is '# NNNN Title'"
    first = lines[4] if lines[2].startswith("**Superseded** by [") else lines[2]
    assert lines[1] == "" and first.startswith("**Context.**"), "after the heading an empty line, then **Context.**"
    parts = [match[1] for line in lines if (match := re.match(r"\*\*([^*]+?)\.?\*\*", line))]
    assert set(parts) <= PARTS, f"parts of a record are {sorted(PARTS)}"
    assert "Decision" in parts


def test_numbers_of_decisions_are_given_once():
    numbers = [record.name[:4] for record in RECORDS]
    assert len(set(numbers)) == len(numbers), "two records have the same number"


@pytest.mark.parametrize("package", api_pages.public_packages())
def test_every_public_name_exists_and_is_documented(package):
    names = api_pages.public_packages()[package]
    assert len(set(names)) == len(names)
    module = importlib.import_module(package)
    for name in names:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            assert inspect.getdoc(value), f"{package}.{name} has no docstring"
        where, _, last = api_pages.home(package, name).rpartition(".")
        if not inspect.ismodule(value):
            assert last in vars(importlib.import_module(where)), f"the page looks for {name} where it is not defined"
