"""The plan at a glance: figures, one sentence and rows agree with the recommendations they are made of."""

import re
from pathlib import Path

import pytest

from batchscale.formatting import duration
from batchscale.planning.answer import make_plan_answer, plan_tags, recommendation
from batchscale.planning.assemble import assemble_plan, read_inputs
from batchscale.planning.plan import PlanRequest
from batchscale.planning.sentences import cost_text

RUNS = Path(__file__).parents[2] / "examples" / "ddsp_training_runs.csv"


def plan_of(budget: float | None = None, deadline_h: float | None = None):
    deadline_s = None if deadline_h is None else 3600 * deadline_h
    return assemble_plan(read_inputs(RUNS), PlanRequest(budget, deadline_s))


def test_every_pick_has_its_tag_on_exactly_one_row():
    plan = plan_of(budget=30, deadline_h=5)
    tags = [tag for row in make_plan_answer(plan).rows for tag in row.tags]
    assert len(tags) == len(set(tags))
    assert {"fastest", "cheapest", "fastest on NVIDIA T4", "best within budget", "best within deadline"} <= set(tags)
    assert plan_tags(plan, plan.recommendations.fastest)[0] == "fastest"


def test_a_pick_is_a_row_however_few_rows_there_are():
    rows = make_plan_answer(plan_of(budget=30), most_rows=1).rows
    assert {"fastest", "cheapest", "best within budget"} <= {tag for row in rows for tag in row.tags}


def test_figures_are_those_of_the_recommendations():
    plan = plan_of(budget=30, deadline_h=5)
    best = plan.recommendations
    values = {figure.label: figure.value for figure in make_plan_answer(plan).figures}
    assert values == {
        "Fastest": duration(best.fastest["expected_time_s"]),
        "Cheapest": cost_text(best.cheapest["expected_cost"], plan.unit),
        "Fastest within 30.0 ML units": duration(best.within_budget["expected_time_s"]),
        "Cheapest within 5:00 h": cost_text(best.within_deadline["expected_cost"], plan.unit),
    }


@pytest.mark.parametrize("budget", [None, 10.0, 20.0, 30.0, 50.0, 500.0])
@pytest.mark.parametrize("deadline_h", [None, 1.0, 4.0, 9.0, 20.0])
def test_the_sentence_recommends_nothing_beyond_the_limits(budget, deadline_h):
    plan = plan_of(budget, deadline_h)
    text = recommendation(plan)
    within = plan.table
    if budget is not None:
        within = within.filter(within["expected_cost"] <= budget)
    if deadline_h is not None:
        within = within.filter(within["expected_time_s"] <= 3600 * deadline_h)
    assert text.startswith("No configuration" if within.is_empty() else "Train on "), (text, within.height)
    if not within.is_empty():
        time = re.search(r": (.*? h) and ", text)[1]
        allowed = {duration(seconds) for seconds in within["expected_time_s"]}
        assert time in allowed
