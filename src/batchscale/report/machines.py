"""The part of a section on machines: the plan by time and by cost, if there are step times and prices."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from batchscale.errors import BatchscaleError
from batchscale.figures.kinds.plan import plan_frame, plot_plan
from batchscale.figures.kinds.step_time import plot_step_time, step_time_frame
from batchscale.figures.layout import Look, PanelSize
from batchscale.planning.answer import COLUMNS, NUMBERS, PlanAnswer, make_plan_answer
from batchscale.planning.assemble import plan_records
from batchscale.planning.estimate_text import estimate_sentences
from batchscale.planning.sentences import left_out_sentences, model_sentences, plan_sentences, without_options
from batchscale.records.frames import Records
from batchscale.report.drawing import draw
from batchscale.spec.goal import Goal
from batchscale.spec.workload_name import WorkloadName

MOST_LEFT_OUT = 12


@dataclass(frozen=True)
class PlanningFiles:
    """The files of machines with prices (None: the shipped ones), of step times, and of the work of a step."""

    machines: Path | None
    step_times: tuple[Path, ...] = ()
    work: Path | None = None


@dataclass(frozen=True)
class MachinesPart:
    """The content of the part on machines; ``missing`` is the reason if there is none."""

    answer: PlanAnswer | None = None
    sentences: tuple[str, ...] = ()
    columns: tuple[str, ...] = COLUMNS
    numbers: frozenset[int] = NUMBERS
    charts: tuple[Markup, ...] = ()
    small: tuple[str, ...] = ()
    missing: str | None = None


def make_machines_parts(
    records: Records, goals: Mapping[WorkloadName, Goal | None], anchors: Sequence[str], files: PlanningFiles | None
) -> dict[str, MachinesPart]:
    """Return the parts by the anchors of their sections; none without files."""
    if files is None:
        return {}
    parts = {}
    for (workload, goal), anchor in zip(goals.items(), anchors, strict=True):
        if goal is not None:
            parts[anchor] = _make_part(records, workload, goal, files, anchor)
    return parts


def _make_part(records: Records, workload: WorkloadName, goal: Goal, files: PlanningFiles, anchor: str) -> MachinesPart:
    try:
        plan = plan_records(records, workload, goal, files.machines, files.step_times, files.work)
    except BatchscaleError as error:
        return MachinesPart(missing=without_options(str(error)))
    chart = plot_plan(plan_frame(plan), Look(size=PanelSize(480, 300), is_bare=True))
    drawn = [draw(chart, f"{anchor}-plan", "time against cost")]
    if plan.models:  # estimates have no measured times to draw
        chart = plot_step_time(step_time_frame(plan.models), Look(size=PanelSize(420, 300), columns=1))
        drawn.append(draw(chart, f"{anchor}-steps", "step time against examples per device"))
    small = [text for model in plan.models for text in model_sentences(model)]
    small += estimate_sentences(plan.estimates)
    return MachinesPart(
        answer=make_plan_answer(plan),
        sentences=tuple(plan_sentences(plan)),
        charts=tuple(drawn),
        small=(*plan.notices, *small, *map(without_options, left_out_sentences(plan)[:MOST_LEFT_OUT])),
    )
