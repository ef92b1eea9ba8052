"""The records and the goal of a figure or a report: the selected workloads and batch sizes, and the default goal."""

from collections.abc import Sequence

import polars as pl

from batchscale.analysis.curve_analysis import stored_goal
from batchscale.errors import AnalysisError, UnknownNameError
from batchscale.figures.paper_curves import error_goal, figure_1, figure_3, figure_4, figure_6
from batchscale.records.frames import Records
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName, match_workloads


def select_records(records: Records, workloads: Sequence[str] = (), batch_sizes: Sequence[int] = ()) -> Records:
    """Return the records of these workloads (names or parts of names) at these batch sizes; all where none is passed.

    Raises:
        UnknownNameError: A workload or a batch size has no records.
    """
    selected = records
    if workloads:
        selected = _only(records, [name for text in workloads for name in match_workloads(records.workloads, text)])
    if batch_sizes:
        measured = set(selected.studies["batch_size"].to_list())
        missing = [size for size in batch_sizes if size not in measured]
        if missing:
            sizes = ", ".join(f"{size:,}" for size in sorted(measured))
            raise UnknownNameError(f"No study has batch size {missing[0]:,}; there are {sizes}.")
        selected = selected.filter(batch_size=list(batch_sizes))
    return selected


def find_goal(records: Records, workload: WorkloadName) -> Goal | None:
    """Return the goal of a workload: recorded with its studies, else the paper's for it, else None."""
    return stored_goal(records, workload) or published_goal(workload)


def published_goal(workload: WorkloadName) -> Goal | None:
    """Return the goal of the paper's curves of this workload (Figure 1 before 4, 6 and 3)."""
    if workload.dataset.startswith("solution_quality/"):
        return error_goal(0.1) if workload.dataset.endswith("fashion_mnist") else error_goal(0.01)
    for panels in (figure_1(), figure_4(), figure_6(), figure_3()):
        for panel in panels:
            for series in panel.series:
                if series.workload == workload:
                    return series.goal
    if workload.dataset == "mnist" and workload.model.startswith("fc_"):
        return error_goal(0.03)  # published sizes that no figure shows: the goal of those that Figure 3d does
    return None


def common_goal(records: Records) -> Goal:
    """Return the goal that all workloads share.

    Raises:
        AnalysisError: There is none, or there are several.
    """
    goals = {find_goal(records, name) for name in records.workloads}
    if len(goals) == 1 and None not in goals:
        return next(goal for goal in goals if goal is not None)
    names = ", ".join(sorted(str(goal) for goal in goals if goal is not None)) or "none"
    raise AnalysisError(
        f"A figure needs one goal, and these records name {names}. Pass it as --goal 'val/classification_error < 0.1', "
        "or choose one workload with --workload."
    )


def _only(records: Records, names: Sequence[WorkloadName]) -> Records:
    keys = pl.DataFrame(
        [(name.dataset, name.model, name.optimizer) for name in names],
        schema=["dataset", "model", "optimizer"],
        orient="row",
    )
    on = list(keys.columns)
    return Records(
        records.studies.join(keys, on=on, how="semi", maintain_order="left"),
        records.trials.join(keys, on=on, how="semi", maintain_order="left"),
        records.sources,
    )
