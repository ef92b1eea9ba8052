"""The order of a race's trials: in short rounds first, also when trials are added to a race that is over."""

from batchscale.study.search import SearchState
from batchscale.study.stop_rules.race import round_ends
from batchscale.study.stop_rules.rule import SearchRules, find_rule
from batchscale.study.trial import TrialRequest, TrialSummary

STEPS = tuple(range(0, 6401, 100))


def race(trials: int) -> SearchRules:
    return SearchRules(find_rule("race"), STEPS, trials, max_attempts=2 * trials)


def finished(step: int, reached: bool) -> TrialSummary:
    return TrialSummary(step, reached_at=step if reached else None, recorded=step)


def test_a_new_race_starts_with_the_shortest_round():
    requests = list(SearchState(race(3)).order(running=()))
    assert requests == [TrialRequest(point, round_ends(STEPS)[0]) for point in range(3)]


def test_trials_added_to_a_finished_race_start_with_the_shortest_round_too():
    trials = [finished(3200, reached=True), finished(3200, reached=False)]
    requests = list(SearchState(race(4), trials).order(running=()))
    assert requests == [TrialRequest(2, round_ends(STEPS)[0]), TrialRequest(3, round_ends(STEPS)[0])]


def test_recorded_trials_that_must_continue_are_never_requested_for_less_than_they_have():
    trials = [finished(3200, reached=False), finished(3200, reached=False)]
    state = SearchState(race(3), trials)
    requests = {request.point: request.until for request in state.order(running=())}
    assert requests == {2: 3200}
    state.put(2, TrialSummary(3200))
    assert {request.point: request.until for request in state.order(running=())} == dict.fromkeys(range(3), 6400)
