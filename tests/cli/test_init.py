from dataclasses import replace

import pytest
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import SpecError, UnknownNameError
from batchscale.figures.selection import published_goal
from batchscale.spec.durations import EvaluationPlan
from batchscale.spec.experiment import DEFAULT_BUDGET
from batchscale.spec.file import parse_experiment, read_experiment
from batchscale.spec.plan import make_plan
from batchscale.workloads.published import MORE_WORKLOADS, PAPER_WORKLOADS
from batchscale.workloads.registry import workload_info

runner = CliRunner()


def test_the_written_file_is_an_experiment(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = runner.invoke(make_app(), ["init", "mine"])
    assert answer.exit_code == 0
    assert read_experiment(tmp_path / "mine.toml").workload.name.dataset == "digits"
    assert "batchscale validate mine.toml" in answer.output


def test_every_commented_key_of_the_file_is_valid_and_shows_its_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner.invoke(make_app(), ["init"])
    text = (tmp_path / "experiment.toml").read_text()
    keys = ("# seed", "# examples =", "# algorithm", "# paired", "# edge_margin", "# repeats")
    shown = "\n".join(line[2:] if line.startswith(keys) else line for line in text.splitlines())
    assert shown != text.rstrip("\n")
    given = parse_experiment(shown)
    default = parse_experiment(text)
    assert replace(given, text=default.text) == default
    assert given.evaluation.examples == EvaluationPlan().examples
    assert DEFAULT_BUDGET.unit == given.budget.unit


@pytest.mark.parametrize("name", ["experiment", "experiment.toml"])
def test_nothing_is_overwritten(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "experiment.toml").write_text("mine")
    assert isinstance(runner.invoke(make_app(), ["init", name]).exception, SpecError)
    assert (tmp_path / "experiment.toml").read_text() == "mine"


def test_a_folder_that_is_not_there_is_a_clear_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = runner.invoke(make_app(), ["init", "nowhere/x"])
    assert isinstance(answer.exception, SpecError)
    assert "cannot be written" in str(answer.exception)


def init(tmp_path, workload):
    path = tmp_path / "mine.toml"
    answer = runner.invoke(make_app(), ["init", str(path), "--workload", workload])
    if answer.exception is not None:
        raise answer.exception
    return read_experiment(path)


@pytest.mark.parametrize("name", [*PAPER_WORKLOADS, *MORE_WORKLOADS, "digits/fc_64/adam"])
def test_every_workload_has_a_file_with_its_own_defaults(tmp_path, name):
    experiment = init(tmp_path, name)
    facts = workload_info(experiment.workload)
    plan = make_plan(experiment, facts)
    assert str(experiment.workload.name) == name
    assert experiment.goal == (published_goal(experiment.workload.name) or experiment.goal)
    for study in plan.studies:
        default = facts.default_space(study.train_steps)
        assert study.space.names == default.names
        for config in study.space:
            for end in ("min_value", "max_value"):  # twelve digits are written
                assert getattr(config, end) == pytest.approx(getattr(default[config.name], end), rel=1e-11, nan_ok=True)
            assert (config.type, config.scale, config.feasible_points) == (
                default[config.name].type,
                default[config.name].scale,
                default[config.name].feasible_points,
            )


def test_a_budget_is_several_times_what_the_paper_needed(tmp_path):
    plan = make_plan(
        experiment := init(tmp_path, "cifar_10/resnet_8/nesterov_momentum"), workload_info(experiment.workload)
    )
    assert str(experiment.goal) == "val/classification_error < 0.3"
    assert experiment.workload.schedule == "linear"
    assert [study.batch_size for study in plan.studies][-2:] == [4096, 8192]
    assert plan.studies[0].train_steps * plan.studies[0].batch_size >= 4 * 2.1e5
    assert plan.studies[-1].train_steps >= 4 * 752


def test_a_workload_of_unknown_parts_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(UnknownNameError, match="digits"):
        init(tmp_path, "digit/fc_64/sgd")
    assert not list(tmp_path.iterdir())


@pytest.mark.timeout(300)
def test_a_file_for_a_script_goes_through_check_and_run_as_it_is(tmp_path, monkeypatch):
    """The path of a newcomer: init, trainer check, run, each as the one before says."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "scripts").mkdir()
    answer = runner.invoke(make_app(), ["init", "mine", "--trainer", "scripts/train.py"])
    assert answer.exit_code == 0 and "mine.toml and scripts/train.py" in answer.output
    assert "Next: batchscale trainer check mine.toml" in answer.output
    (tmp_path / "mine.toml").write_text((tmp_path / "mine.toml").read_text().replace("[4, 16, 64]", "[16]"))
    answer = runner.invoke(make_app(), ["trainer", "check", "mine.toml"])
    assert answer.exit_code == 0, answer.output
    assert "resumes   from step" in answer.stdout and "uninterrupted one, exactly" in answer.stdout
    for stage in ("Starting the script", "measured at step", "after a save and an exit", "without interruption"):
        assert stage in answer.stderr
    answer = runner.invoke(make_app(), ["run", "mine.toml", "--out", "runs", "--quiet"])
    assert answer.exit_code == 0, answer.output
    assert answer.stdout.splitlines()[-1].startswith("16,")


def test_check_of_a_file_without_a_script_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    runner.invoke(make_app(), ["init", "mine"])
    error = runner.invoke(make_app(), ["trainer", "check", "mine.toml"]).exception
    assert isinstance(error, SpecError) and "batchscale init NAME --trainer train.py" in str(error)


def test_an_existing_script_stays_and_both_kinds_of_file_are_not_mixed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("mine")
    assert runner.invoke(make_app(), ["init", "one", "--trainer", "train.py"]).exit_code == 0
    assert (tmp_path / "train.py").read_text() == "mine"
    both = ["init", "two", "--trainer", "train.py", "--workload", "mnist/fc/sgd"]
    assert isinstance(runner.invoke(make_app(), both).exception, SpecError)
    assert not (tmp_path / "two.toml").exists()
