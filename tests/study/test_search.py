"""The decision core against its own definition, whatever the order in which trials are trained."""

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchscale.records.model import Status
from batchscale.spec.experiment import StopRule
from batchscale.spec.goal import Goal
from batchscale.study.search import SearchState
from batchscale.study.stop_rules.rule import NEVER, SearchRules, find_rule
from batchscale.study.trial import TrialOutcome, TrialSummary

GOAL = Goal.parse("val/error < 0.5")
STEPS = (0, 2, 5, 9, 14, 20)


@dataclass(frozen=True)
class Fate:
    """The index of the evaluation that reaches the goal and the step where it diverges."""

    goal: int | None
    diverged: int | None

    def rows(self, after: int, until: int):
        last = until if self.diverged is None else min(until, self.diverged - 1)
        reached = NEVER if self.goal is None else STEPS[self.goal]
        return [(s, {"val/error": 0.1 if s >= reached else 0.9}) for s in STEPS if after < s <= last]

    def apply(self, trial: TrialSummary, until: int) -> None:
        diverged = self.diverged if self.diverged is not None and self.diverged <= until else None
        trial.update(self.rows(trial.step, until), diverged, GOAL)

    @property
    def goal_step(self) -> int:
        step = NEVER if self.goal is None else STEPS[self.goal]
        return step if self.diverged is None or step < self.diverged else NEVER

    @property
    def divergence_step(self) -> int:
        return NEVER if self.diverged is None else self.diverged


def defined_result(rules: SearchRules, fates: list[Fate]) -> list[TrialOutcome]:
    """The module's definition, word for word, with everything known."""
    for n in range(min(rules.trials, rules.max_attempts), rules.max_attempts + 1):
        first = fates[:n]
        finish = rules.steps[-1]
        if rules.rule is find_rule("race"):
            goals = sorted([o.goal_step for o in first] + list(rules.others_reached))
            if len(goals) >= rules.finishers:
                finish = min(finish, goals[rules.finishers - 1])
        expected = []
        for o in first:
            end = finish if rules.rule is find_rule("budget") else min(finish, o.goal_step)
            if o.divergence_step <= end:
                expected.append(TrialOutcome(Status.INFEASIBLE, o.divergence_step, "diverged"))
            elif rules.rule is not find_rule("budget") and o.goal_step == end:
                expected.append(TrialOutcome(Status.COMPLETE, end, "goal"))
            else:
                expected.append(TrialOutcome(Status.COMPLETE, end, "budget" if end == rules.steps[-1] else "raced"))
        if sum(e.status is Status.COMPLETE for e in expected) >= rules.trials or n == rules.max_attempts:
            return expected
    raise AssertionError


def play(rules: SearchRules, fates: list[Fate], chance: random.Random) -> tuple[SearchState, int]:
    """Train needed points in any order, by any number of evaluations at a time; gives the state and the steps."""
    state, trained = SearchState(rules), 0
    while not state.decided:
        request = chance.choice(state.requests())
        trial = state.get_or_add(request.point)
        possible = [s for s in STEPS if trial.step < s <= request.until]
        until = chance.choice(possible)
        trained += until - max(trial.step, 0)
        fates[request.point].apply(trial, until)
        state.mark_changed(request.point)
        assert_equal_to_rebuilt(state)
    return state, trained


def assert_equal_to_rebuilt(state: SearchState) -> None:
    """State updated point by point equals state made from all points."""
    rebuilt = SearchState(state.rules, state.points)
    assert state.requests() == rebuilt.requests()
    assert state.decided == rebuilt.decided
    assert (state.count(), state.likely_count()) == (rebuilt.count(), rebuilt.likely_count())
    assert state.until == rebuilt.until
    assert state.unrecorded() == rebuilt.unrecorded()
    assert state.counts() == rebuilt.counts()
    steps = [request.until - max(state.step_of(request.point), 0) for request in rebuilt.requests()]
    assert state.remaining_steps() == (sum(steps), max(steps, default=0))


FATES = st.builds(
    Fate,
    goal=st.one_of(st.none(), st.integers(0, len(STEPS) - 1)),
    diverged=st.one_of(st.none(), st.integers(1, STEPS[-1])),
)


