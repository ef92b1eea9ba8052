"""Improvements against the definition: the first step, over all measurements, whose value is beyond the goal."""

import math

import numpy as np
import polars as pl
import pytest
from build_records import NAME
from hypothesis import given, settings
from hypothesis import strategies as st

from batchscale.analysis import improvements as module
from batchscale.analysis.improvements import find_improvements
from batchscale.errors import UnknownNameError
from batchscale.records.frames import STUDY_SCHEMA, TRIAL_SCHEMA, Records
from batchscale.spec.goal import Goal

METRIC = "val/loss"
VALUES = st.one_of(
    st.none(), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 0.1, 0.2]), st.floats(-1, 1, width=32)
)
ROWS = st.lists(st.tuples(st.sampled_from([1, 8]), st.integers(0, 2), st.integers(0, 20), VALUES), max_size=40)


def records_of(rows, kind=pl.Float64):
    schema = {"batch_size": pl.Int64, "trial_id": pl.Int64, "step": pl.Int64, METRIC: kind}
    frame = pl.DataFrame(rows, schema=schema, orient="row", strict=False)
    empty = pl.DataFrame(schema=dict(STUDY_SCHEMA)), pl.DataFrame(schema=dict(TRIAL_SCHEMA))
    return Records(*empty, {NAME: frame.lazy})


def first_steps(rows, goal):
    found = {}
    for size, trial, step, value in rows:
        beyond = value is not None and (value > goal.value if goal.maximize else value < goal.value)
        if beyond:
            found[size, trial] = min(step, found.get((size, trial), step))
    return found


@settings(deadline=None)
@given(rows=ROWS, value=st.sampled_from([0.1, 0.0, 0.15, -0.5]), maximize=st.booleans(), at_once=st.integers(1, 9))
def test_the_first_step_beyond_any_goal_is_that_of_all_measurements(rows, value, maximize, at_once):
    unique = list({row[:3]: row for row in rows}.values())  # a trial has one measurement a step, in any order
    goal = Goal(METRIC, value, maximize)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_ROWS_AT_ONCE", at_once)
        found = find_improvements(records_of(unique), NAME, METRIC, maximize)
    trials = pl.DataFrame([(s, t) for s in (1, 8) for t in range(3)], schema=["batch_size", "trial_id"], orient="row")
    steps = found.first_steps(goal)[found.places(trials)].tolist()
    expected = first_steps(unique, goal)
    assert steps == [expected.get(key, -1) for key in trials.rows()]


@pytest.mark.parametrize("maximize", [False, True])
def test_a_float32_column_is_compared_by_its_digits(maximize):
    rows = [(1, 0, 10, np.float32(0.01)), (1, 1, 10, np.float32(0.3))]
    found = find_improvements(records_of(rows, pl.Float32), NAME, METRIC, maximize)
    places = found.places(pl.DataFrame({"batch_size": [1, 1], "trial_id": [0, 1]}))
    for value in (0.01, 0.0100001, 0.0099999, 0.3, 0.3000001, 1e300):
        passes = [digits > value if maximize else digits < value for digits in (0.01, 0.3)]
        steps = found.first_steps(Goal(METRIC, value, maximize))[places]
        assert (steps > 0).tolist() == passes, value


def test_measurements_are_read_once_for_any_number_of_goals_and_selections():
    reads = []
    rows = pl.DataFrame({"batch_size": [1], "trial_id": [0], "step": [5], METRIC: [0.1]})

    def source():
        reads.append(1)
        return rows.lazy()

    records = Records(pl.DataFrame(schema=dict(STUDY_SCHEMA)), pl.DataFrame(schema=dict(TRIAL_SCHEMA)), {NAME: source})
    first = find_improvements(records, NAME, METRIC, False)
    assert find_improvements(records.workload(NAME).first_trials(3), NAME, METRIC, False) is first
    assert len(reads) == 1
    with pytest.raises(UnknownNameError, match="val/los"):
        find_improvements(records, NAME, "val/los", False)
