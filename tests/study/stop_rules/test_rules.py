"""The rules that are there, and what all of them promise."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchscale.spec.experiment import StopRule
from batchscale.study import stop_rules
from batchscale.study.knowledge import Knowledge
from batchscale.study.needs import Need
from batchscale.study.stop_rules import find_rule

# a machine busy with other tests is slow at anything
SETTINGS = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
STEPS = (0, 10, 20, 30, 40)
goal_steps = st.lists(st.sampled_from((*STEPS, 2**62)), max_size=8)


def test_an_experiment_file_may_name_every_rule_that_has_a_file():
    files = {path.stem for path in Path(stop_rules.__file__).parent.glob("*.py")} - {"__init__", "rule"}
    assert files == set(StopRule)


def test_only_a_budget_is_always_used_up():
    assert [name for name in StopRule if not find_rule(name).stops_early] == [StopRule.BUDGET]
    assert [name for name in StopRule if not find_rule(name).hangs_on_goals] == [StopRule.BUDGET]
    assert [name for name in StopRule if find_rule(name).uses_finishers] == [StopRule.RACE]


@pytest.mark.parametrize("name", StopRule)
@SETTINGS
@given(reached=goal_steps, more=goal_steps, finishers=st.integers(1, 4))
def test_more_goal_steps_never_end_a_search_later(name, reached, more, finishers):
    finish = find_rule(name).finish
    fewer, all_of_them = sorted(reached), sorted([*reached, *more])
    assert finish(all_of_them, STEPS[-1], finishers) <= finish(fewer, STEPS[-1], finishers) <= STEPS[-1]


@pytest.mark.parametrize("name", StopRule)
@SETTINGS
@given(known=st.lists(st.sampled_from((-1, *STEPS[:-1])), min_size=1, max_size=6), data=st.data())
def test_whatever_is_trained_first_every_need_comes_up(name, known, data):
    points = [Knowledge(step) for step in known]
    rounds = 0
    while needs := [Need(i, STEPS[-1]) for i, point in enumerate(points) if point.step < STEPS[-1]]:
        busy = data.draw(st.sets(st.sampled_from(range(len(points))), max_size=len(points) - 1))
        for need in list(find_rule(name).order(needs, points, STEPS, busy)):
            assert need.point not in busy
            assert points[need.point].step < need.until <= STEPS[-1]
            assert need.until in STEPS
            points[need.point].step = need.until
        rounds += 1
        assert rounds < 1000
