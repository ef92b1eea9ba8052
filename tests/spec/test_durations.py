import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchscale.errors import SpecError
from batchscale.spec.durations import Budget, EvaluationPlan, Spacing, Unit, to_steps


def test_all_units_become_steps_rounded_up():
    assert to_steps(100, Unit.STEPS, 7, None) == 100
    assert to_steps(100, Unit.EXAMPLES, 7, None) == 15
    assert to_steps(2.5, Unit.EPOCHS, 64, 1000) == 40


@pytest.mark.parametrize(
    ("amount", "unit"),
    [(5e-324, Unit.STEPS), (5e-324, Unit.EPOCHS), (1e-4, Unit.EPOCHS), (1e300, Unit.STEPS), (1e308, Unit.EPOCHS)],
)
def test_less_than_an_example_and_more_steps_than_are_counted_are_refused(amount, unit):
    with pytest.raises(SpecError, match="at least one example, for at most 2,147,483,647 steps"):
        to_steps(amount, unit, 8, 1000)
    assert to_steps(1e-3, Unit.EPOCHS, 8, 1000) == 1


def test_epochs_of_sampled_data_are_refused():
    with pytest.raises(SpecError, match="epochs needs a training set of fixed size"):
        to_steps(1, Unit.EPOCHS, 8, None)


def test_a_budget_may_differ_at_single_batch_sizes_and_has_a_floor():
    budget = Budget(10, Unit.EPOCHS, at_least_steps=50, per_batch_size={8: 20})
    assert [budget.steps(size, 800) for size in (4, 8, 800)] == [2000, 2000, 50]


@given(
    st.integers(1, 10**9),
    st.integers(1, 300),
    st.sampled_from(Spacing),
    st.none() | st.integers(1, 10**8),
    st.just(0.0) | st.floats(0, 1, exclude_max=True),
)
def test_measured_steps_grow_from_zero_to_the_budget(train_steps, count, spacing, every, start):
    every = None if every is None else max(every, train_steps // 1000 + 1)
    steps = EvaluationPlan(every=every, count=count, spacing=spacing, start=start).steps(train_steps)
    assert steps[0] == 0 and steps[-1] == train_steps
    assert all(early < late for early, late in itertools.pairwise(steps))
    assert every is not None or len(steps) <= count + (2 if start else 1)
    assert steps[1] >= min(round(start * train_steps), train_steps)


def test_log_spacing_has_equal_ratios():
    steps = EvaluationPlan(count=6, spacing=Spacing.LOG).steps(10**6)
    assert steps == (0, 10, 100, 1000, 10_000, 100_000, 1_000_000)


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (EvaluationPlan(every=30, start=0.5), (0, 60, 90, 100)),
        (EvaluationPlan(count=2, start=0.5), (0, 50, 75, 100)),
        (EvaluationPlan(count=2, spacing=Spacing.LOG, start=0.01), (0, 1, 10, 100)),
    ],
)
def test_nothing_is_measured_before_the_start(plan, expected):
    assert plan.steps(100) == expected


@pytest.mark.parametrize(
    "plan",
    [
        EvaluationPlan(every=1),
        EvaluationPlan(every=7, start=0.3),
        EvaluationPlan(every=10),
        EvaluationPlan(count=7),
        EvaluationPlan(count=200),
        EvaluationPlan(count=30, spacing=Spacing.LOG),
        EvaluationPlan(count=9, spacing=Spacing.LOG, start=0.5),
    ],
)
def test_the_count_of_measurements_is_known_without_their_steps(plan):
    for train_steps in (1, 2, 9, 10, 100, 101):
        steps = plan.steps(train_steps)
        assert len(steps) <= plan.count_measurements(train_steps) + 2
        if plan.every is not None:
            expected = {step for step in range(0, train_steps, plan.every) if step >= round(plan.start * train_steps)}
            assert set(steps) == {0, train_steps} | expected
            assert plan.count_measurements(train_steps) <= len(steps)


@pytest.mark.parametrize(
    "plan", [EvaluationPlan(every=1), EvaluationPlan(every=10_000, start=0.1), EvaluationPlan(count=10**9)]
)
def test_too_many_measurements_are_refused_at_once(plan):
    with pytest.raises(SpecError, match="at most 100,000 measurements"):
        plan.steps(2**31 - 1)
