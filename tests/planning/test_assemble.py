"""One set of rules for plans of the command line, the report, figures and the web interface."""

from dataclasses import replace
from datetime import date

import pytest

from batchscale.errors import PlanningError
from batchscale.planning.assemble import PlanInputs, assemble_plan, usable_step_times
from batchscale.planning.curve import CurvePoint, PlanCurve
from batchscale.planning.machines import Machine, read_price_list
from batchscale.planning.plan import PlanRequest
from batchscale.planning.runs import FinishedRun, Runs, runs_curve, runs_step_times
from batchscale.planning.step_times import StepTime

CURVE = PlanCurve((CurvePoint(16, 1000), CurvePoint(64, 300)), "d/m/o")
RECORDED = (StepTime("T4", 1, 1, 16, 0.5), StepTime("T4", 1, 1, 64, 1.0))
BOX = Machine("box", "T4", 1, 1, 1.0, "USD", date=date(2026, 11, 1))
TODAY = date(2026, 11, 18)


def step_time(workload: str | None, seconds: float = 2.0) -> StepTime:
    return StepTime("T4", 1, 1, 16, seconds, workload=workload)


def test_passed_step_times_of_the_workload_win_over_recorded_ones():
    passed = (step_time("d/m/o"), step_time("other/m/o", 9.0), step_time(None, 3.0))
    assert usable_step_times(passed, RECORDED, "d/m/o") == (passed[0], passed[2])
    assert usable_step_times((), RECORDED, "d/m/o") == RECORDED
    assert usable_step_times((), (), "d/m/o") == ()


def test_step_times_of_other_workloads_alone_are_refused_and_not_replaced_by_recorded_ones():
    with pytest.raises(PlanningError, match="same workload"):
        usable_step_times((step_time("other/m/o"),), RECORDED, "d/m/o")
    with pytest.raises(PlanningError, match="must be of one workload"):
        usable_step_times((step_time("a/m/o"), step_time("b/m/o")), (), None)


def test_a_plan_without_step_times_names_the_option():
    with pytest.raises(PlanningError, match="--step-times FILE"):
        assemble_plan(PlanInputs(CURVE, machines=(BOX,)))


def test_a_machine_that_was_not_timed_is_counted_whatever_its_unit():
    euro = replace(BOX, name="other", device="V100", unit="EUR")
    plan = assemble_plan(PlanInputs(CURVE, RECORDED, machines=(BOX, euro)), today=TODAY)
    assert plan.unit == "USD" and plan.table["machine"].unique().to_list() == ["box"]
    assert plan.left_out == ("2 configurations: no step time of V100 was measured",)


def test_old_prices_are_in_the_notices_and_what_runs_paid_is_not():
    old = replace(BOX, date=date(2026, 1, 1))
    assert assemble_plan(PlanInputs(CURVE, RECORDED, machines=(BOX,)), today=TODAY).notices == ()
    (notice,) = assemble_plan(PlanInputs(CURVE, RECORDED, machines=(old,)), today=TODAY).notices
    assert "older than 90 days 1 of 1" in notice
    shipped = assemble_plan(PlanInputs(CURVE, RECORDED), today=date(2030, 1, 1))
    assert shipped.notices and set(shipped.table["machine"]) <= {machine.name for machine in read_price_list()}
    runs = Runs(tuple(FinishedRun(16, 1000.0, True, device="T4", seconds=500.0, cost=1.0) for _ in range(2)), "USD")
    inputs = PlanInputs(runs_curve(runs), runs_step_times(runs), runs, pool=True)
    assert assemble_plan(inputs, today=date(2030, 1, 1)).notices == ()


def test_two_machines_of_one_name_and_no_hosts_are_refused():
    with pytest.raises(PlanningError, match="name of its own"):
        assemble_plan(PlanInputs(CURVE, RECORDED, machines=(BOX, BOX)))
    with pytest.raises(PlanningError, match="--max-hosts must be at least 1"):
        assemble_plan(PlanInputs(CURVE, RECORDED, machines=(BOX,), max_hosts=0))


def test_runs_with_machines_are_planned_alone_unless_something_else_is_passed():
    runs = Runs(tuple(FinishedRun(16, 1000.0, True, device="T4", seconds=500.0, cost=1.0) for _ in range(2)), "USD")
    inputs = PlanInputs(runs_curve(runs), runs_step_times(runs), runs)
    assert assemble_plan(inputs).table["machine"].to_list() == ["T4 x1"]
    beside = replace(inputs, machines=(BOX,))
    assert assemble_plan(beside, PlanRequest(devices=("T4",)), TODAY).table["machine"].to_list() == ["box"]
