"""The decision core against its own definition, whatever the order in which trials are trained."""

import random
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchscale.records.model import Status
from batchscale.spec.experiment import StopRule
from batchscale.spec.goal import Goal
from batchscale.study.knowledge import Knowledge
from batchscale.study.needs import Ending
from batchscale.study.search_rules import NEVER, SearchRules
from batchscale.study.search_state import SearchState
from batchscale.study.stop_rules import find_rule

GOAL = Goal.parse("val/error < 0.5")
STEPS = (0, 2, 5, 9, 14, 20)


@dataclass(frozen=True)
class Outcome:
    """A trial's fate: the index of the evaluation that reaches the goal and the step where it diverges."""

    goal: int | None
    diverged: int | None

    def rows(self, after: int, until: int):
        last = until if self.diverged is None else min(until, self.diverged - 1)
        reached = NEVER if self.goal is None else STEPS[self.goal]
        return [(s, {"val/error": 0.1 if s >= reached else 0.9}) for s in STEPS if after < s <= last]

    def tell(self, known: Knowledge, until: int) -> None:
        diverged = self.diverged if self.diverged is not None and self.diverged <= until else None
        known.learn(self.rows(known.step, until), diverged, GOAL)

    @property
    def goal_step(self) -> int:
        step = NEVER if self.goal is None else STEPS[self.goal]
        return step if self.diverged is None or step < self.diverged else NEVER

    @property
    def divergence_step(self) -> int:
        return NEVER if self.diverged is None else self.diverged


def defined_result(rules: SearchRules, outcomes: list[Outcome]) -> list[Ending]:
    """The module's definition, word for word, with everything known."""
    for n in range(min(rules.trials, rules.max_attempts), rules.max_attempts + 1):
        first = outcomes[:n]
        finish = rules.steps[-1]
        if rules.rule is find_rule("race"):
            goals = sorted([o.goal_step for o in first] + list(rules.others_reached))
            if len(goals) >= rules.finishers:
                finish = min(finish, goals[rules.finishers - 1])
        endings = []
        for o in first:
            end = finish if rules.rule is find_rule("budget") else min(finish, o.goal_step)
            if o.divergence_step <= end:
                endings.append(Ending(Status.INFEASIBLE, o.divergence_step, "diverged"))
            elif rules.rule is not find_rule("budget") and o.goal_step == end:
                endings.append(Ending(Status.COMPLETE, end, "goal"))
            else:
                endings.append(Ending(Status.COMPLETE, end, "budget" if end == rules.steps[-1] else "raced"))
        if sum(e.status is Status.COMPLETE for e in endings) >= rules.trials or n == rules.max_attempts:
            return endings
    raise AssertionError


def play(rules: SearchRules, outcomes: list[Outcome], chance: random.Random) -> tuple[SearchState, int]:
    """Train needed points in any order, by any number of evaluations at a time; gives the state and the steps."""
    state, trained = SearchState(rules), 0
    while not state.decided:
        need = chance.choice(state.needs())
        known = state.get(need.point)
        possible = [s for s in STEPS if known.step < s <= need.until]
        until = chance.choice(possible)
        trained += until - max(known.step, 0)
        outcomes[need.point].tell(known, until)
        state.changed(need.point)
        same_as_made_anew(state)
    return state, trained


def same_as_made_anew(state: SearchState) -> None:
    """What is kept up with the news of single points is what all points together give."""
    fresh = SearchState(state.rules, state.points)
    assert state.needs() == fresh.needs()
    assert state.decided == fresh.decided
    assert (state.count(), state.likely_count(), state.until) == (fresh.count(), fresh.likely_count(), fresh.until)
    assert state.unrecorded() == fresh.unrecorded()
    assert state.tally() == fresh.tally()
    lefts = [need.until - max(state.step_of(need.point), 0) for need in fresh.needs()]
    assert state.steps_left() == (sum(lefts), max(lefts, default=0))


outcome = st.builds(
    Outcome,
    goal=st.one_of(st.none(), st.integers(0, len(STEPS) - 1)),
    diverged=st.one_of(st.none(), st.integers(1, STEPS[-1])),
)


