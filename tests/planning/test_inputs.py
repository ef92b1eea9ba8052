"""Reading curves, runs, step times and machines: what is taken, and what is refused with which words."""

import json
from datetime import date, timedelta
from pathlib import Path

import pytest

from batchscale.errors import PlanningError, UnknownNameError
from batchscale.planning.assemble import trial_seconds
from batchscale.planning.curve import CurvePoint, PlanCurve, add_batch_sizes
from batchscale.planning.machines import (
    Machine,
    choose_machines,
    machines_toml,
    read_machines,
    read_price_list,
    stale_sentence,
)
from batchscale.planning.plan import make_plan
from batchscale.planning.plan_json import plan_json
from batchscale.planning.read_curve import read_analysis_json, read_curve_csv, with_give_up
from batchscale.planning.runs import give_up_at, read_runs, runs_curve
from batchscale.planning.sentences import plan_sentences
from batchscale.planning.step_times import StepTime, read_step_times, records_step_times
from batchscale.records.read import read_records
from batchscale.spec.workload_name import WorkloadName

MNIST = Path(__file__).parents[2] / "examples" / "mnist_fc_records"

MACHINE = """
[[machine]]
name = "a"
device = "T4"
devices_per_host = 2
price_per_host_hour = 0.5
price_per_device_hour = 0.35
unit = "USD"
"""


def write(folder, name, text):
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_a_curve_with_attempts(tmp_path):
    text = "batch_size,steps,attempts,successes,give_up\n8,100,4,3,500\n16,60,3,3,\n32,,2,0,400\n"
    curve = read_curve_csv(write(tmp_path, "c.csv", text))
    assert [(p.batch_size, p.steps, p.attempts, p.successes) for p in curve.points] == [(8, 100, 4, 3), (16, 60, 3, 3)]
    assert curve.unreached == ("batch size 32 never reached the goal",)


def test_one_row_per_run_is_pooled_over_machines(tmp_path):
    text = "batch_size,steps,reached,give_up\n8,100,true,200\n8,120,true,200\n8,200,false,200\n"
    (point,) = runs_curve(read_runs(write(tmp_path, "r.csv", text))).points
    assert (point.steps, point.attempts, point.successes, point.give_up) == (110, 3, 2, 200)
    assert point.low < 110 < point.high


def test_a_run_given_up_earlier_fails_and_one_that_ended_earlier_says_nothing(tmp_path):
    text = "batch_size,steps,reached\n8,100,true\n8,150,true\n8,90,false\n8,300,false\n"
    runs = give_up_at(read_runs(write(tmp_path, "r.csv", text)).runs, 120)
    assert [(run.steps, run.reached) for run in runs] == [(100, True), (120, False), (120, False)]


def test_the_json_of_an_analysis(tmp_path):
    rows = [
        {"batch_size": 8, "steps": 100, "steps_low": 90, "steps_high": None, "metaparameters": {"learning_rate": 0.1}},
        {"batch_size": 16, "steps": None, "steps_low": None, "steps_high": None},
    ]
    data = {"workload": "d/m/o", "goal": "val/loss < 1", "curve": rows}
    curve = read_analysis_json(write(tmp_path, "a.json", json.dumps(data)))
    assert curve.points == (CurvePoint(8, 100.0, 90, None, metaparameters="learning_rate 0.1"),)
    assert (curve.workload, curve.goal) == ("d/m/o", "val/loss < 1")


def test_step_times_of_our_own_records():
    records = read_records(MNIST)
    name = WorkloadName("mnist", "fc_128_128_128", "sgd")
    times = records_step_times(records, name)
    assert [one.batch_size for one in times] == sorted(one.batch_size for one in times)
    assert all(one.low <= one.step_time_s <= one.high and one.workload == str(name) for one in times)
    assert trial_seconds(records, name) > 0


def test_a_machine_priced_apart_counts_both(tmp_path):
    (machine,) = read_machines(write(tmp_path, "m.toml", MACHINE))
    assert machine.price_per_host_hour == pytest.approx(0.5 + 2 * 0.35)


