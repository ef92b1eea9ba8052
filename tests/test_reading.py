"""The source stays readable: the figures of scripts/reading_figures.py within the limits that we agreed on."""

from pathlib import Path

import pytest
import reading_figures

ROOT = Path(__file__).parents[1]
FILES = sorted((ROOT / "src" / "batchscale").rglob("*.py"))


def test_docstrings_state_and_do_not_ask():
    assert reading_figures.question_share(FILES) < 0.03


def test_local_names_describe_their_values():
    assert reading_figures.odd_name_share(FILES) < 0.015


def test_the_glossary_is_short():
    assert reading_figures.count_glossary_rows(ROOT) <= 50


def test_imports_have_no_cycle_and_few_small_modules_have_one_user():
    imports = reading_figures.read_imports(ROOT / "src")
    assert reading_figures.import_depth(imports) <= 28
    assert reading_figures.count_fragments(ROOT / "src", imports) <= 30


def test_shares_are_counted(tmp_path):
    file = tmp_path / "a.py"
    file.write_text('"""What it is."""\n\ndef f():\n    """Return one."""\n    found = number = 1\n    return number\n')
    assert reading_figures.question_share([file]) == pytest.approx(1 / 2)
    assert reading_figures.odd_name_share([file]) == pytest.approx(1 / 2)


def test_a_deferred_import_through_a_package_counts_as_one_of_the_module(tmp_path):
    package = tmp_path / "batchscale" / "part"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("if TYPE_CHECKING:\n    from batchscale.part.deep import name as name\n")
    (package / "deep.py").write_text("name = 1\n")
    (package.parent / "user.py").write_text("def f():\n    from batchscale.part import name\n")
    imports = reading_figures.read_imports(tmp_path)
    assert imports["batchscale.user"] == {"batchscale.part.deep"}
    assert reading_figures.import_depth(imports) == 2
    assert reading_figures.count_fragments(tmp_path, imports) == 1
