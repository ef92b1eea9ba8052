"""The order of a race's trials: in short rounds first, also when trials are added to a race that is over."""

from batchscale.study.knowledge import Knowledge
from batchscale.study.needs import Need
from batchscale.study.search_rules import SearchRules
from batchscale.study.search_state import SearchState
from batchscale.study.stop_rules import find_rule
from batchscale.study.stop_rules.race import round_ends

STEPS = tuple(range(0, 6401, 100))


def race(trials: int) -> SearchRules:
    return SearchRules(find_rule("race"), STEPS, trials, max_attempts=2 * trials)


def finished(step: int, reached: bool) -> Knowledge:
    return Knowledge(step, reached_at=step if reached else None, recorded=step)


def test_a_new_race_starts_with_the_shortest_round():
    needs = list(SearchState(race(3)).order(busy=()))
    assert needs == [Need(point, round_ends(STEPS)[0]) for point in range(3)]


def test_trials_added_to_a_finished_race_start_with_the_shortest_round_too():
    known = [finished(3200, reached=True), finished(3200, reached=False)]
    needs = list(SearchState(race(4), known).order(busy=()))
    assert needs == [Need(2, round_ends(STEPS)[0]), Need(3, round_ends(STEPS)[0])]


def test_recorded_trials_that_must_go_on_are_never_asked_for_less_than_they_have():
    known = [finished(3200, reached=False), finished(3200, reached=False)]
    state = SearchState(race(3), known)
    needs = {need.point: need.until for need in state.order(busy=())}
    assert needs == {2: 3200}
    state.put(2, Knowledge(3200))
    assert {need.point: need.until for need in state.order(busy=())} == dict.fromkeys(range(3), 6400)
