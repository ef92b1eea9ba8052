"""The decision of a plan as the aim of an experiment: the configurations of its files, whole runs, and refusals."""

import csv
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from adaptive_fakes import B_CRIT, adaptive_plan, run_adaptive
from study_fakes import read_studies, read_values

from batchscale.adaptive.configurations import read_configurations
from batchscale.cli.app import main
from batchscale.errors import PlanningError
from batchscale.planning.assemble import PlanInputs, assemble_plan
from batchscale.planning.curve import CurvePoint, PlanCurve
from batchscale.planning.machines import read_machines
from batchscale.planning.step_times import read_step_times
from batchscale.records.metadata.columns import stored_choices
from batchscale.records.tree.read import read_tree
from batchscale.spec.adaptive import Aim, ChoiceKind

MACHINES = """
[[machine]]
name = "one"
device = "T4"
devices_per_host = 1
max_hosts = 4
price_per_host_hour = 0.5
unit = "USD"
startup_s = 30
date = 2026-11-01

[[machine]]
name = "four, spot"
device = "T4"
devices_per_host = 4
max_hosts = 2
price_per_host_hour = 1.1
unit = "USD"
fixed_price = 0.02
spot = true
interruptions_per_hour = 0.2
startup_s = 90
date = 2026-11-01
"""


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A file of machines, and one of step times: 10 ms and 0.5 ms an example, and more devices wait for each other."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "machines.toml").write_text(MACHINES)
    with (folder / "times.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["device", "hosts", "devices_per_host", "batch_size", "step_time_s"])
        for hosts, devices in ((1, 1), (2, 1), (4, 1), (1, 4), (2, 4)):
            for share in (1, 4, 16, 64):
                all_devices = hosts * devices
                seconds = 0.01 + 0.0005 * share + (0.002 * all_devices if all_devices > 1 else 0.0)
                writer.writerow(["T4", hosts, devices, share * all_devices, seconds])
    return {"machines": folder / "machines.toml", "step_times": (folder / "times.csv",)}


def decision_plan(files, aim=Aim.FASTEST_CONFIGURATION, **changes):
    return adaptive_plan(aim=aim, factor=1.1, **(files | changes))


@pytest.mark.parametrize(
    ("aim", "column"),
    [(Aim.FASTEST_CONFIGURATION, "expected_time_s"), (Aim.CHEAPEST_CONFIGURATION, "expected_cost")],
)
def test_the_best_configuration_of_any_curve_is_that_of_the_plan(files, aim, column):
    """With any steps, the least of our lines is the least time or cost of `batchscale plan`."""
    plan = decision_plan(files, aim)
    question = read_configurations(plan)
    for b_crit, scale in ((4, 30), (32, 500), (300, 20_000)):
        steps = {study.batch_size: scale * (1 + b_crit / study.batch_size) for study in plan.studies}
        curve = PlanCurve(tuple(CurvePoint(size, value) for size, value in steps.items()))
        inputs = PlanInputs(
            curve,
            machines=read_machines(files["machines"]),
            step_times=read_step_times(files["step_times"][0]),
        )
        planned = assemble_plan(inputs).table.sort(column)
        best = min(question.configurations, key=lambda each, at=steps: each.fixed + each.per_step * at[each.batch_size])
        assert best.fixed + best.per_step * steps[best.batch_size] == pytest.approx(planned[column][0], rel=1e-9)
        assert best.batch_size == planned["batch_size"][0]
    assert len(question.configurations) < planned.height  # those that are never the best are left out


@pytest.fixture(scope="module")
def decided(files, tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("decided")
    run_adaptive(root, decision_plan(files))
    return root


def test_a_run_ends_with_a_decision_that_the_true_curve_confirms(files, decided):
    choices = stored_choices(read_tree(decided).studies)
    last = choices[-1]
    assert last.kind is ChoiceKind.STOP
    assert "no other may be faster by more than a factor of 1.1" in last.reason
    question = read_configurations(decision_plan(files))
    scale = _measured_scale(decided)

    def seconds(each):
        return each.fixed + each.per_step * scale * (1 + B_CRIT / each.batch_size)

    chosen = next(each for each in question.configurations if f"is {each}, about" in last.reason)
    assert seconds(chosen) <= 1.1 * min(map(seconds, question.configurations))
    assert chosen.batch_size in read_studies(decided)


def _measured_scale(root):
    """The steps to result of the fake engine are a number times 1 + B_CRIT/B."""
    from batchscale.analysis.curve_analysis import analyze

    records = read_tree(root)
    rows = analyze(records, records.workloads[0], adaptive_plan().experiment.goal).curve.select("batch_size", "steps")
    return sum(steps / (1 + B_CRIT / size) for size, steps in rows.rows()) / rows.height


def test_a_stopped_decision_continues_with_the_same_choices(files, decided, tmp_path):
    first = decision_plan(files, max_trial_steps=1)  # the first round always runs
    run_adaptive(tmp_path, first)
    assert "the budget of 1 trial-steps is spent" in stored_choices(read_tree(tmp_path).studies)[-1].reason
    run_adaptive(tmp_path, decision_plan(files))
    assert stored_choices(read_tree(tmp_path).studies)[-1].reason == (
        stored_choices(read_tree(decided).studies)[-1].reason
    )
    assert read_values(tmp_path) == read_values(decided)


def test_another_aim_continues_the_same_records(files, decided):
    before = read_values(decided)
    run_adaptive(decided, decision_plan(files, Aim.CHEAPEST_CONFIGURATION))
    assert before.items() <= read_values(decided).items()
    assert "the cheapest configuration is" in stored_choices(read_tree(decided).studies)[-1].reason


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("machines", "[[machine]]\nname = 3\n", "key 'name' should be a valid string"),
        ("machines", MACHINES.replace('"T4"', '"H100"'), "no step time of H100 was measured"),
        ("step_times", "device,hosts\nT4,1\n", "Missing: devices_per_host, batch_size, step_time_s"),
    ],
)
def test_files_that_decide_nothing_are_refused_before_anything_is_written(files, tmp_path, name, text, message):
    wrong = tmp_path / "wrong"
    wrong.write_text(text)
    plan = decision_plan(files, **{name: wrong if name == "machines" else (wrong,)})
    with pytest.raises(PlanningError) as error:
        run_adaptive(tmp_path / "out", plan)
    assert message in str(error.value)
    assert not (tmp_path / "out").exists()


