"""The result of a run: the answer and a table for the terminal, CSV, and JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from batchscale.prediction.prediction import Prediction
    from batchscale.run.status import RunStatus
    from batchscale.spec.goal import Goal
    from batchscale.spec.plan import Plan
    from batchscale.spec.workload_name import WorkloadName

VERSION = 1


@dataclass(frozen=True)
class CurveRow:
    """One study of the result. ``note`` names what makes it less certain."""

    batch_size: int
    steps: int | None
    trial_id: int | None
    trials: int
    reached: int
    infeasible: int
    note: str | None


def read_curve(root: Path, plan: "Plan") -> list[CurveRow]:
    """Return the curve of a run's records with notes on its studies."""
    from batchscale.analysis.outcomes import trial_outcomes
    from batchscale.analysis.results import results_of, winner_edges
    from batchscale.records.metadata.columns import METADATA
    from batchscale.records.tree.read import read_tree

    records = read_tree(root).workload(plan.experiment.workload.name)
    metadata = dict(records.studies.select("batch_size", METADATA).rows())
    outcomes = trial_outcomes(records, plan.experiment.goal)
    rows = winner_edges(records, outcomes, results_of(outcomes)).sort("batch_size").to_dicts()
    confirmed = _confirmed_points(root, plan) if plan.experiment.confirm else {}
    return [
        CurveRow(
            batch_size=row["batch_size"],
            steps=confirmed.get(row["batch_size"], row)["steps"],
            trial_id=confirmed.get(row["batch_size"], row)["trial_id"],
            trials=row["trials"],
            reached=row["reached"],
            infeasible=row["infeasible"],
            note=_note(row, metadata[row["batch_size"]]),
        )
        for row in rows
    ]


def _confirmed_points(root: Path, plan: "Plan") -> dict[int, dict[str, Any]]:
    """Return the median steps and the trial of each batch size whose best trials were trained again."""
    from batchscale.analysis.curve_analysis import analyze
    from batchscale.errors import AnalysisError
    from batchscale.records.tree.read import read_tree

    try:
        curve = analyze(read_tree(root), plan.experiment.workload.name, plan.experiment.goal).curve
    except AnalysisError:
        return {}
    return {row["batch_size"]: row for row in curve.drop_nulls("seeds").to_dicts()}


def _note(row: Mapping[str, Any], metadata: Mapping[str, Any] | None) -> str | None:
    from batchscale.records.metadata.study import study_note

    if metadata is None:
        return None
    edge, ended = row["edge"] if row["at_edge"] else None, metadata["goal_reached"] is not None
    return study_note(edge, row["searches"], short=bool(metadata["short"]), ended=ended)


def print_result(root: Path, plan: "Plan", expected: Mapping[int, int] | None = None) -> None:
    """Print the answer and its table, with a column for the ``expected`` steps per batch size."""
    from batchscale.analysis.curve_analysis import analyze
    from batchscale.cli.answer import print_answer, print_points
    from batchscale.errors import AnalysisError
    from batchscale.records.tree.read import read_tree

    typer.echo()
    try:
        analysis = analyze(read_tree(root), plan.experiment.workload.name, plan.experiment.goal)
    except AnalysisError as error:
        typer.echo(str(error))
        return
    print_answer(analysis, expected)
    print_points(analysis, expected)


def print_beside(root: Path, plan: "Plan", predictions: "Sequence[Prediction]") -> None:
    """Print predictions beside the measured critical batch size."""
    from batchscale.analysis.curve_analysis import analyze
    from batchscale.analysis.units import SizeUnit
    from batchscale.cli.prediction_output import print_predictions
    from batchscale.errors import AnalysisError
    from batchscale.records.tree.read import read_tree

    try:
        summary = analyze(read_tree(root), plan.experiment.workload.name, plan.experiment.goal).summary
    except AnalysisError:
        summary = None
    typer.echo("\nPredictions beside the measured answer:")
    print_predictions(predictions, plan.trial_steps, SizeUnit(plan.studies[0].tokens_per_example), summary)


def print_csv(root: Path, plan: "Plan") -> None:
    """Print the curve as CSV, as ``batchscale fit`` reads it; a goal that was not reached leaves a cell empty."""
    typer.echo("batch_size,steps")
    for row in read_curve(root, plan):
        typer.echo(f"{row.batch_size},{'' if row.steps is None else row.steps}")


def result_json(
    root: Path, plan: "Plan", run_status: "RunStatus", predictions: "Sequence[Prediction] | None" = None
) -> dict[str, Any]:
    """Return the object of ``batchscale run --json``: the curve, the sentences, and the effort of the run."""
    name, goal = plan.experiment.workload.name, plan.experiment.goal
    return {
        "version": VERSION,
        "workload": str(name),
        "goal": str(goal),
        "records": str(root),
        "elapsed_s": run_status.elapsed_s,
        "trial_steps": sum(study.trial_steps for study in run_status.studies),
        "given_up": run_status.given_up,
        "tokens_per_example": next((s.tokens_per_example for s in run_status.studies if s.tokens_per_example), None),
        "choices": list(run_status.choices),
        "curve": [asdict(row) for row in read_curve(root, plan)],
        "sentences": describe_regimes(root, name, goal).splitlines(),
        **({} if predictions is None else {"predictions": [item.to_json() for item in predictions]}),
    }


def describe_regimes(root: Path, workload: "WorkloadName", goal: "Goal") -> str:
    """Return the sentences of ``batchscale analyze`` about these records."""
    from batchscale.analysis.curve_analysis import analyze
    from batchscale.analysis.sentences import answer_sentences
    from batchscale.errors import AnalysisError
    from batchscale.records.tree.read import read_tree

    try:
        return "\n".join(answer_sentences(analyze(read_tree(root), workload, goal)))
    except AnalysisError as error:
        return str(error)
