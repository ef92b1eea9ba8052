"""What the analysis commands share: records, the workloads asked for and the goal of each."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from batchscale.errors import AnalysisError, BatchscaleError, SpecError

WORKLOAD_HELP = "dataset/model/optimizer, or a part of it: all workloads whose name contains it."

if TYPE_CHECKING:
    from batchscale.analysis.regimes import Baseline
    from batchscale.records.frames import Records
    from batchscale.spec.goal import Goal
    from batchscale.spec.workload_name import WorkloadName


def open_records(path: Path) -> "Records":
    """The records at a path; what was damaged and left out is said on standard error."""
    from batchscale.records.read import read_records

    records = read_records(path, lambda text: typer.echo(f"Notice: {text}", err=True))
    if not records.workloads:
        raise AnalysisError(f"{path}: there is no study here.")
    return records


def parse_baseline(text: str) -> "Baseline":
    """The baseline of that name."""
    from batchscale.analysis.regimes import Baseline
    from batchscale.errors import one_line

    if text not in list(Baseline):
        raise SpecError(f"--baseline is robust or first. Found '{one_line(text)}'.")
    return Baseline(text)


def choose_workloads(records: "Records", text: str | None) -> "list[WorkloadName]":
    """The workload of that name (or all whose name contains the text), or all."""
    from batchscale.spec.workload_name import match_workloads

    return records.workloads if text is None else match_workloads(records.workloads, text)


def choose_goal(records: "Records", workload: "WorkloadName", text: str | None) -> "Goal":
    """The goal as given, or as the workload's studies have it."""
    from batchscale.analysis.answers import stored_goal
    from batchscale.spec.goal import Goal

    if text is not None:
        return Goal.parse(text)
    goal = stored_goal(records, workload)
    if goal is None:
        raise SpecError(
            f"The studies of {workload} do not say for which goal they were run; give --goal. "
            f"{_hint(records, workload)}"
        )
    return goal


def _hint(records: "Records", workload: "WorkloadName") -> str:
    """A goal within reach, for the message; or the metrics there are. Records say of none which way is better."""
    from batchscale.analysis.goals import suggest_goal

    schema = records.sources[workload]().collect_schema()
    metrics = [name for name in schema if "/" in name]
    order = sorted(metrics, key=lambda name: (not name.startswith("val/"), "classification" not in name))
    for metric in order:
        try:
            found = suggest_goal(records, workload, metric)
        except BatchscaleError:
            break
        return f'If less of it is better: at every batch size five trials or more reach --goal "{found.goal}".'
    return f"Its metrics are {', '.join(metrics)}."
