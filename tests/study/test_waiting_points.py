"""The order of waiting points, kept while points are taken and come back, against the rule's own."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchscale.spec.experiment import StopRule
from batchscale.spec.goal import Goal
from batchscale.study.search_rules import SearchRules
from batchscale.study.search_state import SearchState
from batchscale.study.stop_rules import find_rule
from batchscale.study.waiting_points import WaitingPoints

WORKERS = ("a", "b", "c")
GOAL = Goal.parse("val/error < 0.1")
STEPS = (0, 10, 20, 30, 40, 50, 60, 70, 80)
# a machine busy with other tests is slow at anything
SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("name", list(StopRule))
@SETTINGS
@given(data=st.data(), trials=st.integers(1, 8))
def test_the_offer_is_what_the_rule_would_order(name, data, trials):
    rule, busy, holders = find_rule(name), {}, {}
    search = SearchState(SearchRules(rule, STEPS, trials, 3 * trials))
    waiting = WaitingPoints(search)
    for _ in range(60):
        offer, expected = list(waiting.offer()), list(search.order(busy))
        assert bool(offer) == bool(expected)
        if rule.in_turn:
            assert offer == expected
        needed = {need.point for need in search.needs()}
        assert {need.point for need in offer} <= needed - set(busy)
        assert all(search.step_of(need.point) < need.until <= STEPS[-1] for need in offer)
        assert waiting.num_busy == len(busy)
        for worker in WORKERS:
            others = [n for n in offer if holders.get(n.point, worker) != worker and search.step_of(n.point) >= 0]
            assert waiting.held_by_others(worker) == others
            assert list(waiting.own(worker)) == [n for n in offer if not waiting.is_held_by_another(n.point, worker)]
        if offer and data.draw(st.booleans(), label="take"):
            need = data.draw(st.sampled_from(offer))
            skipped = range(len(search.points), need.point)
            search.get(need.point)
            busy[need.point] = need.until
            waiting.take(need.point, skipped)
            holders[need.point] = data.draw(st.sampled_from(WORKERS))
            waiting.hold(need.point, holders[need.point])
        elif busy:
            point = data.draw(st.sampled_from(sorted(busy)))
            come_back(data, search, point, busy.pop(point))
            waiting.put_back(point)
        elif holders:
            point = data.draw(st.sampled_from(sorted(holders)))
            del holders[point]
            waiting.hold(point, None)


def come_back(data, search, point, until):
    """A trial was lost, diverged, or came some way or all of it."""
    known = search.points[point]
    fate = data.draw(st.sampled_from(("lost", "diverged", "some", "all", "goal")))
    steps = [step for step in STEPS if known.step < step <= until]
    if fate == "diverged":
        known.learn([], max(1, until), GOAL)
    elif fate != "lost":
        came = steps[:1] if fate == "some" else steps
        value = 0.01 if fate == "goal" else data.draw(st.sampled_from((0.3, 0.5, 0.9)))
        known.learn([(step, {"val/error": value}) for step in came], None, GOAL)
    search.changed(point)
