import json
import subprocess
import sys

import polars as pl
import pytest
from made_records import GOAL, simulated

from batchscale.errors import AnalysisError, SpecError, UnknownNameError
from batchscale.figures import kinds
from batchscale.figures.kind import FigureRequest
from batchscale.figures.kinds import find_kind, kind_names
from batchscale.figures.selection import common_goal, published_goal
from batchscale.figures.theme import LIGHT
from batchscale.records.frames import Records
from batchscale.spec.durations import Budget, Unit
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

SHOWN = {
    "map": "one_minus_momentum",
    "space": "unit",
    "best-of-n": "median",
    "expected-steps": "median",
    "plan": "hours",
    "step-time": "step_time_s",
    "more-devices": "hours",
}
STEP_TIMES = "device,hosts,devices_per_host,batch_size,step_time_s\nD,1,1,16,0.01\nD,1,1,64,0.02\nD,2,1,64,0.015\n"
MACHINES = """[[machine]]
name = "m"
device = "D"
devices_per_host = 1
max_hosts = 2
price_per_host_hour = 1.0
unit = "USD"
"""


@pytest.mark.parametrize("name", kind_names())
def test_a_specification_is_valid_and_every_panel_has_points(name, curve_records, tmp_path):
    few = curve_records.filter(batch_size=[16, 64])
    budgets = (Budget(2000, Unit.STEPS), Budget(4000, Unit.STEPS)) if name == "budget" else ()
    machines, step_times = tmp_path / "machines.toml", tmp_path / "steps.csv"
    machines.write_text(MACHINES)
    step_times.write_text(STEP_TIMES)
    kind = find_kind(name)
    frame = kind.data(FigureRequest(few, (GOAL,), budgets=budgets, machines=machines, step_times=(step_times,)))
    points = frame.group_by("panel").agg(pl.col(SHOWN.get(name, "value")).is_not_null().sum().alias("points"))
    assert points["points"].min() >= 2, points
    spec = kind.plot(frame, LIGHT).to_dict()  # Altair checks the specification against the schema of Vega-Lite
    drawn = spec.get("concat", [spec])
    assert [" ".join(panel["title"]["text"]) for panel in drawn] == frame["panel"].unique(maintain_order=True).to_list()


def test_names_of_kinds_come_from_their_modules_and_need_no_charting_library():
    code = "import sys;from batchscale.figures.kinds import *; print(*kind_names()); assert 'altair' not in sys.modules"
    listed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert listed == sorted(listed) and {"curve", "label-smoothing", "best-of-n"} <= set(listed)
    for name in listed:
        assert find_kind(name).shows


def test_a_kind_is_added_by_writing_one_module(tmp_path, monkeypatch, curve_records):
    (tmp_path / "winners_only.py").write_text(
        "from batchscale.figures import FigureKind, Look, curve_frame, plot_curve\n"
        "KIND = FigureKind('winners', lambda r: curve_frame(r.counted, r.goal), plot_curve, Look())\n"
    )
    monkeypatch.setattr(kinds, "__path__", [*kinds.__path__, str(tmp_path)])
    assert "winners-only" in kind_names()
    frame = find_kind("winners-only").data(FigureRequest(curve_records, (GOAL,)))
    assert frame["steps"].drop_nulls().len() > 2


def test_empty_panels_become_one_sentence(curve_records):
    other = simulated((16,), workload=WorkloadName("other", "model", "sgd"), hardest=0.5)
    both = Records(
        pl.concat([curve_records.studies, other.studies]),
        pl.concat([curve_records.trials, other.trials]),
        {**curve_records.sources, **other.sources},
    )
    kind = find_kind("goals")
    spec = kind.plot(kind.data(FigureRequest(both, (GOAL,))), LIGHT).to_dict()
    assert len(spec["concat"]) == 1
    assert "Not drawn: model on other (sgd): none of the 10 trials reached" in spec["title"]["text"].replace(
        "SGD", "sgd"
    )


@pytest.mark.parametrize("name", ["best-of-n", "expected-steps", "map", "metaparameter"])
def test_what_was_counted_towards_a_goal_names_it(name, curve_records):
    kind = find_kind(name)
    words = "goal: validation classification error"
    for sizes, where in (([16], "title"), ([16, 64], "any")):
        spec = kind.plot(kind.data(FigureRequest(curve_records.filter(batch_size=sizes), (GOAL,))), LIGHT).to_dict()
        text = json.dumps(spec["title"] if where == "title" else spec)
        assert text.count(words) == 1 and "< 0.1" in text


def test_the_goal_is_the_recorded_one_or_the_papers(curve_records):
    assert common_goal(curve_records) == GOAL
    assert published_goal(WorkloadName("lm1b", "lstm", "nesterov_momentum")) == Goal("val/cross_entropy_error", 3.9)
    assert published_goal(WorkloadName("no", "such", "sgd")) is None


def test_workloads_without_a_common_goal_ask_for_one(synthetic):
    with pytest.raises(AnalysisError, match="Pass it as --goal"):
        common_goal(synthetic)


def test_a_map_takes_one_budget_only(curve_records):
    budgets = (Budget(1, Unit.STEPS), Budget(2, Unit.STEPS))
    with pytest.raises(SpecError, match="one budget"):
        find_kind("map").data(FigureRequest(curve_records, (GOAL,), budgets=budgets))


def test_an_unknown_kind_lists_near_names():
    with pytest.raises(UnknownNameError, match="did you mean 'training'"):
        find_kind("trainin")
