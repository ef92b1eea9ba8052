"""The rounds of an adaptive experiment, as a pure function of what was measured."""

from dataclasses import replace

import numpy as np
import pytest

from batchscale.analysis.intervals import Finishers, StudyPoint
from batchscale.analysis.noise import trial_noise
from batchscale.prediction.next_round import Design, MeasuredSize, RoundProgress, next_round, start_round
from batchscale.prediction.quantities import AimQuestion
from batchscale.spec.adaptive import AdaptivePlan, Aim, ChoiceKind, CostUnit

POOL = tuple(2**power for power in range(11))


def design(**aim):
    plan = replace(AdaptivePlan(), **aim)
    return Design(plan, AimQuestion(plan.aim, POOL[0], POOL[-1]), POOL)


def progress(sizes, trials=8, spread=0.1, failed=(), rounds=1, b_crit=64.0):
    rng = np.random.default_rng(3)
    points = []
    for size in sizes:
        steps = 10_000 * (1 + b_crit / size) * np.exp(spread * np.sort(rng.exponential(size=4)) / trials)
        points.append(StudyPoint(size, round(steps[0]), Finishers(steps, trials)))
    measured = [MeasuredSize(p.batch_size, float(p.steps), 1.5 * trials * p.steps) for p in points]
    measured += [MeasuredSize(size, None, 1e5) for size in failed]
    return RoundProgress(tuple(measured), trial_noise(points), tuple(points), trials, rounds)


def test_the_first_round_is_spread_without_a_prediction_and_around_one_with_it():
    spread = start_round(design())
    assert spread.sizes == (4, 32, 256, 1024)
    assert "spread over 1 to 1,024" in spread.reason
    around = start_round(design(), (100.0, "the critical batch size predicted by public curves"))
    assert around.sizes == (16, 64, 256, 1024)
    assert "around 100, the critical batch size predicted by public curves" in around.reason
    assert len(start_round(design(), (1e6, "a law")).sizes) == 4  # beyond the largest size: different ones still
    fixed = start_round(design(chooses_sizes=False))
    assert fixed.sizes == POOL


def test_a_narrow_interval_ends_the_run_once_five_sizes_were_measured():
    exact = progress((4, 16, 64, 256, 1024), spread=0.01)
    choice = next_round(design(), exact)
    assert choice.kind is ChoiceKind.STOP
    assert "narrower than a factor of 2" in choice.reason
    assert choice.low < 64 < choice.high < 2 * choice.low
    assert next_round(design(), progress((4, 16, 64, 256), spread=0.01)).kind is ChoiceKind.NEW_SIZE


def test_a_wide_interval_asks_for_a_new_size_or_more_trials_at_all_sizes():
    noisy = progress((4, 16, 64, 256, 1024), spread=3.0)
    choice = next_round(design(), noisy)
    assert choice.kind in (ChoiceKind.NEW_SIZE, ChoiceKind.MORE_TRIALS)
    assert choice.round == 2
    assert choice.expected_cost > 0
    more = next_round(design(chooses_sizes=False), noisy)
    assert more.kind is ChoiceKind.MORE_TRIALS
    assert more.sizes == (4, 16, 64, 256, 1024)
    assert more.trials == 12
    size = next_round(design(chooses_trials=False), noisy)
    assert size.kind is ChoiceKind.NEW_SIZE
    assert size.trials == 8


def test_the_same_progress_gives_the_same_choice():
    noisy = progress((4, 16, 64, 256, 1024), spread=3.0)
    assert next_round(design(), noisy) == next_round(design(), noisy)


def test_the_budget_ends_the_run_and_says_so():
    noisy = progress((4, 16, 64, 256, 1024), spread=3.0)
    choice = next_round(design(max_trial_steps=round(noisy.spent) + 1000), noisy)
    assert choice.kind is ChoiceKind.STOP
    assert "the budget of" in choice.reason
    assert "the next round takes about" in choice.reason
    enough = next_round(design(max_trial_steps=round(100 * noisy.spent)), noisy)
    assert enough.kind is not ChoiceKind.STOP


def test_costs_are_counted_in_the_unit_of_the_budget():
    noisy = progress((4, 16, 64, 256, 1024), spread=3.0)
    in_examples = replace(noisy, sizes=tuple(replace(size, cost=size.cost * size.batch_size) for size in noisy.sizes))
    plan = design(max_examples=10**12, chooses_trials=False)
    choice = next_round(plan, in_examples)
    assert choice.unit is CostUnit.EXAMPLES
    steps = 10_000 * (1 + 64 / choice.sizes[0])
    assert choice.expected_cost == pytest.approx(1.5 * 8 * steps * choice.sizes[0], rel=0.5)


def test_when_everything_was_measured_the_run_ends():
    noisy = progress(POOL, spread=8.0, trials=100)
    choice = next_round(design(most_trials=100, factor=1.01), noisy)
    assert choice.kind is ChoiceKind.STOP
    assert "nothing more may be measured" in choice.reason


def test_sizes_that_fail_lead_to_their_neighbours_and_none_at_all_to_the_end():
    choice = next_round(design(), progress((1024, 256), failed=(4, 32)))
    assert choice.kind is ChoiceKind.NEW_SIZE
    assert choice.sizes == (512,)
    nothing = next_round(design(), progress((), failed=(4, 32, 256, 1024)))
    assert nothing.kind is ChoiceKind.STOP
    assert "0 batch sizes of 4 reached the goal" in nothing.reason


@pytest.mark.parametrize("aim", [aim for aim in Aim if not aim.is_decision])
def test_every_aim_has_an_interval_and_a_next_round(aim):
    plan = AdaptivePlan(aim)
    asked = Design(plan, AimQuestion(aim, POOL[0], POOL[-1], (1e-3, 1e-5)), POOL)
    choice = next_round(asked, progress((4, 16, 64, 256, 1024), spread=2.0))
    assert aim.label in choice.reason
