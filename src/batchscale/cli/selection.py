"""The records, workloads and goals that the analysis commands select, and the options they share."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from batchscale.errors import AnalysisError, BatchscaleError, SpecError, one_line

RECORDS_HELP = "A records tree, a table or an archive."
GOAL_HELP = "The goal, such as 'val/classification_error < 0.1'. Default: the goal of the studies."
WORKLOAD_HELP = "The workload, dataset/model/optimizer, or a part of the name that selects all that contain it."
BASELINE_HELP = "The line of perfect scaling: robust (through the fewest examples) or first (as in the paper)."
PERFECT_HELP = "The largest share above the line that still counts as perfect scaling."
USEFUL_HELP = "The largest share above the fewest steps that still counts as a useful batch size."
BAND_HELP = "The largest share above the fewest examples that the band of cheap batch sizes may cost."
DATA_DIR_HELP = "The folder of the data sets. Default: BATCHSCALE_DATA, else the cache folder."
JSON_HELP = "Print a JSON object instead of text."

if TYPE_CHECKING:
    from batchscale.analysis.regimes import Baseline
    from batchscale.records.frames import Records
    from batchscale.spec.batch_sizes import BatchSizes
    from batchscale.spec.goal import Goal
    from batchscale.spec.workload_name import WorkloadName


def print_notice(text: str) -> None:
    """Print a notice to standard error."""
    typer.echo(f"Notice: {text}", err=True)


def open_records(path: Path) -> "Records":
    """Read the records at a path; damaged parts are left out with a notice."""
    from batchscale.records.read import read_records

    records = read_records(path, print_notice)
    if not records.workloads:
        raise AnalysisError(f"{path}: the records must contain a study. Found none.")
    return records


def parse_baseline(text: str) -> "Baseline":
    """Parse the option ``--baseline``."""
    from batchscale.analysis.regimes import Baseline

    if text not in list(Baseline):
        raise SpecError(f"--baseline must be robust or first. Found '{one_line(text)}'.")
    return Baseline(text)


def select_workloads(records: "Records", text: str | None) -> "list[WorkloadName]":
    """Return the workload of that name (or all whose name contains the text), or all."""
    from batchscale.spec.workload_name import match_workloads

    return records.workloads if text is None else match_workloads(records.workloads, text)


def select_goal(records: "Records", workload: "WorkloadName", text: str | None) -> "Goal":
    """Return the goal of the option ``--goal``, or the goal of the workload's studies."""
    from batchscale.analysis.curve_analysis import stored_goal
    from batchscale.spec.goal import Goal

    if text is not None:
        return Goal.parse(text)
    goal = stored_goal(records, workload)
    if goal is None:
        raise SpecError(f"--goal is required: the studies of {workload} name no goal. {_suggest(records, workload)}")
    return goal


def _suggest(records: "Records", workload: "WorkloadName") -> str:
    """Return a sentence with a goal within reach, or with the metrics. Records have no direction of metrics."""
    from batchscale.analysis.goals import suggest_goal

    schema = records.sources[workload]().collect_schema()
    metrics = [name for name in schema if "/" in name]
    order = sorted(metrics, key=lambda name: (not name.startswith("val/"), "classification" not in name))
    for metric in order:
        try:
            suggestion = suggest_goal(records, workload, metric)
        except BatchscaleError:
            break
        return (
            f'If smaller values are better: at every batch size five trials or more reach --goal "{suggestion.goal}".'
        )
    return f"Its metrics are {', '.join(metrics)}."


def parse_batch_size(text: str) -> "BatchSizes":
    """Parse the one batch size of ``--batch-size``; `resolve` gives it in examples."""
    from batchscale.errors import SpecError
    from batchscale.spec.batch_sizes import MAX_BATCH_SIZE, BatchSizes
    from batchscale.spec.tokens import names_tokens

    is_number = text.isascii() and text.isdigit() and len(text) <= 13 and 1 <= int(text) <= MAX_BATCH_SIZE
    if not is_number and (not names_tokens(text) or ".." in text):
        raise SpecError(
            f"--batch-size must be a whole number of examples from 1 to {MAX_BATCH_SIZE:,}, or of tokens such as "
            f'"16k tokens". Found {one_line(repr(text))}.'
        )
    return BatchSizes.parse(int(text) if is_number else text)
