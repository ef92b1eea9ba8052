"""Plans as objects: those of ``batchscale plan``, from a curve, machines and step times."""

import json
import re
from pathlib import Path

import pytest

import batchscale as bs
from batchscale.errors import PlanningError
from batchscale.planning import Machine, StepTime

ROOT = Path(__file__).parents[2]
RUNS = ROOT / "examples" / "ddsp_training_runs.csv"
TIMES = [StepTime("T4", 1, 1, size, 0.01 + size / 4000) for size in (16, 64, 128)]
MACHINES = [Machine("mine", "T4", 1, 8, 0.5, "USD")]


@pytest.fixture(scope="module")
def plan() -> bs.TrainingPlan:
    curve = bs.fit({16: 12000, 32: 6100, 64: 3300, 128: 1900})
    return bs.plan(curve, MACHINES, step_times=TIMES, budget=1.0, deadline_s=3600)


def test_time_and_cost_are_steps_times_step_time_times_price(plan):
    row = plan.table.filter(hosts=1, batch_size=64).row(0, named=True)
    assert row["expected_time_s"] == pytest.approx(3300 * (0.01 + 64 / 4000))  # one host, a measured step time
    assert row["expected_cost"] == pytest.approx(row["expected_time_s"] / 3600 * 0.5)
    assert plan.cheapest["expected_cost"] == plan.table["expected_cost"].min()
    assert plan.fastest["expected_time_s"] == plan.table["expected_time_s"].min()
    assert plan.within_budget["expected_cost"] <= 1.0 and plan.within_deadline["expected_time_s"] <= 3600


def test_a_file_of_runs_is_a_plan_alone_with_the_published_choices():
    plan = bs.plan(RUNS)
    best = plan.machine_plan.by_device["NVIDIA T4"]
    assert (best.fastest["hosts"], best.fastest["batch_size"]) == (4, 128)  # the design document's
    assert (best.cheapest["hosts"], best.cheapest["batch_size"]) == (1, 16)
    assert len(plan.advice) <= 3 and plan.advice[0] in plan.summary.replace("Over all devices the", "The")


def test_its_forms(plan):
    assert repr(plan).splitlines()[0] == f"plan of {plan.table.height} configurations"
    assert json.dumps(plan.to_dict()) and plan.to_frame() is plan.table
    text = plan._repr_html_()
    assert text.count('class="value"') == 4 and "cheapest" in text
    assert not re.search(r"<script|https?://(?!www\.w3\.org)", text)
    assert "cost" in json.dumps(plan.plot("dark").to_dict())


def test_a_machines_file_and_a_file_of_step_times(tmp_path, plan):
    machines = '[[machine]]\nname = "mine"\ndevice = "T4"\ndevices_per_host = 1\nmax_hosts = 8\n'
    machines += 'price_per_host_hour = 0.5\nunit = "USD"\n'
    (tmp_path / "machines.toml").write_text(machines)
    lines = [f"T4,1,1,{time.batch_size},{time.step_time_s}" for time in TIMES]
    header = "device,hosts,devices_per_host,batch_size,step_time_s"
    (tmp_path / "times.csv").write_text("\n".join([header, *lines, ""]))
    curve = bs.fit({16: 12000, 32: 6100, 64: 3300, 128: 1900})
    again = bs.plan(curve, tmp_path / "machines.toml", step_times=str(tmp_path / "times.csv"))
    assert again.cheapest["expected_cost"] == pytest.approx(plan.cheapest["expected_cost"])


def test_what_a_plan_lacks_is_named():
    curve = bs.fit({16: 12000, 32: 6100, 64: 3300, 128: 1900})
    with pytest.raises(PlanningError, match="This curve has none; pass step_times="):
        bs.plan(curve, MACHINES)
    with pytest.raises(PlanningError, match="no price of AnyCPU; pass machines= with one"):
        bs.plan(curve, step_times=[StepTime("AnyCPU", 1, 1, size, 0.01) for size in (16, 128)])
    with pytest.raises(PlanningError, match="machines and step_times are paths, or lists"):
        bs.plan(curve, [7], step_times=TIMES)
    with pytest.raises(PlanningError, match="A plan is made of a curve"):
        bs.plan({16: 100}, MACHINES, step_times=TIMES)