@settings(max_examples=300, deadline=None)
@given(
    outcomes=st.lists(outcome, min_size=14, max_size=14),
    stop=st.sampled_from(list(StopRule)),
    trials=st.integers(1, 6),
    spare=st.integers(0, 8),
    finishers=st.integers(1, 3),
    others=st.lists(st.sampled_from(STEPS), max_size=3),
    order=st.integers(0, 10**6),
)
def test_result_is_the_defined_one_in_whatever_order_trials_are_trained(
    outcomes, stop, trials, spare, finishers, others, order
):
    rules = SearchRules(find_rule(stop), STEPS, trials, trials + spare, finishers, tuple(others))
    state, _ = play(rules, outcomes, random.Random(order))
    expected = defined_result(rules, outcomes)
    assert state.endings() == expected
    assert state.short == (sum(e.status is Status.COMPLETE for e in expected) < trials)


@settings(max_examples=100, deadline=None)
@given(outcomes=st.lists(outcome, min_size=12, max_size=12), trials=st.integers(1, 6), order=st.integers(0, 10**6))
def test_race_finds_the_steps_to_result_that_goal_finds_on_the_same_trials(outcomes, trials, order):
    state, _ = play(SearchRules(find_rule("race"), STEPS, trials, 12), outcomes, random.Random(order))
    endings = state.endings()
    raced = min((e.step for e in endings if e.reason == "goal"), default=None)
    reached = [o.goal_step for o in outcomes[: len(endings)] if o.goal_step < NEVER]
    assert raced == (min(reached) if reached else None)


def test_race_stops_everyone_at_the_best_known_steps_to_result():
    outcomes = [Outcome(None, None), Outcome(2, None), Outcome(4, None), Outcome(None, 15)]
    state, _ = play(SearchRules(find_rule("race"), STEPS, 4, 40), outcomes, random.Random(0))
    assert [(e.step, e.reason) for e in state.endings()] == [(5, "raced"), (5, "goal"), (5, "raced"), (5, "raced")]


def test_more_finishers_let_the_runners_up_finish():
    outcomes = [Outcome(None, None), Outcome(2, None), Outcome(4, None), Outcome(5, None)]
    state, _ = play(SearchRules(find_rule("race"), STEPS, 4, 40, finishers=2), outcomes, random.Random(0))
    assert [(e.step, e.reason) for e in state.endings()] == [(14, "raced"), (5, "goal"), (14, "goal"), (14, "raced")]


def test_divergent_trials_are_replaced_all_at_once():
    state = SearchState(SearchRules(find_rule("race"), STEPS, 3, 30), [Knowledge() for _ in range(3)])
    for known, o in zip(state.points, [Outcome(None, 1), Outcome(None, 1), Outcome(None, None)], strict=True):
        o.tell(known, 2)
    state.changed()
    assert state.likely_count() == 5
    assert {need.point for need in state.needs()} == {2, 3, 4}


def test_a_failed_trial_is_replaced_and_recorded_incomplete():
    outcomes = [Outcome(None, None)] * 3
    state = SearchState(SearchRules(find_rule("budget"), STEPS, 2, 20), [Knowledge(step=5, failed="killed")])
    while not state.decided:
        need = state.needs()[0]
        while len(state.points) <= need.point:
            state.points.append(Knowledge())
        outcomes[need.point].tell(state.points[need.point], need.until)
        state.changed()
    assert [(e.status, e.step) for e in state.endings()] == [
        (Status.INCOMPLETE, 5),
        (Status.COMPLETE, 20),
        (Status.COMPLETE, 20),
    ]


@pytest.mark.parametrize("stop", list(StopRule))
def test_all_divergent_ends_after_the_limit_of_attempts(stop):
    state, _ = play(SearchRules(find_rule(stop), STEPS, 2, 7), [Outcome(None, 3)] * 7, random.Random(1))
    assert len(state.endings()) == 7
    assert state.short


def test_a_recorded_divergence_stays_when_more_trials_finish_earlier():
    known = [Knowledge(step=9, diverged_at=12, recorded=12), Knowledge(step=5, reached_at=5)]
    state = SearchState(SearchRules(find_rule("race"), STEPS, 1, 9), known)
    assert state.endings()[0].status is Status.INFEASIBLE
