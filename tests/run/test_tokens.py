"""An experiment in tokens makes the records of the same experiment in examples, and is continued like it."""

import json
from dataclasses import replace

import pytest
from study_fakes import FAKE_ENGINE, fake_experiment, fake_facts, read_studies, read_values

from batchscale.errors import RunError
from batchscale.run.session import RunSettings, run_plan
from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.durations import Budget, EvaluationPlan, Unit
from batchscale.spec.plan import make_plan
from batchscale.spec.untrusted_text import parse_toml
from batchscale.web.experiment_form import default_form, form_of, form_toml

FACTS = replace(fake_facts(), tokens_per_example=512)


def run(folder, facts=FACTS, **changes):
    values = {
        "batch_sizes": BatchSizes.parse(["512 tokens", "4k tokens"]),
        "budget": Budget(1600 * 512, Unit.TOKENS),
        "evaluation": EvaluationPlan(count=20),
        "trials": 3,
    }
    plan = make_plan(fake_experiment(**(values | changes)), facts)
    run_plan(plan, folder, RunSettings("inline", engine=FAKE_ENGINE))


def test_records_in_tokens_are_those_in_examples(tmp_path):
    run(tmp_path / "tokens")
    plain = {"batch_sizes": BatchSizes((1, 8)), "budget": Budget(1600, Unit.EXAMPLES)}
    run(tmp_path / "examples", replace(FACTS, tokens_per_example=None), **plain)
    assert read_values(tmp_path / "tokens") == read_values(tmp_path / "examples")
    studies, others = read_studies(tmp_path / "tokens"), read_studies(tmp_path / "examples")
    assert {size: study["train_steps"] for size, study in studies.items()} == {1: 1600, 8: 200}
    assert {study["batchscale"].pop("tokens_per_example") for study in studies.values()} == {512}
    for study in (*studies.values(), *others.values()):
        del study["batchscale"]["metadata_sha256"]
    assert studies == others


def test_a_run_in_tokens_is_extended_and_refuses_another_number_of_tokens(tmp_path):
    run(tmp_path)
    before = read_values(tmp_path)
    run(tmp_path, trials=4)
    assert len(read_values(tmp_path)) == len(before) + 2
    stored = json.loads((tmp_path / ".batchscale/experiment.json").read_text())
    assert stored["experiment"]["batch_sizes"] == [1, 8]  # in tokens or not, it is the same experiment
    run(tmp_path, batch_sizes=BatchSizes((1, 8)), trials=4)
    with pytest.raises(RunError, match=r"tokens_per_example must be that of the records, 512. Found 256"):
        run(tmp_path, replace(FACTS, tokens_per_example=256), trials=4, batch_sizes=BatchSizes((1, 8)))


def test_the_form_of_the_web_writes_and_reads_tokens():
    form = default_form() | {"batch_sizes": "16k tokens, 64k tokens", "budget": "20e6", "budget_unit": "tokens"}
    data = parse_toml(form_toml(form))
    assert data["batch_sizes"] == ["16k tokens", "64k tokens"] and data["budget"]["tokens"] == 20e6
    again = form_of(data)
    assert (again["batch_sizes"], again["budget_unit"]) == ("16k tokens, 64k tokens", "tokens")
