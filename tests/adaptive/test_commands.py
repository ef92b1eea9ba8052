"""Every command that reads an experiment file or its records, on an adaptive one."""

import json
from pathlib import Path

import pytest
from adaptive_fakes import adaptive_plan, run_adaptive
from typer.testing import CliRunner

from batchscale.cli.app import make_app

FILE = """
workload = "digits/fc_64/sgd"
goal = "val/classification_error < 0.1"
batch_sizes = "auto"
trials = "auto"

[adaptive]
factor = 3
max_trial_steps = 100_000
"""


def invoke(*words):
    answer = CliRunner().invoke(make_app(), [str(word) for word in words])
    assert answer.exit_code == 0, answer.output
    return answer.output


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("adaptive")
    run_adaptive(root, adaptive_plan(factor=6.0))
    return root


def test_validate_shows_the_aim_and_the_sizes_to_choose_from(tmp_path):
    file = tmp_path / "experiment.toml"
    file.write_text(FILE)
    text = invoke("validate", file)
    assert "aim       the critical batch size within a factor of 3, at most 100,000 trial-steps" in text
    assert "The run chooses from these batch sizes" in text
    data = json.loads(invoke("validate", file, "--json"))
    assert data["adaptive"]["factor"] == 3
    assert [study["batch_size"] for study in data["studies"]] == [2**power for power in range(11)]


def test_status_summary_and_report_show_every_round_with_its_reason(tree, tmp_path):
    rounds = json.loads(invoke("summary", tree, "--json"))["choices"]
    assert [each["round"] for each in rounds] == list(range(1, len(rounds) + 1))
    assert rounds[-1]["kind"] == "stop"
    invoke("report", tree, "--out", tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    for text in (invoke("status", tree), invoke("summary", tree), page.replace("&#39;", "'")):
        for each in rounds:
            assert each["reason"] in text
    assert "Why these batch sizes" in page
    assert json.loads(invoke("status", tree, "--json"))["choices"][0].startswith("round 1: start with")


def test_the_analysis_of_the_records_states_the_interval_that_ended_the_run(tree):
    rounds = json.loads(invoke("summary", tree, "--json"))["choices"]
    answer = json.loads(invoke("analyze", tree, "--json"))
    text = json.dumps(answer)
    assert rounds[-1]["low"] is not None
    assert str(rounds[-1]["low"])[:6] in text


def test_a_table_made_of_the_records_has_the_rounds_too(tree, tmp_path):
    invoke("import", tree, "--out", tmp_path / "table")
    of_tree, of_table = (
        json.loads(invoke("summary", path, "--json"))["choices"] for path in (tree, tmp_path / "table")
    )
    assert of_table == of_tree


def test_the_form_of_the_web_writes_auto_and_its_check_accepts_it():
    from batchscale.spec.untrusted_text import parse_toml
    from batchscale.web.experiment_check import try_text
    from batchscale.web.experiment_form import default_form, form_of, form_toml

    text = form_toml(default_form() | {"batch_sizes": "auto", "trials": "auto", "finishers": "4"})
    checked = try_text(text)
    assert not checked.problem
    assert len(checked.batch_sizes) > 5
    assert form_of(parse_toml(text))["batch_sizes"] == "auto"
    assert form_of(parse_toml(FILE))["trials"] == "auto"