def test_machines_are_written_as_they_are_read(tmp_path):
    machines = (
        Machine("a b", "T4", 1, 3, 0.5, "USD", 1.0, 60.0, 32, "r1", True, 0.05, 'page "x"', date(2026, 1, 2)),
        Machine("c", "V100", 8, 1, 3.25, "USD"),
    )
    assert read_machines(write(tmp_path, "m.toml", machines_toml(machines))) == machines


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("0.5", "0"), "price_per_host_hour"),
        (("0.5", "-1.0"), "greater than 0"),
        (("0.5", "nan"), "price_per_host_hour"),
        (("price_per_host_hour = 0.5\nprice_per_device_hour = 0.35\n", ""), "no price is ever guessed"),
        (("devices_per_host", "devices_per_hosts"), "unknown key 'devices_per_hosts'; did you mean 'devices_per_host'"),
        (('unit = "USD"', ""), "key 'unit' is needed"),
        (("= 2", '= "2"'), "devices_per_host"),
        (('"USD"', '"USD"\ninterruptions_per_hour = 0.1'), "spot = true"),
        (("[[machine]]", "[[machines]]"), "unknown key 'machines'"),
        (("[[machine]]", "[machine"), "TOML"),
    ],
)
def test_bad_machines_are_refused(tmp_path, change, words):
    with pytest.raises(PlanningError, match=r"m.toml") as caught:
        read_machines(write(tmp_path, "m.toml", MACHINE.replace(*change)))
    assert words in str(caught.value)


def test_two_machines_of_one_name_are_refused(tmp_path):
    with pytest.raises(PlanningError, match="'a' more than once"):
        read_machines(write(tmp_path, "m.toml", MACHINE + MACHINE))


def test_unknown_machines_and_devices_name_the_nearest():
    machines = read_price_list()
    with pytest.raises(UnknownNameError, match=r"did you mean 'aws g4dn.xlarge'"):
        choose_machines(machines, ["aws g4dn.xlarg"], [])
    with pytest.raises(UnknownNameError, match="no machine has 'H900'"):
        choose_machines(machines, [], ["H900"])
    assert {machine.device for machine in choose_machines(machines, [], ["Tesla T4"])} == {"NVIDIA T4"}


def test_the_shipped_prices_say_where_they_are_from_and_are_flagged_when_old():
    machines = read_price_list()
    assert len(machines) >= 25
    for machine in machines:
        assert machine.price_per_host_hour > 0 and machine.unit == "USD" and machine.region
        assert machine.source and machine.date is not None
    newest = max(machine.date for machine in machines)
    assert stale_sentence(machines, newest + timedelta(days=90)) is None
    count = len(machines)
    assert f"older than 90 days {count} of {count}" in stale_sentence(machines, newest + timedelta(days=91))
    undated = (Machine("a", "D", 1, 1, 1.0, "USD"), machines[0])
    assert "them: without a date 1 of 2." in stale_sentence(undated, newest)  # not said to be old


def test_units_are_not_mixed():
    machines = [Machine("a", "D", 1, 1, 1.0, "USD"), Machine("b", "D", 1, 1, 1.0, "EUR")]
    with pytest.raises(PlanningError, match=r"one unit. Found EUR, USD"):
        make_plan(PlanCurve((CurvePoint(8, 10),)), [StepTime("D", 1, 1, 8, 0.1)], machines)


def test_step_times_of_another_workload_are_refused():
    curve = PlanCurve((CurvePoint(8, 10),), workload="mnist/fc_1024/sgd")
    times = [StepTime("D", 1, 1, 8, 0.1, workload="mnist/simple_cnn/sgd")]
    with pytest.raises(PlanningError, match=r"same workload. Found step times of mnist/simple_cnn/sgd"):
        make_plan(curve, times, [Machine("a", "D", 1, 1, 1.0, "USD")])


def test_a_curve_that_never_reaches_the_goal_is_refused(tmp_path):
    with pytest.raises(PlanningError, match=r"Found none .*batch size 8 never reached"):
        read_curve_csv(write(tmp_path, "c.csv", "batch_size,steps\n8,\n"))


