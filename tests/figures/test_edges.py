"""A best trial at an edge of its run's search space is flagged in every kind of figure."""

import json
from dataclasses import replace

import polars as pl
import pytest
from made_records import GOAL, SPACE, WORKLOAD

from batchscale.analysis.results import steps_to_result
from batchscale.figures.frames import edge_notes, with_edges
from batchscale.figures.kind import FigureRequest
from batchscale.figures.kinds import find_kind, kind_names
from batchscale.figures.paper import PAPER_FIGURES
from batchscale.figures.theme import LIGHT
from batchscale.records.frames import Records
from batchscale.records.metadata.columns import METADATA, study_metadata_row
from batchscale.records.metadata.study import SearchMetadata, StudyMetadata
from batchscale.spec.durations import Budget, Unit
from batchscale.spec.space import ParameterConfig, SearchSpace

SIZE = 64
WORDS = "best trial at an edge"


def left_at_edge(records: Records, *parameters: str) -> Records:
    """The records as if their run had searched one study in ranges that end at the values of its best trial.

    All other trials lie outside of these, so that nearness alone tells. In the other study the guard was off.
    """
    best = steps_to_result(records, GOAL).filter(pl.col("batch_size") == SIZE).row(0, named=True)
    space = SearchSpace.from_json(SPACE)
    ends = [_up_to(space[name], best[name]) if name in parameters else None for name in best if name in space]
    narrow = space.replace(*(config for config in ends if config is not None))
    search = SearchMetadata(narrow, ((1, 0),))
    row = study_metadata_row(StudyMetadata(goal=str(GOAL), searches=(search,), edge_margin=0.01))
    off = study_metadata_row(StudyMetadata(goal=str(GOAL), edge_margin=0.0))
    facts = [row if size == SIZE else off for size in records.studies["batch_size"]]
    studies = records.studies.with_columns(pl.Series(METADATA, facts, dtype=records.studies[METADATA].dtype))
    return Records(studies, records.trials, records.sources)


def _up_to(config: ParameterConfig, best: float) -> ParameterConfig:
    return replace(config, min_value=best - 0.001 * (1 - best), max_value=best)


def drawn_text(name: str, records: Records) -> str:
    budgets = (Budget(2000, Unit.STEPS),) if name == "budget" else ()
    kind = find_kind(name)
    frame = kind.data(FigureRequest(records, (GOAL,), budgets=budgets))
    return json.dumps(kind.plot(frame, LIGHT).to_dict())


OF_MACHINES = ("plan", "step-time", "more-devices")  # these show machines, not studies


@pytest.mark.parametrize("name", [name for name in kind_names() if name not in OF_MACHINES])
def test_every_kind_of_figure_says_so_and_only_then(name, curve_records):
    few = curve_records.filter(batch_size=[16, SIZE])
    assert WORDS in drawn_text(name, left_at_edge(few, "learning_rate"))
    assert WORDS not in drawn_text(name, left_at_edge(few))


def test_a_panel_of_one_study_names_the_ends_and_one_of_many_the_batch_sizes(curve_records):
    records = left_at_edge(curve_records.filter(batch_size=[16, SIZE]), "learning_rate", "momentum")
    sizes = {"dataset": WORKLOAD.dataset, "model": WORKLOAD.model, "optimizer": WORKLOAD.optimizer}
    rows = with_edges(pl.DataFrame([{**sizes, "batch_size": size} for size in (16, SIZE)]), records, GOAL)
    assert rows["edge"].to_list() == [None, "learning_rate high, momentum high"]
    assert edge_notes(rows) == ["best trial at an edge of its search space at batch size 64"]
    assert edge_notes(rows.tail(1)) == ["best trial at an edge: learning_rate high, momentum high"]
    assert edge_notes(rows.head(1)) == []


def test_the_range_of_another_metaparameter_is_not_flagged(curve_records):
    records = left_at_edge(curve_records.filter(batch_size=[16, SIZE]), "momentum")
    frame = find_kind("space").data(FigureRequest(records, (GOAL,)))
    assert set(frame.drop_nulls("edge")["metaparameter"]) == {"momentum"}


def test_published_records_are_flagged_nowhere(synthetic):
    frame = PAPER_FIGURES["paper-1"].data(synthetic)
    assert frame["edge"].is_null().all()
    assert len(frame)