def test_a_missing_file_is_one_paragraph_of_validate_and_run(tmp_path, monkeypatch, capsys):
    file = tmp_path / "experiment.toml"
    file.write_text(
        'workload = "digits/fc_64/sgd"\ngoal = "val/classification_error < 0.1"\nbatch_sizes = "auto"\n'
        'trials = "auto"\n[adaptive]\nquantity = "fastest_configuration"\nstep_times = "times.csv"\n'
    )
    for words in (["validate", file], ["run", file, "--out", tmp_path / "out"]):
        monkeypatch.setattr(sys, "argv", ["batchscale", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        assert end.value.code == 2
        assert "times.csv: a table of step times must be a CSV file. Found no file." in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_browser_may_not_name_these_files():
    from batchscale.web.experiment_check import try_text

    text = (
        'workload = "digits/fc_64/sgd"\ngoal = "val/classification_error < 0.1"\nbatch_sizes = "auto"\n'
        'trials = "auto"\n[adaptive]\nquantity = "fastest_configuration"\nwork = "/etc/passwd"\n'
    )
    assert "cannot come from a browser" in try_text(text).problem
    assert not try_text(text.replace("fastest_configuration", "fastest_batch_size").replace("work =", "#")).problem


def test_old_prices_are_reported_before_the_run(files, tmp_path):
    old = tmp_path / "machines.toml"
    old.write_text(MACHINES.replace("date = 2026-11-01", "date = 2020-01-01"))
    assert "Check the prices" in read_configurations(decision_plan(files, machines=old)).notices[0]


def test_validate_shows_the_decision_as_the_aim(files):
    plan = replace(decision_plan(files).experiment.adaptive, max_hours=2)
    assert str(plan).startswith("the fastest configuration within a factor of 1.1, at most 2 hours of training")
    assert plan.to_json()["step_times"] == [str(files["step_times"][0])]