@settings(max_examples=300, deadline=None)
@given(
    fates=st.lists(FATES, min_size=14, max_size=14),
    stop=st.sampled_from(list(StopRule)),
    trials=st.integers(1, 6),
    spare=st.integers(0, 8),
    finishers=st.integers(1, 3),
    others=st.lists(st.sampled_from(STEPS), max_size=3),
    order=st.integers(0, 10**6),
)
def test_result_is_the_defined_one_in_whatever_order_trials_are_trained(
    fates, stop, trials, spare, finishers, others, order
):
    rules = SearchRules(find_rule(stop), STEPS, trials, trials + spare, finishers, tuple(others))
    state, _ = play(rules, fates, random.Random(order))
    expected = defined_result(rules, fates)
    assert state.outcomes() == expected
    assert state.short == (sum(e.status is Status.COMPLETE for e in expected) < trials)


@settings(max_examples=100, deadline=None)
@given(fates=st.lists(FATES, min_size=12, max_size=12), trials=st.integers(1, 6), order=st.integers(0, 10**6))
def test_race_finds_the_steps_to_result_that_goal_finds_on_the_same_trials(fates, trials, order):
    state, _ = play(SearchRules(find_rule("race"), STEPS, trials, 12), fates, random.Random(order))
    expected = state.outcomes()
    raced = min((e.step for e in expected if e.reason == "goal"), default=None)
    reached = [o.goal_step for o in fates[: len(expected)] if o.goal_step < NEVER]
    assert raced == (min(reached) if reached else None)


def test_race_stops_everyone_at_the_best_known_steps_to_result():
    fates = [Fate(None, None), Fate(2, None), Fate(4, None), Fate(None, 15)]
    state, _ = play(SearchRules(find_rule("race"), STEPS, 4, 40), fates, random.Random(0))
    assert [(e.step, e.reason) for e in state.outcomes()] == [(5, "raced"), (5, "goal"), (5, "raced"), (5, "raced")]


def test_more_finishers_let_the_runners_up_finish():
    fates = [Fate(None, None), Fate(2, None), Fate(4, None), Fate(5, None)]
    state, _ = play(SearchRules(find_rule("race"), STEPS, 4, 40, finishers=2), fates, random.Random(0))
    assert [(e.step, e.reason) for e in state.outcomes()] == [(14, "raced"), (5, "goal"), (14, "goal"), (14, "raced")]


def test_divergent_trials_are_replaced_all_at_once():
    state = SearchState(SearchRules(find_rule("race"), STEPS, 3, 30), [TrialSummary() for _ in range(3)])
    for trial, fate in zip(state.points, [Fate(None, 1), Fate(None, 1), Fate(None, None)], strict=True):
        fate.apply(trial, 2)
    state.mark_changed()
    assert state.likely_count() == 5
    assert {request.point for request in state.requests()} == {2, 3, 4}


def test_a_failed_trial_is_replaced_and_recorded_incomplete():
    fates = [Fate(None, None)] * 3
    state = SearchState(SearchRules(find_rule("budget"), STEPS, 2, 20), [TrialSummary(step=5, failed="killed")])
    while not state.decided:
        request = state.requests()[0]
        while len(state.points) <= request.point:
            state.points.append(TrialSummary())
        fates[request.point].apply(state.points[request.point], request.until)
        state.mark_changed()
    assert [(e.status, e.step) for e in state.outcomes()] == [
        (Status.INCOMPLETE, 5),
        (Status.COMPLETE, 20),
        (Status.COMPLETE, 20),
    ]


@pytest.mark.parametrize("stop", list(StopRule))
def test_all_divergent_ends_after_the_limit_of_attempts(stop):
    state, _ = play(SearchRules(find_rule(stop), STEPS, 2, 7), [Fate(None, 3)] * 7, random.Random(1))
    assert len(state.outcomes()) == 7
    assert state.short


def test_a_recorded_divergence_stays_when_more_trials_finish_earlier():
    trials = [TrialSummary(step=9, diverged_at=12, recorded=12), TrialSummary(step=5, reached_at=5)]
    state = SearchState(SearchRules(find_rule("race"), STEPS, 1, 9), trials)
    assert state.outcomes()[0].status is Status.INFEASIBLE
