"""The answer of a report in sentences."""

from dataclasses import dataclass

import polars as pl

from batchscale.analysis.curve_analysis import Analysis
from batchscale.analysis.sentences import answer_sentences
from batchscale.figures.names import none_reached
from batchscale.formatting import rounded_text


@dataclass(frozen=True)
class ReportAnswer:
    """The answer in sentences, the most important first."""

    sentences: tuple[str, ...]


def answer_words(found: Analysis) -> ReportAnswer:
    """What was found, in plain words with numbers and their intervals."""
    reached = found.curve.drop_nulls("steps").sort("batch_size")
    if reached.is_empty():
        trials = int(found.curve["trials"].sum() or 0)
        return ReportAnswer(
            (
                f"Nobody knows yet: {none_reached(trials)} the goal.",
                "Choose a goal that is easier to reach, train longer, or search other metaparameters.",
            )
        )
    if found.summary is None:
        size, steps = reached["batch_size"][0], reached["steps"][0]
        return ReportAnswer(
            (
                f"At batch size {size:,} the goal takes {steps:,} steps.",
                "One point does not show how training scales: measure more batch sizes.",
            )
        )
    return ReportAnswer((*answer_sentences(found), _gain_sentence(reached)))


def about(value: float) -> str:
    """A number that is not exact, rounded to two digits.

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
