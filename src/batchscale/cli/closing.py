"""The closing words of a run: the curve as a table and a drawing, and what ``analyze`` says about it."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from batchscale.cli.curve_drawing import draw_curve
from batchscale.cli.output import print_table

if TYPE_CHECKING:
    from batchscale.run.snapshot import Snapshot
    from batchscale.spec.goal import Goal
    from batchscale.spec.plan import Plan
    from batchscale.spec.workload_name import WorkloadName

VERSION = 1


@dataclass(frozen=True)
class CurveRow:
    """One study of the closing table. ``note`` says what lowers the trust in it."""

    batch_size: int
    steps: int | None
    trial_id: int | None
    trials: int
    reached: int
    infeasible: int
    note: str | None


def read_curve(root: Path, plan: "Plan") -> list[CurveRow]:
    """The curve of a run's records, with the flags of its studies."""
    from batchscale.analysis.outcomes import trial_outcomes
    from batchscale.analysis.results import results_of
    from batchscale.analysis.winners import winner_edges
    from batchscale.records.metadata.columns import METADATA
    from batchscale.records.tree.read import read_tree

    records = read_tree(root).workload(plan.experiment.workload.name)
    facts = dict(records.studies.select("batch_size", METADATA).rows())
    outcomes = trial_outcomes(records, plan.experiment.goal)
    rows = winner_edges(records, outcomes, results_of(outcomes)).sort("batch_size").to_dicts()
    return [
        CurveRow(
            row["batch_size"],
            row["steps"],
            row["trial_id"],
            row["trials"],
            row["reached"],
            row["infeasible"],
            _note(row, facts[row["batch_size"]]),
        )
        for row in rows
    ]


def _note(row: Mapping[str, Any], facts: Mapping[str, Any] | None) -> str | None:
    from batchscale.records.summary import study_note

    if facts is None:
        return None
    edge, ended = row["edge"] if row["at_edge"] else None, facts["goal_reached"] is not None
    return study_note(edge, row["searches"], short=bool(facts["short"]), ended=ended)


def print_closing(root: Path, plan: "Plan", expected: Mapping[int, int] | None = None) -> list[CurveRow]:
    """Print the curve, the drawing and the regimes; ``expected`` steps stand beside the measured ones."""
    rows = read_curve(root, plan)
    typer.echo(f"\nSteps to result: {plan.experiment.workload.name}, goal {plan.experiment.goal}\n")
    columns = ["batch size", "steps", "examples", "trial", "reached", "of", "infeasible", "notes"]
    cells: list[list[object]] = [
        [
            row.batch_size,
            row.steps,
            None if row.steps is None else row.steps * row.batch_size,
            row.trial_id,
            row.reached,
            row.trials,
            row.infeasible,
            row.note,
        ]
        for row in rows
    ]
    if expected is not None:
        columns.insert(2, "closed form")
        for cell, row in zip(cells, rows, strict=True):
            cell.insert(2, expected.get(row.batch_size))
    print_table(columns, cells, right=range(len(columns) - 1))
    points = [(row.batch_size, float(row.steps)) for row in rows if row.steps]
    if points:
        level = points[0][0] * points[0][1]
        line = [(size, level / size) for size, _ in points]
        others = [(size, float(steps)) for size, steps in (expected or {}).items()]
        typer.echo("\n" + draw_curve(points, line=line, others=others))
        legend = "● measured   ⠒ perfect scaling" + ("   ○ closed form" if expected else "")
        typer.echo(f"       steps to result against batch size, both logarithmic: {legend}\n")
    typer.echo(describe_regimes(root, plan.experiment.workload.name, plan.experiment.goal))
    return rows


def print_curve(root: Path, plan: "Plan") -> None:
    """Print the curve as CSV, as ``batchscale fit`` reads it; a goal that was not reached leaves a cell empty."""
    typer.echo("batch_size,steps")
    for row in read_curve(root, plan):
        typer.echo(f"{row.batch_size},{'' if row.steps is None else row.steps}")


def closing_json(root: Path, plan: "Plan", snapshot: "Snapshot") -> dict[str, Any]:
    """The object that ``batchscale run --json`` prints: the curve, the sentences, and what the run took."""
    name, goal = plan.experiment.workload.name, plan.experiment.goal
    return {
        "version": VERSION,
        "workload": str(name),
        "goal": str(goal),
        "records": str(root),
        "elapsed_s": snapshot.elapsed_s,
        "trial_steps": sum(study.trial_steps for study in snapshot.studies),
        "given_up": snapshot.given_up,
        "curve": [asdict(row) for row in read_curve(root, plan)],
        "sentences": describe_regimes(root, name, goal).splitlines(),
    }


def describe_regimes(root: Path, workload: "WorkloadName", goal: "Goal") -> str:
    """What ``batchscale analyze`` says of these records: doubts first, intervals with every number."""
    from batchscale.analysis.curve_analysis import analyze
    from batchscale.analysis.sentences import answer_sentences
    from batchscale.errors import AnalysisError
    from batchscale.records.tree.read import read_tree

    try:
        return "\n".join(answer_sentences(analyze(read_tree(root), workload, goal)))
    except AnalysisError as error:
        return str(error)
