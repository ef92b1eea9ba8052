"""``batchscale law --method noisy-quadratic-system``: the loss over parameters, batch size and steps."""

import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from batchscale.cli.output import print_json, print_table
from batchscale.errors import SpecError, one_line
from batchscale.formatting import metaparameter_text, rounded_text, span_text

if TYPE_CHECKING:
    import polars as pl

    from batchscale.prediction.noisy_quadratic_system import SystemFit
    from batchscale.prediction.prediction import Prediction

METHOD = "noisy-quadratic-system"  # of --method
VERSION = 1
RESAMPLES = 40
QUANTITIES = {"critical_batch_size": "B_crit", "optimal_batch_size": "B_opt"}


def fit_and_print(
    inputs: Sequence[Path], sequence: int | None, parameters: float | None, loss: float | None, *, as_json: bool
) -> None:
    """Fit the system to the best runs of a grid, check it on the largest ones, and print it."""
    from batchscale.analysis.grid import best_losses
    from batchscale.prediction.noisy_quadratic_system import (
        fit_system,
        hold_back_largest,
        log_error,
        system_predictions,
    )

    if (loss is None) != (parameters is None):
        raise SpecError(
            f"--loss and --parameters go together with --method {METHOD}: the goal, and the model that is to reach it. "
            "Found one without the other."
        )
    if loss is not None and not (math.isfinite(loss) and loss > 0):
        raise SpecError(f"--loss must be a number above 0. Found {loss:g}.")
    source, grid = _read(inputs, sequence)
    runs = best_losses(grid)
    fit = fit_system(runs, RESAMPLES)
    smaller, largest = hold_back_largest(runs)
    held_out = log_error(fit_system(smaller).system, largest)
    predictions = [] if loss is None or parameters is None else system_predictions(fit, parameters, loss, runs)
    if as_json:
        print_json(_json(source, fit, (len(largest), held_out), predictions))
        return
    _print(source, fit, (len(largest), held_out))
    if predictions and loss is not None and parameters is not None:
        typer.echo(f"\nTo a loss of {loss:g} with {rounded_text(parameters)} parameters:")
        _print_predictions(predictions)


def _read(inputs: Sequence[Path], sequence: int | None) -> "tuple[str, pl.DataFrame]":
    import polars as pl

    from batchscale.analysis.grid import read_grid

    if not inputs:
        from batchscale.atlas.table import read_step_law
        from batchscale.cli.law_inputs import CARRIED

        return CARRIED, read_step_law()
    grids = [read_grid(path, sequence, merge=False) for path in inputs]
    return ", ".join(one_line(path.name, 100) for path in inputs), pl.concat(grids)


def _print(source: str, fit: "SystemFit", held_out: tuple[int, float]) -> None:
    count, error = held_out
    typer.echo(f"The noisy quadratic system of {fit.runs:,} runs, from {source}.")
    typer.echo(
        f"Its losses are off by {100 * fit.rms_log:.1f} %; fitted without the {count:,} runs of most compute, by "
        f"{100 * error:.1f} % there."
    )
    rows = [
        (letter, metaparameter_text(value), span_text(*fit.ranges[letter], metaparameter_text))
        for letter, value in fit.system.letters.items()
    ]
    print_table(("parameter", "value", "90 % interval"), rows, right=(1,))
    if fit.weak:
        typer.echo(f"The runs hardly determine {', '.join(fit.weak)}: trust the losses, not these values.")


def _print_predictions(predictions: "Sequence[Prediction]") -> None:
    rows = []
    for item in predictions:
        ends = item.estimate
        interval = span_text(ends.low, ends.high) if ends.has_interval else None
        rows.append((QUANTITIES[item.quantity], rounded_text(ends.value), interval, item.reason or None))
    columns = ("quantity", "batch size", "90 % interval", "why not")
    shown = columns if any(row[3] for row in rows) else columns[:3]
    print_table(shown, [row[: len(shown)] for row in rows], right=(1,))
    typer.echo(f"This assumes: {predictions[0].assumption}")


def _json(
    source: str, fit: "SystemFit", held_out: tuple[int, float], predictions: "Sequence[Prediction]"
) -> dict[str, Any]:
    return {
        "version": VERSION,
        "source": source,
        "method": METHOD,
        "runs": fit.runs,
        "parameters": fit.system.letters,
        "ranges": {letter: list(ends) for letter, ends in fit.ranges.items()},
        "weak": list(fit.weak),
        "rms_log": fit.rms_log,
        "held_out": {"runs": held_out[0], "rms_log": held_out[1]},
        "predictions": [asdict(item) for item in predictions],
    }
