"""What must hold of every plan, whatever is put in."""

import functools
import time

import hypothesis.strategies as st
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings

from batchscale.planning.curve import CurvePoint, PlanCurve
from batchscale.planning.evaluation import RunCosts
from batchscale.planning.machines import Machine
from batchscale.planning.plan import PlanRequest, fit_models, make_plan
from batchscale.planning.recommend import recommend
from batchscale.planning.step_form import Form
from batchscale.planning.step_model import layout_of
from batchscale.planning.step_times import StepTime

PLACES = [(1, 1, 8), (1, 1, 32), (1, 1, 128), (1, 2, 64), (1, 4, 256), (2, 4, 256), (4, 4, 512), (2, 2, 32)]


def step_times(device="D", scale=1.0):
    form = Form(("sync_within", "sync_between"))
    exact = [StepTime(device, h, d, b, 1.0) for h, d, b in PLACES]
    times = scale * form.times(np.log([0.05, 0.002, 0.03, 0.09]), layout_of(exact))
    rows = zip(PLACES, times.tolist(), strict=True)
    return [StepTime(device, h, d, b, t, t * 0.97, t * 1.04) for (h, d, b), t in rows]


TIMES = [*step_times("D"), *step_times("E", 0.4)]


@functools.cache
def models():
    return fit_models(TIMES)


def planned(curve, machines):
    return make_plan(curve, TIMES, machines, models=models())


