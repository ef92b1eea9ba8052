"""Predictions as a table for the terminal, with their assumptions, and as JSON."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from batchscale.formatting import percent_text, rounded_text, span_text

if TYPE_CHECKING:
    from batchscale.analysis.intervals import Estimate
    from batchscale.analysis.summary import CurveSummary
    from batchscale.analysis.units import SizeUnit
    from batchscale.prediction.prediction import Prediction
    from batchscale.spec.goal import Goal
    from batchscale.spec.workload_name import WorkloadName

VERSION = 1
SYMBOLS = {"critical_batch_size": "B_crit", "optimal_batch_size": "B_opt"}


def print_predictions(
    predictions: "Sequence[Prediction]",
    trial_steps: int | None,
    unit: "SizeUnit",
    measured: "CurveSummary | None" = None,
) -> None:
    """Print the table of predictions, the measured critical batch size if there is one, and the assumptions."""
    from batchscale.cli.answer import print_text
    from batchscale.cli.output import print_table

    rows = [[item.method, SYMBOLS[item.quantity], *_cells(item, trial_steps, unit)] for item in predictions]
    if measured is not None:
        value = _size_text(measured.critical, unit) if measured.critical.value is not None else "not resolved"
        rows.append(["measured", SYMBOLS["critical_batch_size"], value, "", ""])
    print_table(("method", "predicts", f"batch size, {_noun(unit)}", "trial-steps", "of the study"), rows, (3, 4))
    typer.echo()
    shown = set()
    for item in predictions:
        text = f"{item.method}: {item.assumption}".rstrip(": ")
        if item.assumption and text not in shown:
            shown.add(text)
            print_text(text)
        if item.reason:
            missing = "No value" if item.estimate.value is None else "Note"
            print_text(f"{item.method}, {SYMBOLS[item.quantity]}: {missing}. {item.reason}")
        for line in item.details:
            print_text(f"  {line}", dim=True)


def predictions_json(
    name: "WorkloadName",
    goal: "Goal",
    predictions: "Sequence[Prediction]",
    trial_steps: int | None,
    unit: "SizeUnit",
    folder: Path | None,
) -> dict[str, Any]:
    """Return the object of ``batchscale predict --json``."""
    return {
        "version": VERSION,
        "workload": str(name),
        "goal": str(goal),
        "tokens_per_example": unit.tokens_per_example,
        "study_trial_steps": trial_steps,
        "folder": None if folder is None else str(folder),
        "predictions": [item.to_json() for item in predictions],
    }


def _cells(item: "Prediction", trial_steps: int | None, unit: "SizeUnit") -> list[str]:
    share = item.trial_steps / trial_steps if trial_steps else None
    value = _size_text(item.estimate, unit) if item.estimate.value is not None else "not resolved"
    if item.estimate.value is None and item.estimate.has_interval:
        value += f", {_interval(item.estimate, unit)}"
    return [value, f"{item.trial_steps:,}", percent_text(share) if item.trial_steps else "0 %"]


def _size_text(estimate: "Estimate", unit: "SizeUnit") -> str:
    interval = _interval(estimate, unit)
    value = rounded_text((estimate.value or 0.0) * (unit.tokens_per_example or 1))
    return f"{value} ({interval or 'no interval'})"


def _interval(estimate: "Estimate", unit: "SizeUnit") -> str:
    factor = unit.tokens_per_example or 1
    low, high = (None if end is None else end * factor for end in (estimate.low, estimate.high))
    return span_text(low, high)


def _noun(unit: "SizeUnit") -> str:
    return "tokens" if unit.tokens_per_example else "examples"
