"""The queue of a search, updated while trials start and come back, against the order of the rule itself."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchscale.spec.experiment import StopRule
from batchscale.spec.goal import Goal
from batchscale.study.queue import TrialQueue
from batchscale.study.search import SearchState
from batchscale.study.stop_rules.rule import SearchRules, find_rule

WORKERS = ("a", "b", "c")
GOAL = Goal.parse("val/error < 0.1")
STEPS = (0, 10, 20, 30, 40, 50, 60, 70, 80)
# a machine running with other tests is slow at anything
SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("name", list(StopRule))
@SETTINGS
@given(data=st.data(), trials=st.integers(1, 8))
def test_ready_trials_come_in_the_order_of_the_rule(name, data, trials):
    rule, running, holders = find_rule(name), {}, {}
    search = SearchState(SearchRules(rule, STEPS, trials, 3 * trials))
    queue = TrialQueue(search)
    for _ in range(60):
        ready, expected = list(queue.ready()), list(search.order(running))
        assert bool(ready) == bool(expected)
        if rule.by_point:
            assert ready == expected
        requested = {request.point for request in search.requests()}
        assert {request.point for request in ready} <= requested - set(running)
        assert all(search.step_of(request.point) < request.until <= STEPS[-1] for request in ready)
        assert queue.num_running == len(running)
        for worker in WORKERS:
            others = [n for n in ready if holders.get(n.point, worker) != worker and search.step_of(n.point) >= 0]
            assert queue.held_elsewhere(worker) == others
            assert list(queue.for_worker(worker)) == [n for n in ready if n not in others]
        if ready and data.draw(st.booleans(), label="take"):
            request = data.draw(st.sampled_from(ready))
            skipped = range(len(search.points), request.point)
            search.get_or_add(request.point)
            running[request.point] = request.until
            queue.start(request.point, skipped)
            holders[request.point] = data.draw(st.sampled_from(WORKERS))
            queue.set_holder(request.point, holders[request.point])
        elif running:
            point = data.draw(st.sampled_from(sorted(running)))
            come_back(data, search, point, running.pop(point))
            queue.release(point)
        elif holders:
            point = data.draw(st.sampled_from(sorted(holders)))
            del holders[point]
            queue.set_holder(point, None)


def come_back(data, search, point, until):
    """A trial was lost, diverged, or came some way or all of it."""
    trial = search.points[point]
    fate = data.draw(st.sampled_from(("lost", "diverged", "some", "all", "goal")))
    steps = [step for step in STEPS if trial.step < step <= until]
    if fate == "diverged":
        trial.update([], max(1, until), GOAL)
    elif fate != "lost":
        came = steps[:1] if fate == "some" else steps
        value = 0.01 if fate == "goal" else data.draw(st.sampled_from((0.3, 0.5, 0.9)))
        trial.update([(step, {"val/error": value}) for step in came], None, GOAL)
    search.mark_changed(point)
