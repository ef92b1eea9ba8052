"""The order of a race's trials: in short rounds first, also when trials are added to a race that is over."""

from protocol_fakes import fake_experiment, fake_study

from batchscale.driver.dispatch import Dispatch
from batchscale.protocol.knowledge import Knowledge
from batchscale.protocol.pacing import order_needs, round_ends
from batchscale.protocol.resuming import open_study_run
from batchscale.protocol.search_state import Need, SearchRules, SearchState
from batchscale.spec import Budget, EvaluationPlan, StopRule, Unit

STEPS = tuple(range(0, 6401, 100))


def race(trials: int) -> SearchRules:
    return SearchRules(StopRule.RACE, STEPS, trials, max_attempts=2 * trials)


def finished(step: int, reached: bool) -> Knowledge:
    return Knowledge(step, reached_at=step if reached else None, recorded=step)


def test_a_new_race_starts_with_the_shortest_round():
    needs = list(order_needs(SearchState(race(3)), busy=()))
    assert needs == [Need(point, round_ends(STEPS)[0]) for point in range(3)]


def test_trials_added_to_a_finished_race_start_with_the_shortest_round_too():
    known = [finished(3200, reached=True), finished(3200, reached=False)]
    needs = list(order_needs(SearchState(race(4), known), busy=()))
    assert needs == [Need(2, round_ends(STEPS)[0]), Need(3, round_ends(STEPS)[0])]


def test_recorded_trials_that_must_go_on_are_never_asked_for_less_than_they_have():
    known = [finished(3200, reached=False), finished(3200, reached=False)]
    state = SearchState(race(3), known)
    needs = {need.point: need.until for need in order_needs(state, busy=())}
    assert needs == {2: 3200}
    state.put(2, Knowledge(3200))
    assert {need.point: need.until for need in order_needs(state, busy=())} == dict.fromkeys(range(3), 6400)


def test_the_first_job_of_a_study_goes_to_the_next_measurement_only(tmp_path):
    long = {"stop": StopRule.BUDGET, "budget": Budget(10**6, Unit.STEPS), "evaluation": EvaluationPlan(every=1000)}
    run = open_study_run(tmp_path, fake_study(**long), fake_experiment(**long))
    choice = Dispatch([run]).choose(worker=1, workers=2)
    assert {need.until for need in choice.needs} == {1000}
    run.close()
