"""A best trial that a run left at an edge of its search space is flagged in every kind of figure."""

import json

import polars as pl
import pytest
from made_records import GOAL, WORKLOAD

from batchscale.figures.edges import edge_notes, with_edges
from batchscale.figures.kind import FigureRequest
from batchscale.figures.kinds import find_kind, kind_names
from batchscale.figures.paper import PAPER_FIGURES
from batchscale.figures.theme import LIGHT
from batchscale.records.facts import EdgeEnd, Finding, StudyFacts
from batchscale.records.facts.columns import FACTS, study_facts_row
from batchscale.records.frames import Records
from batchscale.search import Side
from batchscale.spec import Budget, Unit

SIZE = 64
WORDS = "best trial at an edge"


def left_at_edge(records: Records, *parameters: str) -> Records:
    """The records as if their run had ended with the best trial of one study at the upper ends of these."""
    ends = tuple(EdgeEnd(name, Side.HIGH) for name in parameters)
    row = study_facts_row(StudyFacts(goal=str(GOAL), finding=Finding(True, ends), edge_margin=0.99))
    sizes, found = records.studies["batch_size"], records.studies[FACTS]
    facts = [row if size == SIZE else one for size, one in zip(sizes, found, strict=True)]
    studies = records.studies.with_columns(pl.Series(FACTS, facts, dtype=found.dtype))
    return Records(studies, records.trials, records.sources)


def drawn_text(name: str, records: Records) -> str:
    budgets = (Budget(2000, Unit.STEPS),) if name == "budget" else ()
    kind = find_kind(name)
    frame = kind.data(FigureRequest(records, (GOAL,), budgets=budgets))
    return json.dumps(kind.plot(frame, LIGHT).to_dict())


OF_MACHINES = ("plan", "step-time")  # these show machines, not studies


@pytest.mark.parametrize("name", [name for name in kind_names() if name not in OF_MACHINES])
def test_every_kind_of_figure_says_so_and_only_then(name, curve_records):
    few = curve_records.filter(batch_size=[16, SIZE])
    assert WORDS in drawn_text(name, left_at_edge(few, "learning_rate"))
    if name != "curve":  # which also flags what lies near an edge without any verdict
        assert WORDS not in drawn_text(name, few)


def test_a_panel_of_one_study_names_the_ends_and_one_of_many_the_batch_sizes(curve_records):
    records = left_at_edge(curve_records.filter(batch_size=[16, SIZE]), "learning_rate", "momentum")
    sizes = {"dataset": WORKLOAD.dataset, "model": WORKLOAD.model, "optimizer": WORKLOAD.optimizer}
    rows = with_edges(pl.DataFrame([{**sizes, "batch_size": size} for size in (16, SIZE)]), records)
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
