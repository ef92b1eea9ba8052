"""Which goal is meant where none is given: the one the experiment recorded, or the one the paper used."""

from batchscale.analysis.curve_analysis import stored_goal
from batchscale.errors import AnalysisError
from batchscale.figures.paper_curves import error_goal, figure_1, figure_3, figure_4, figure_6
from batchscale.records.frames import Records
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName


def find_goal(records: Records, workload: WorkloadName) -> Goal | None:
    """The goal of a workload: recorded with its studies, else the paper's for it, else None."""
    return stored_goal(records, workload) or published_goal(workload)


def published_goal(workload: WorkloadName) -> Goal | None:
    """The goal that the paper's curves of this workload have (Figure 1 before 4, 6 and 3)."""
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
    """The one goal of all workloads.

    Raises:
        AnalysisError: there is none, or there are several; the message asks for one.
    """
    goals = {find_goal(records, name) for name in records.workloads}
    if len(goals) == 1 and None not in goals:
        return next(goal for goal in goals if goal is not None)
    found = ", ".join(sorted(str(goal) for goal in goals if goal is not None)) or "none"
    raise AnalysisError(
        f"A figure needs one goal, and these records name {found}. Give it as --goal 'val/classification_error < 0.1', "
        "or choose one workload with --workload."
    )
