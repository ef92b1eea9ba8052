"""Charts of plans and step times: the frames hold the plan's numbers, the charts draw them."""

from pathlib import Path

import pytest

from batchscale.figures.export import chart_spec
from batchscale.figures.kind import FigureRequest
from batchscale.figures.kinds import find_kind
from batchscale.figures.kinds.plan import PLAN_CHART_SCHEMA, plan_frame, plot_plan
from batchscale.figures.kinds.step_time import STEP_TIME_CHART_SCHEMA, plot_step_time, step_time_frame
from batchscale.planning.plan import plan_from_runs
from batchscale.planning.runs import read_runs
from batchscale.records.read import read_records
from batchscale.spec.goal import Goal

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def plan():
    return plan_from_runs(read_runs(ROOT / "examples" / "ddsp_training_runs.csv"))


@pytest.fixture(scope="module")
def records():
    return read_records(ROOT / "examples" / "mnist_fc_records").filter(model="fc_128_128_128", optimizer="sgd")


def test_points_of_the_plan_are_its_configurations(plan):
    frame = plan_frame(plan)
    assert dict(frame.schema) == {name: kind() for name, kind in PLAN_CHART_SCHEMA.items()}
    assert frame.height == 8 and frame["on_front"].sum() == 4
    fastest = frame.row(0, named=True)
    assert fastest["hours"] == pytest.approx(11940 / 3600) and fastest["cost"] == pytest.approx(149.62)


def test_both_axes_of_the_plan_are_logarithmic_and_the_front_is_labelled(plan):
    spec = chart_spec(plot_plan(plan_frame(plan)))
    layers = spec["layer"]
    assert all(layer["encoding"]["x"]["scale"]["type"] == "log" for layer in layers)
    assert {layer["mark"]["type"] for layer in layers} >= {"line", "rule", "point", "text"}


def test_measured_and_modelled_step_times_stand_beside_each_other(plan):
    frame = step_time_frame(plan.models)
    assert dict(frame.schema) == {name: kind() for name, kind in STEP_TIME_CHART_SCHEMA.items()}
    measured = frame.drop_nulls("step_time_s").filter(panel="NVIDIA T4")
    assert measured.height == 8
    assert ((measured["model_s"] / measured["step_time_s"] - 1).abs() < 0.02).all()
    chart_spec(plot_step_time(frame))


def test_records_with_machines_are_planned(records, tmp_path):
    machines = tmp_path / "machines.toml"
    machines.write_text(
        '[[machine]]\nname = "a"\ndevice = "x86_64"\ndevices_per_host = 1\nprice_per_host_hour = 0.2\nunit = "EUR"\n'
    )
    goal = Goal.parse("val/classification_error < 0.03")
    frame = find_kind("plan").data(FigureRequest(records, (goal,), machines=machines))
    assert set(frame["batch_size"]) == set(records.studies["batch_size"]) and set(frame["unit"]) == {"EUR"}


def test_records_without_machines_say_missing_sentences(records):
    goal = Goal.parse("val/classification_error < 0.03")
    frame = find_kind("plan").data(FigureRequest(records, (goal,)))
    assert frame["note"].to_list() == ["a plan needs machines with prices: give --machines"]


def test_step_times_of_records(records):
    goal = Goal.parse("val/classification_error < 0.03")
    frame = find_kind("step-time").data(FigureRequest(records, (goal,)))
    assert set(frame["batch_size"].drop_nulls()) == set(records.studies["batch_size"])
