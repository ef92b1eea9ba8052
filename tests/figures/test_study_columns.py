"""What was not measured is left out of figures or marked: nothing unmeasured is drawn as a bad result."""

import json

import polars as pl
import pytest
from made_records import GOAL, METRIC, SPACE, MadeStudy, MadeTrial, make_records

from batchscale.errors import UnknownNameError
from batchscale.figures.kind import FigureRequest
from batchscale.figures.kinds import find_kind
from batchscale.figures.kinds.space import range_text
from batchscale.figures.selection import select_records
from batchscale.figures.theme import LIGHT
from batchscale.records.frames import Records
from batchscale.spec.durations import Budget, Unit
from batchscale.spec.workload_name import WorkloadName


def steps_budgets(*amounts: float) -> tuple[Budget, ...]:
    return tuple(Budget(amount, Unit.STEPS) for amount in amounts)


def may_stop_early(records: Records) -> Records:
    return Records(records.studies.with_columns(early_stopping=pl.lit(True)), records.trials, records.sources)


def drawn(name: str, request: FigureRequest) -> str:
    kind = find_kind(name)
    return json.dumps(kind.plot(kind.data(request), LIGHT).to_dict(), ensure_ascii=False)


def test_a_budget_that_ends_before_the_first_measurement_is_left_out_and_said():
    # as with evaluation.start: measured at step 0, then from step 500 on
    late = MadeTrial({"learning_rate": 0.1}, [(0, {METRIC: 0.9}), (500, {METRIC: 0.2}), (1000, {METRIC: 0.05})])
    early = MadeTrial({"learning_rate": 0.1}, [(0, {METRIC: 0.9}), (50, {METRIC: 0.3}), (1000, {METRIC: 0.05})])
    records = make_records([MadeStudy(8, [late]), MadeStudy(64, [early])])
    request = FigureRequest(records, (GOAL,), budgets=steps_budgets(100, 600))
    rows = find_kind("budget").data(request).drop_nulls("value").select("budget_amount", "batch_size", "value").rows()
    assert rows == [(100, 64, 0.3), (600, 8, 0.2), (600, 64, 0.3)]
    assert "left out at batch size 8 (step 500)" in drawn("budget", request).replace('", "', " ")


def test_a_value_of_stopped_trials_is_marked_as_a_bound_beyond_their_end():
    stopped = MadeTrial({"learning_rate": 0.1}, [(0, {METRIC: 0.9}), (100, {METRIC: 0.05})])
    through = MadeTrial({"learning_rate": 0.1}, [(0, {METRIC: 0.9}), (100, {METRIC: 0.4}), (1000, {METRIC: 0.3})])
    records = may_stop_early(make_records([MadeStudy(8, [stopped, through]), MadeStudy(64, [through])]))
    request = FigureRequest(records, (GOAL,), budgets=steps_budgets(100, 1000))
    rows = find_kind("budget").data(request).drop_nulls("value").select("budget_amount", "batch_size", "bound").rows()
    assert rows == [(100, 8, False), (100, 64, False), (1000, 8, True), (1000, 64, False)]
    assert "trials were stopped before that" in drawn("budget", request).replace('", "', " ")


def test_best_values_of_split_studies_are_bounds_where_trials_were_stopped():
    def trial(last: int, smoothing: float) -> MadeTrial:
        values = {"learning_rate": 0.1, "label_smoothing": smoothing}
        return MadeTrial(values, [(0, {METRIC: 0.9}), (last, {METRIC: 0.05})])

    records = may_stop_early(make_records([MadeStudy(8, [trial(100, 0.0), trial(1000, 0.1)])]))
    rows = find_kind("label-smoothing").data(FigureRequest(records, (GOAL,)))
    best = rows.filter(pl.col("quantity") == METRIC).select("split_value", "bound").rows()
    assert best == [(0.0, True), (0.1, False)]


def test_a_metaparameter_that_nobody_has_is_refused_with_the_nearest_names():
    records = make_records([MadeStudy(8, [MadeTrial({"beta2": 0.9}, [(0, {METRIC: 0.9}), (9, {METRIC: 0.05})])])])
    for name in ("metaparameter", "label-smoothing"):
        with pytest.raises(UnknownNameError, match="did you mean 'beta2'"):
            find_kind(name).data(FigureRequest(records, (GOAL,), metaparameter="beta3"))


def test_ends_of_a_range_near_one_are_told_from_one():
    assert range_text(0.9, 0.9999) == "0.9 to 0.9999"
    space = {"beta2": {"min_value": 0.9, "max_value": 0.9999, "scale": "REVERSE_LOG_SCALE", "type": "DOUBLE"}}
    trials = [MadeTrial({"beta2": 0.99}, [(0, {METRIC: 0.9}), (9, {METRIC: 0.05})])]
    assert "0.9 to 0.9999" in drawn("space", FigureRequest(make_records([MadeStudy(8, trials, space=space)]), (GOAL,)))


def test_workload_means_a_name_or_a_part_of_names_everywhere():
    trial = MadeTrial({"learning_rate": 0.1}, [(0, {METRIC: 0.9}), (9, {METRIC: 0.05})])
    names = [WorkloadName("toy", model, optimizer) for model in ("fc_1", "fc_1_1") for optimizer in ("sgd", "momentum")]
    records = make_records([MadeStudy(8, [trial], name, space=SPACE) for name in names])
    assert select_records(records, ["toy/fc_1/sgd"]).workloads == [names[0]]
    assert len(select_records(records, ["sgd"]).workloads) == 2
    assert len(select_records(records, ["fc_1_1", "momentum"]).workloads) == 3
    with pytest.raises(UnknownNameError, match="did you mean 'toy/fc_1/sgd'"):
        select_records(records, ["toy/fc_1/sgdd"])
