import json

import pytest
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import BatchscaleError, SpecError

runner = CliRunner()
EXPERIMENT = """
goal = "val/classification_error < 0.1"
batch_sizes = [1, 64, "full"]
trials = 10
[workload]
dataset = "digits"
model = "fc_64"
optimizer = "nesterov_momentum"
[budget]
epochs = 2
"""


@pytest.fixture
def validate(tmp_path):
    def run(text, *options):
        path = tmp_path / "experiment.toml"
        path.write_text(text)
        return runner.invoke(make_app(), ["validate", str(path), *options])

    return run


def test_the_plan_is_a_table_with_its_cost(validate):
    answer = validate(EXPERIMENT)
    assert answer.exit_code == 0, answer.exception
    lines = answer.stdout.splitlines()
    assert "workload  digits/fc_64/nesterov_momentum" in lines
    total = next(line for line in lines if "total" in line).split()
    assert total[1] == "30"


def test_json_says_the_same_and_the_numbers_add_up(validate):
    plan = json.loads(validate(EXPERIMENT, "--json").stdout)
    assert [study["batch_size"] for study in plan["studies"]][:2] == [1, 64]
    assert plan["trials"] == 30
    assert plan["trial_steps"] == sum(10 * study["train_steps"] for study in plan["studies"])
    assert plan["studies"][0]["train_steps"] == 2 * plan["studies"][2]["batch_size"]
    assert set(plan["studies"][0]["parameter_configs"]) == {"learning_rate", "momentum"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("digits", "digit", "digits"),
        ("fc_64", "fcc_64", "fcc_64"),
        ("nesterov_momentum", "nesterov", "nesterov_momentum"),
        ("classification_error", "clasification_error", "val/classification_error"),
        ("[1, 64", "[1, 6400", "must not exceed the training set"),
        ("epochs = 2", "epochs = 0", "greater than 0"),
    ],
)
def test_what_cannot_be_run_is_refused_and_the_right_name_suggested(validate, old, new, message):
    answer = validate(EXPERIMENT.replace(old, new))
    assert isinstance(answer.exception, BatchscaleError)
    assert message in str(answer.exception)
    assert "\n" not in str(answer.exception)
    assert answer.stdout == ""


def test_a_mistake_that_only_the_workload_shows_names_the_file(validate):
    answer = validate(EXPERIMENT.replace("[1, 64", "[1, 6400"))
    assert isinstance(answer.exception, SpecError)
    assert "experiment.toml" in str(answer.exception)


def test_it_says_what_the_data_is_where_it_is_and_what_the_records_take(validate):
    plan = json.loads(validate(EXPERIMENT, "--json").stdout)
    assert (plan["version"], plan["num_train_examples"], plan["num_outputs"]) == (
        1,
        plan["studies"][2]["batch_size"],
        10,
    )
    assert (plan["data_present"], plan["run_time_s"]) == (True, None)
    assert plan["records_bytes"] > sum(160 * study["trials"] * study["measurements"] for study in plan["studies"])
    shown = validate(EXPERIMENT).stdout
    assert f"training  {plan['num_train_examples']:,} examples, 10 outputs of the model (classes)" in shown
    assert f"data      {plan['data']}" in shown


def test_missing_data_is_said_with_how_to_get_it(validate, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "no_cache"))
    monkeypatch.delenv("BATCHSCALE_DATA", raising=False)
    text = EXPERIMENT.replace("digits", "mnist").replace('"full"', "128")
    assert json.loads(validate(text, "--json").stdout)["data_present"] is False
    shown = validate(text).stdout
    assert "data      missing: " in shown and "batchscale data get mnist" in shown


def test_on_request_steps_are_timed_and_the_run_is_their_sum(validate):
    plan = json.loads(validate(EXPERIMENT.replace(', 64, "full"', ", 64"), "--time", "--json").stdout)
    each = [
        s["trials"] * (s["train_steps"] * s["step_time_s"] + s["measurements"] * plan["evaluation_time_s"])
        for s in plan["studies"]
    ]
    assert min(each) > 0
    assert plan["run_time_s"] == pytest.approx(sum(each) / plan["workers"], rel=1e-9)  # the same floats, summed