points = st.builds(
    lambda size, steps, down, up, failed, ok: CurvePoint(
        size, steps, steps * down, steps * up, ok + failed, ok, 3 * steps
    ),
    st.sampled_from([8, 16, 32, 64, 128, 256]),
    st.floats(10, 1e6),
    st.floats(0.5, 1),
    st.floats(1, 2),
    st.integers(0, 3),
    st.integers(1, 3),
)
curves = st.lists(points, min_size=1, max_size=5, unique_by=lambda point: point.batch_size).map(
    lambda found: PlanCurve(tuple(found))
)
machine_lists = st.lists(
    st.builds(
        Machine,
        name=st.text("abcdef", min_size=3, max_size=6),
        device=st.sampled_from(["D", "E"]),
        devices_per_host=st.sampled_from([1, 2, 4]),
        max_hosts=st.integers(1, 4),
        price_per_host_hour=st.floats(0.01, 100),
        unit=st.just("EUR"),
        fixed_price=st.floats(0, 5),
        startup_s=st.floats(0, 600),
        spot=st.just(True),
        interruptions_per_hour=st.floats(0, 0.5),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda machine: machine.name,
)
KEYS = ["machine", "hosts", "batch_size"]


@settings(max_examples=60, deadline=None)
@given(curves, machine_lists)
def test_intervals_contain_their_middle_and_units_are_carried_through(curve, machines):
    table = planned(curve, machines).table
    for name, suffix in (("time", "_s"), ("cost", ""), ("expected_time", "_s"), ("expected_cost", "")):
        middle = pl.col(f"{name}{suffix}")
        inside = (pl.col(f"{name}_low{suffix}") <= middle * (1 + 1e-9)) & (
            middle <= pl.col(f"{name}_high{suffix}") * (1 + 1e-9)
        )
        assert table.select(inside.all()).item()
    assert table["unit"].unique().to_list() == ["EUR"]
    assert (table["expected_time_s"] >= table["time_s"] * (1 - 1e-12)).all()
    assert (table["expected_cost"] >= table["cost"] * (1 - 1e-12)).all()


@settings(max_examples=60, deadline=None)
@given(curves, machine_lists)
def test_the_front_is_what_nothing_dominates(curve, machines):
    table = planned(curve, machines).table
    rows = table.select("expected_time_s", "expected_cost", "on_front").rows()
    for time_s, cost, on_front in rows:
        dominated = any(t <= time_s and c <= cost and (t < time_s or c < cost) for t, c, _ in rows)
        if on_front:
            assert not dominated
        else:  # dominated, or as good as one that is on the front
            assert dominated or (time_s, cost, True) in rows


@settings(max_examples=40, deadline=None)
@given(curves, machine_lists, st.integers(0, 3), st.floats(0.1, 0.99))
def test_a_cheaper_price_never_makes_a_configuration_worse(curve, machines, which, factor):
    changed = [
        Machine(**{**vars(machine), "price_per_host_hour": machine.price_per_host_hour * factor})
        if i == which % len(machines)
        else machine
        for i, machine in enumerate(machines)
    ]
    before, after = (planned(curve, some).table for some in (machines, changed))
    joined = before.join(after, on=KEYS, suffix="_after")
    assert joined.height == before.height
    assert (joined["expected_cost_after"] <= joined["expected_cost"] * (1 + 1e-12)).all()
    assert (joined["expected_time_s_after"] == joined["expected_time_s"]).all()


@settings(max_examples=40, deadline=None)
@given(curves, machine_lists)
def test_a_deadline_that_only_the_fastest_meets_returns_the_fastest(curve, machines):
    plan = planned(curve, machines)
    fastest = plan.recommendations.fastest["expected_time_s"]
    answer = recommend(plan.table, deadline_s=fastest).within_deadline
    assert answer["expected_time_s"] == fastest
    assert recommend(plan.table, deadline_s=fastest * 0.999).within_deadline is None


@settings(max_examples=40, deadline=None)
@given(curves, machine_lists, st.floats(1, 20))
def test_a_budget_is_kept_and_nothing_faster_fits_it(curve, machines, factor):
    plan = planned(curve, machines)
    budget = plan.recommendations.cheapest["expected_cost"] * factor
    answer = recommend(plan.table, budget=budget).within_budget
    assert answer["expected_cost"] <= budget
    within = plan.table.filter(pl.col("expected_cost") <= budget)
    assert answer["expected_time_s"] == within["expected_time_s"].min()


def test_the_price_margin_is_where_the_cheapest_changes():
    machines = [Machine("a", "D", 1, 1, 1.0, "USD"), Machine("b", "E", 1, 1, 4.0, "USD")]
    curve = PlanCurve((CurvePoint(32, 1000),))
    margin = planned(curve, machines).recommendations.price_margin
    cheapest = planned(curve, machines).recommendations.cheapest["machine"]
    index = [machine.name for machine in machines].index(cheapest)
    for factor, wins in ((margin.rise * 0.999, True), (margin.rise * 1.001, False)):
        moved = list(machines)
        moved[index] = Machine(
            **{**vars(moved[index]), "price_per_host_hour": moved[index].price_per_host_hour * factor}
        )
        assert (planned(curve, moved).recommendations.cheapest["machine"] == cheapest) is wins


def test_failed_runs_are_paid_for_in_closed_form():
    """p = 2/5: 1.5 failed runs of 400 steps before one of 100; start-up 10 s each; 0.114 s a step."""
    times = [StepTime("D", 1, 1, 32, 0.114)]
    machine = Machine("m", "D", 1, 1, 36.0, "USD", fixed_price=2.0, startup_s=10.0)
    curve = PlanCurve((CurvePoint(32, 100, attempts=5, successes=2, give_up=400),))
    row = make_plan(curve, times, [machine]).table.row(0, named=True)
    assert row["time_s"] == pytest.approx(10 + 11.4)
    assert row["expected_time_s"] == pytest.approx(21.4 + 1.5 * (10 + 45.6))
    assert row["expected_cost"] == pytest.approx(row["expected_time_s"] * 0.01 + 2.5 * 2)


def test_evaluations_and_interruptions_stretch_a_run_in_closed_form():
    times = [StepTime("D", 1, 1, 32, 0.1)]
    machine = Machine("m", "D", 1, 1, 1.0, "USD", startup_s=70.0, spot=True, interruptions_per_hour=3.6)
    curve = PlanCurve((CurvePoint(32, 1000),))
    costs = RunCosts(evaluation_s=2.0, evaluate_every=100)
    row = make_plan(curve, times, [machine], PlanRequest(costs=costs)).table.row(0, named=True)
    # 0.001 interruptions a second, each losing 70 + 30 s: a tenth of the time is lost
    assert row["time_s"] == pytest.approx((70 + 100 + 20) / 0.9)


def test_ten_thousand_configurations_take_less_than_a_second():
    machines = [Machine(f"m{i}", "D", 4, 160, 1.0 + i, "USD") for i in range(10)]
    curve = PlanCurve(tuple(CurvePoint(2**k, 1e6 / 2**k + 100, 90, 2e6, 3, 2, 4e6) for k in range(9, 17)))
    make_plan(curve, TIMES, machines[:1])  # imports and the first fit
    began = time.process_time()
    plan = make_plan(curve, TIMES, machines)
    took = time.process_time() - began
    assert plan.table.height >= 10_000
    assert took < 1.0
