import polars as pl
import pytest
from made_records import GOAL

from batchscale.errors import AnalysisError, SpecError, UnknownNameError
from batchscale.figures.goals import common_goal, published_goal
from batchscale.figures.kinds import KINDS, FigureRequest, find_kind
from batchscale.figures.theme import LIGHT
from batchscale.spec import Budget, Goal, Unit, WorkloadName


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_specification_is_valid_and_every_panel_has_points(name, curve_records):
    few = curve_records.filter(batch_size=[16, 64])
    budgets = (Budget(2000, Unit.STEPS), Budget(4000, Unit.STEPS)) if name == "budget" else ()
    kind = KINDS[name]
    frame = kind.data(FigureRequest(few, (GOAL,), budgets=budgets))
    drawn = frame.group_by("panel").agg(pl.col("note").is_null().any())
    assert not drawn.is_empty() and drawn["note"].all(), drawn
    kind.plot(frame, LIGHT).to_dict()  # Altair checks the specification against the schema of Vega-Lite


def test_the_goal_is_the_recorded_one_or_the_papers(curve_records):
    assert common_goal(curve_records) == GOAL
    assert published_goal(WorkloadName("lm1b", "lstm", "nesterov_momentum")) == Goal("val/cross_entropy_error", 3.9)
    assert published_goal(WorkloadName("no", "such", "sgd")) is None


def test_workloads_without_a_common_goal_ask_for_one(synthetic):
    with pytest.raises(AnalysisError, match="Give it as --goal"):
        common_goal(synthetic)


def test_a_map_takes_one_budget_only(curve_records):
    budgets = (Budget(1, Unit.STEPS), Budget(2, Unit.STEPS))
    with pytest.raises(SpecError, match="one budget"):
        KINDS["map"].data(FigureRequest(curve_records, (GOAL,), budgets=budgets))


def test_an_unknown_kind_lists_near_names():
    with pytest.raises(UnknownNameError, match="did you mean 'training'"):
        find_kind("trainin")
