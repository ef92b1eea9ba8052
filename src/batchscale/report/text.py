"""The sentences of a report: the result of a workload, and the statuses of its trials."""

import polars as pl

from batchscale.analysis.curve_analysis import Analysis
from batchscale.analysis.sentences import answer_sentences
from batchscale.figures.names import count, none_reached
from batchscale.formatting import rounded_text
from batchscale.records.frames import STUDY_COLUMNS, Records
from batchscale.records.model import Status


def result_sentences(answer: Analysis) -> tuple[str, ...]:
    """Return the result with numbers and their intervals, the most important sentence first."""
    reached = answer.curve.drop_nulls("steps").sort("batch_size")
    if reached.is_empty():
        trials = int(answer.curve["trials"].sum() or 0)
        return (
            f"No result yet: {none_reached(trials)} the goal.",
            "Choose a goal that is easier to reach, train longer, or search other metaparameters.",
        )
    if answer.summary is None:
        size, steps = reached["batch_size"][0], reached["steps"][0]
        return (
            f"At batch size {size:,} the goal takes {steps:,} steps.",
            "One point does not show how training scales: measure more batch sizes.",
        )
    return (*answer_sentences(answer), _gain_sentence(reached))


def status_sentence(records: Records) -> str:
    """State what COMPLETE, INFEASIBLE and INCOMPLETE mean for these trials, and how many were stopped."""
    sentences = []
    complete = records.trials.filter(pl.col("status") == Status.COMPLETE.value)
    if len(complete):
        plans = records.studies.filter("early_stopping", pl.col("train_steps") > 0).select(
            *STUDY_COLUMNS, "train_steps"
        )
        stopped = len(complete.join(plans, on=STUDY_COLUMNS).filter(pl.col("steps") < pl.col("train_steps")))
        through = len(complete) - stopped
        ran = f"{count(through, 'COMPLETE trial')} ran through the budget" if through else ""
        cut = f"{count(stopped, 'COMPLETE trial')} ended before by the stop rule, at the goal or out of the race"
        sentences.append(", ".join(text for text in (ran, cut if stopped else "") if text) + ".")
    statuses = set(records.trials["status"])
    if Status.INFEASIBLE.value in statuses:
        sentences.append("INFEASIBLE trials diverged.")
    if Status.INCOMPLETE.value in statuses:
        sentences.append("INCOMPLETE trials were cut short.")
    return " ".join(sentences)


def about(value: float) -> str:
    """Return a number rounded to two digits.

    >>> about(613.2)
    '610'
    """
    return rounded_text(float(f"{value:.2g}"))


def _gain_sentence(reached: pl.DataFrame) -> str:
    first, best = reached.row(0, named=True), reached.sort("steps", "batch_size").row(0, named=True)
    if best["batch_size"] == first["batch_size"]:
        return f"The fewest steps, {best['steps']:,}, were measured at the smallest batch, {first['batch_size']:,}."
    fewer = about(first["steps"] / max(best["steps"], 1))
    examples = about(best["batch_size"] * best["steps"] / max(first["batch_size"] * first["steps"], 1))
    return (
        f"From batch size {first['batch_size']:,} to {best['batch_size']:,} the steps fall from {first['steps']:,} to "
        f"{best['steps']:,}, {fewer} times fewer, at {examples} times the examples."
    )
