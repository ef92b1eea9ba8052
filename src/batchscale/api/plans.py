"""A plan as an object: the machines and batch sizes to train with, by time and by money."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from batchscale.api.curve import Curve
from batchscale.errors import PlanningError, one_line
from batchscale.formatting import count_text
from batchscale.planning.answer import COLUMNS, NUMBERS, make_plan_answer
from batchscale.planning.assemble import PlanInputs, assemble_plan, have_own_script, read_inputs
from batchscale.planning.machines import Machine, read_machines
from batchscale.planning.plan import MachinePlan, PlanRequest
from batchscale.planning.read_curve import analysis_curve
from batchscale.planning.recommend import Choice
from batchscale.planning.sentences import plan_sentences
from batchscale.planning.step_times import StepTime, read_step_times, records_step_times

if TYPE_CHECKING:
    from batchscale.figures.layout import Chart

MOST_ADVICE = 3
MOST_ROWS = 8


class TrainingPlan:
    """The configurations to train with, by expected time and cost; ``plan`` makes it. A notebook shows it."""

    def __init__(self, machine_plan: MachinePlan) -> None:
        self.machine_plan = machine_plan

    @property
    def table(self) -> pl.DataFrame:
        """A row per configuration, the fastest first; ``on_front`` if no other is both faster and cheaper."""
        return self.machine_plan.table

    @property
    def fastest(self) -> Choice:
        """The row of the fastest configuration, by column."""
        return self.machine_plan.recommendations.fastest

    @property
    def cheapest(self) -> Choice:
        """The row of the cheapest configuration, by column."""
        return self.machine_plan.recommendations.cheapest

    @property
    def within_budget(self) -> Choice | None:
        """The fastest configuration within the budget; None without a budget, or if none meets it."""
        return self.machine_plan.recommendations.within_budget

    @property
    def within_deadline(self) -> Choice | None:
        """The cheapest configuration within the deadline; None without a deadline, or if none meets it."""
        return self.machine_plan.recommendations.within_deadline

    @property
    def advice(self) -> tuple[str, ...]:
        """At most three sentences: the fastest, the cheapest, and what twice the money buys."""
        return tuple(plan_sentences(replace(self.machine_plan, by_device={}))[:MOST_ADVICE])

    @property
    def notices(self) -> tuple[str, ...]:
        """Warnings about the inputs, such as old prices."""
        return self.machine_plan.notices

    @property
    def summary(self) -> str:
        """All sentences about the plan, as ``batchscale plan`` prints them."""
        return "\n".join(plan_sentences(self.machine_plan))

    def plot(self, theme: str = "light") -> "Chart":
        """Return the chart: expected time against expected cost, with the front. ``theme`` is light or dark."""
        from batchscale.figures.kinds.plan import LOOK, plan_frame, plot_plan
        from batchscale.figures.theme import find_theme

        frame = plan_frame(self.machine_plan, self.machine_plan.workload or "plan")
        return plot_plan(frame, replace(LOOK, theme=find_theme(theme)))

    def to_frame(self) -> pl.DataFrame:
        """Return ``table``."""
        return self.table

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as ``batchscale plan --json`` prints them."""
        from batchscale.planning.plan_json import plan_json

        return plan_json(self.machine_plan)

    def __repr__(self) -> str:
        figures = make_plan_answer(self.machine_plan).figures
        lines = [f"  {figure.label:<10} {figure.value} ({figure.interval})" for figure in figures]
        return "\n".join([f"plan of {self.table.height:,} configurations", *lines])

    def _repr_html_(self) -> str:
        from batchscale.api.html import NARROW, WIDE, NotebookTable, render
        from batchscale.figures.kinds.plan import plan_frame, plot_plan
        from batchscale.figures.layout import Look

        answer, frame = make_plan_answer(self.machine_plan, MOST_ROWS), plan_frame(self.machine_plan)
        return render(
            title="Training plan" if self.machine_plan.workload is None else f"Plan: {self.machine_plan.workload}",
            subtitle=count_text(self.table.height, "configuration"),
            figures=answer.figures,
            charts=[plot_plan(frame, Look(columns=1, size=size, is_bare=True)) for size in (WIDE, NARROW)],
            label="Expected time against expected cost",
            advice=(answer.recommendation, *self.notices),
            table=NotebookTable(COLUMNS, [row.cells for row in answer.rows], NUMBERS),
        )


def plan(
    curve: Curve | str | Path,
    machines: str | Path | Sequence[Machine] | None = None,
    *,
    step_times: str | Path | Sequence[StepTime] | None = None,
    budget: float | None = None,
    deadline_s: float | None = None,
) -> TrainingPlan:
    """Return the fastest and the cheapest machines and batch size for the goal of a curve.

    Args:
        curve: What ``fit``, ``analyze`` or ``measure`` returned; or the path of a CSV file of a curve or of runs.
        machines: The path of a machines.toml with prices, or machines; by default the shipped prices of the devices
            that were timed.
        step_times: The path of a CSV file of ``batchscale calibrate``, or step times; by default those that the trials
            or runs of the curve recorded.
        budget: Find the fastest configuration within this cost, too.
        deadline_s: Find the cheapest configuration within this time, too.

    Raises:
        PlanningError: there are no step times, or no prices, or nothing can be used.

    >>> import batchscale as bs
    >>> from batchscale.planning import Machine, StepTime
    >>> curve = bs.fit({16: 12000, 32: 6100, 64: 3300, 128: 1900})
    >>> machine = Machine("mine", "T4", 1, 8, 0.5, "USD")
    >>> times = [StepTime("T4", 1, 1, size, 0.01 + size / 4000) for size in (16, 64, 128)]
    >>> bs.plan(curve, [machine], step_times=times).cheapest["batch_size"]
    128
    """
    inputs = read_inputs(Path(curve)) if isinstance(curve, str | Path) else _curve_inputs(curve)
    if isinstance(machines, str | Path):
        machines = read_machines(Path(machines))
    if isinstance(step_times, str | Path):
        step_times = read_step_times(Path(step_times))
    inputs = replace(inputs, machines=None if machines is None else tuple(machines), step_times=tuple(step_times or ()))
    if not inputs.are_runs_alone and not (inputs.step_times or inputs.recorded_times):
        raise PlanningError(
            "A plan needs the time of a step. This curve has none; pass step_times=, the path of a CSV file as "
            "'batchscale calibrate' writes it."
        )
    wrong: list[object] = [item for item in inputs.machines or () if not isinstance(item, Machine)]
    wrong += [item for item in inputs.step_times if not isinstance(item, StepTime)]
    if wrong:
        raise PlanningError(
            "machines and step_times are paths, or lists of batchscale.planning.Machine and StepTime. Found "
            f"{one_line(repr(wrong[0]))}."
        )
    try:
        return TrainingPlan(assemble_plan(inputs, PlanRequest(budget, deadline_s)))
    except PlanningError as error:  # the messages name the options of the command
        raise PlanningError(
            str(error).replace("give a price of your own (--machines FILE)", "pass machines= with one")
        ) from None


def _curve_inputs(curve: Curve) -> PlanInputs:
    if not isinstance(curve, Curve):
        raise PlanningError(
            "A plan is made of a curve, as fit, analyze and measure return it, or of a path. Found "
            f"{one_line(repr(curve))}."
        )
    if curve.records is None or curve.workload is None:
        return PlanInputs(analysis_curve(curve.analysis))
    return PlanInputs(
        analysis_curve(curve.analysis),
        records_step_times(curve.records, curve.workload),
        has_own_script=have_own_script(curve.records, curve.workload),
    )