def test_a_machine_without_step_times_is_said():
    with pytest.raises(PlanningError, match="no step time of V100 was measured"):
        make_plan(
            PlanCurve((CurvePoint(8, 10),)), [StepTime("T4", 1, 1, 8, 0.1)], [Machine("a", "V100", 1, 1, 1.0, "USD")]
        )


def test_memory_and_examples_bound_the_configurations():
    times = [StepTime("D", 1, 1, 8, 0.1), StepTime("D", 1, 1, 64, 0.2)]
    machine = Machine("a", "D", 1, 1, 1.0, "USD", max_batch_per_device=32)
    plan = make_plan(PlanCurve((CurvePoint(8, 100), CurvePoint(64, 50))), times, [machine])
    assert plan.table["batch_size"].to_list() == [8]
    assert any("32 examples that a device's memory holds" in text for text in plan.left_out)


def test_failures_without_a_step_to_give_up_at_are_refused():
    curve = PlanCurve((CurvePoint(8, 10, attempts=3, successes=2),))
    with pytest.raises(PlanningError, match=r"no step to give up at; add the column give_up \(or --give-up\)"):
        make_plan(curve, [StepTime("D", 1, 1, 8, 0.1)], [Machine("a", "D", 1, 1, 1.0, "USD")])


def test_giving_up_inside_an_interval_needs_the_runs():
    curve = PlanCurve((CurvePoint(8, 100, 80, 130), CurvePoint(16, 50, 40, 60)))
    assert [point.batch_size for point in with_give_up(curve, 70).points] == [16]
    with pytest.raises(PlanningError, match="counted from runs"):
        with_give_up(curve, 100)


def test_batch_sizes_between_are_read_off_in_logarithms_and_marked():
    curve = add_batch_sizes(PlanCurve((CurvePoint(8, 100.0), CurvePoint(32, 25.0))), [16])
    assert curve.points[1].steps == pytest.approx(50) and curve.points[1].interpolated
    with pytest.raises(PlanningError, match=r"never beyond them. Found 64"):
        add_batch_sizes(curve, [64])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("device,hosts\nT4,1\n", "Missing: devices_per_host"),
        ("device,hosts,devices_per_host,batch_size,step_time_s\nT4,1,1,8,0\n", "positive number. Found '0'"),
        ("device,hosts,devices_per_host,batch_size,step_time_s\nT4,1,1,8,nan\n", "positive number"),
        ("device,hosts,devices_per_host,batch_size,step_time_s\nT4,1,1.5,8,1\n", "whole number. Found '1.5'"),
        ("device,hosts,devices_per_host,batch_size,step_time_s\nT4,1,1,8\n", "a row has 5 cells. Found 4"),
        ("device,hosts,devices_per_host,batch_size,step_time_s\n", "at least one row"),
        (
            "device,hosts,devices_per_host,batch_size,step_time_s,step_time_low_s\nT4,1,1,8,1,2\n",
            "lies between step_time_low_s and step_time_high_s",
        ),
    ],
)
def test_bad_step_times_are_refused_with_their_line(tmp_path, text, words):
    with pytest.raises(PlanningError, match=r"t\.csv") as caught:
        read_step_times(write(tmp_path, "t.csv", text))
    assert words in str(caught.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00", b"a\x00b", b'batch_size,steps\n"8,1\n'])
def test_files_that_are_no_csv_are_refused(tmp_path, content):
    path = tmp_path / "c.csv"
    path.write_bytes(content)
    with pytest.raises(PlanningError, match=r"c\.csv"):
        read_curve_csv(path)


def test_a_plan_names_the_batch_size_of_fewest_examples():
    sizes = [2**i for i in range(10)]
    curve = PlanCurve(tuple(CurvePoint(size, 1e4 / size * (1 + size / 64 + 8 / size)) for size in sizes))
    times = [StepTime("D", 1, 1, size, 0.01 + 0.001 * size) for size in sizes]
    plan = make_plan(curve, times, [Machine("a", "D", 1, 1, 1.0, "USD")])
    assert plan_json(plan)["b_opt"] == pytest.approx((64 * 8) ** 0.5, rel=0.02)
    assert any(text.startswith("Fewest examples by the fitted curve: at batch size") for text in plan_sentences(plan))
