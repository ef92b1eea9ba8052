"""The page of the GPT study says what its records say, and its experiment files are those that were run."""

import importlib.util
from pathlib import Path

import pytest
from page_tables import assert_on_page, read_tables

from batchscale import read
from batchscale.spec.file import parse_experiment

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "examples" / "gpt_study"
# Ends of intervals are quantiles of draws, and fits end where their last iteration leaves them.
TOLERANCES = {"B_opt, 90 % interval": 0.01, "critical batch size": 0.01}


@pytest.fixture(scope="module")
def page():
    spec = importlib.util.spec_from_file_location("gpt_study_page", STUDY / "page.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def answers(page):
    return page.read_answers()


def test_every_table_and_doubt_is_on_the_page(page, answers):
    text = page.PAGE.read_text(encoding="utf-8")
    tables = [page.answer_table(answers), page.token_table(answers), page.evidence_table(answers)]
    tables += [page.winner_table(arm, answer) for arm, answer in answers.items()]
    for table in tables:
        assert_on_page(read_tables("\n".join(table))[0], text, TOLERANCES)
    for line in page.doubt_list(answers):
        assert line in text


def test_the_files_are_those_of_the_records(page):
    assert {path.stem for path in STUDY.glob("*.toml")} == set(page.ARMS)
    for arm in page.ARMS:
        experiment = parse_experiment((STUDY / f"{arm}.toml").read_text(encoding="utf-8"))
        assert experiment.workload.dataset_options["sequence_length"] == page.TOKENS
        if (STUDY / "records" / arm).is_dir():
            for study in read(STUDY / "records" / arm).studies.to_dicts():
                assert parse_experiment(study["facts"]["experiment"]) == experiment


def test_a_page_without_its_marks_is_not_half_written(page, answers, tmp_path, monkeypatch):
    broken = tmp_path / "page.md"
    broken.write_text("<!-- answers, written by page.py -->\n<!-- end of answers -->\n")
    monkeypatch.setattr(page, "PAGE", broken)
    with pytest.raises(SystemExit, match="must have the marks <!-- evidence"):
        page.write_page(answers)
    assert broken.read_text() == "<!-- answers, written by page.py -->\n<!-- end of answers -->\n"


def test_the_figure_has_a_line_for_every_arm(page, answers):
    chart = page.draw(answers).to_dict()
    assert all(page.ARMS[arm] in str(chart) for arm in answers)
