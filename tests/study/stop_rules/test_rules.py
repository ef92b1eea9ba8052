"""The stop rules, and the promises that all of them keep."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchscale.spec.experiment import StopRule
from batchscale.study import stop_rules
from batchscale.study.stop_rules.rule import find_rule
from batchscale.study.trial import TrialRequest, TrialSummary

# a machine running with other tests is slow at anything
SETTINGS = settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
STEPS = (0, 10, 20, 30, 40)
goal_steps = st.lists(st.sampled_from((*STEPS, 2**62)), max_size=8)


def test_an_experiment_file_may_name_every_rule_that_has_a_file():
    files = {path.stem for path in Path(stop_rules.__file__).parent.glob("*.py")} - {"__init__", "rule"}
    assert files == set(StopRule)


def test_only_a_budget_is_always_used_up():
    assert [name for name in StopRule if not find_rule(name).stops_early] == [StopRule.BUDGET]
    assert [name for name in StopRule if not find_rule(name).saves_at_goal] == [StopRule.BUDGET]
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
def test_whatever_is_trained_first_every_request_comes_up(name, known, data):
    points = [TrialSummary(step) for step in known]
    rounds = 0
    while requests := [TrialRequest(i, STEPS[-1]) for i, point in enumerate(points) if point.step < STEPS[-1]]:
        running = data.draw(st.sets(st.sampled_from(range(len(points))), max_size=len(points) - 1))
        for request in list(find_rule(name).order(requests, points, STEPS, running)):
            assert request.point not in running
            assert points[request.point].step < request.until <= STEPS[-1]
            assert request.until in STEPS
            points[request.point].step = request.until
        rounds += 1
        assert rounds < 1000
