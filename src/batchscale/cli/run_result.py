"""The result of a run: the curve as a table and a drawing for the terminal, as CSV and as JSON, with its regimes."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from batchscale.cli.output import print_table

if TYPE_CHECKING:
    from batchscale.run.status import RunStatus
    from batchscale.spec.goal import Goal
    from batchscale.spec.plan import Plan
    from batchscale.spec.workload_name import WorkloadName

VERSION = 1
_BRAILLE_BITS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))


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
    """Print the curve, the drawing and the regimes, with a column for the ``expected`` steps per batch size."""
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


def print_csv(root: Path, plan: "Plan") -> None:
    """Print the curve as CSV, as ``batchscale fit`` reads it; a goal that was not reached leaves a cell empty."""
    typer.echo("batch_size,steps")
    for row in read_curve(root, plan):
        typer.echo(f"{row.batch_size},{'' if row.steps is None else row.steps}")


def result_json(root: Path, plan: "Plan", run_status: "RunStatus") -> dict[str, Any]:
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
        "curve": [asdict(row) for row in read_curve(root, plan)],
        "sentences": describe_regimes(root, name, goal).splitlines(),
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


_Points = Sequence[tuple[int, float]]


def draw_curve(points: _Points, width: int = 56, height: int = 14, line: _Points = (), others: _Points = ()) -> str:
    """Draw steps against batch size on logarithmic axes: ● for the points, ○ for others, braille dots for a line.

    >>> print(draw_curve([(1, 100), (10, 10)], width=11, height=3))
     100 ┤●
         │
      10 ┤          ●
         └───────────
          1         10
    """
    drawn = [(x, y) for x, y in (*points, *others) if y > 0]
    if not drawn:
        return "(nothing to draw)"
    xs, ys = [math.log(x) for x, _ in drawn], [math.log(y) for _, y in drawn]
    frame = _Frame(min(xs), max(xs), min(ys), max(ys), width, height)
    cells = _draw_line(frame, line)
    for mark, marked in (("○", others), ("●", points)):
        for x, y in marked:
            if y > 0:
                cells[frame.cell(math.log(x), math.log(y))] = mark
    return "\n".join([*_draw_rows(frame, cells), _draw_axis(frame, sorted({x for x, _ in drawn}))])


class _Frame:
    """The mapping from logarithms of batch size and steps to the character cells of a drawing."""

    def __init__(self, left: float, right: float, bottom: float, top: float, width: int, height: int) -> None:
        self.left, self.right = (left, right) if right > left else (left - 0.5, left + 0.5)
        self.bottom, self.top = (bottom, top) if top > bottom else (bottom - 0.5, bottom + 0.5)
        self.width, self.height = width, height
        middle = height // 2
        labels = {0: self.top, height - 1: self.bottom}
        if height >= 7:
            labels[middle] = self.top - (self.top - self.bottom) * middle / (height - 1)
        self.labels = {row: f"{math.exp(value):,.0f}" for row, value in labels.items()}
        self.margin = max(4, *map(len, self.labels.values()))

    def position(self, x: float, y: float) -> tuple[float, float]:
        """Return column and row from the top left, as fractions of cells."""
        column = (x - self.left) / (self.right - self.left) * (self.width - 1)
        return column, (self.top - y) / (self.top - self.bottom) * (self.height - 1)

    def cell(self, x: float, y: float) -> tuple[int, int]:
        column, row = self.position(x, y)
        return round(column), round(row)


def _draw_line(frame: _Frame, line: _Points) -> dict[tuple[int, int], str]:
    dots: dict[tuple[int, int], int] = {}
    for (x0, y0), (x1, y1) in itertools.pairwise(line):
        start, end = (math.log(x0), math.log(y0)), (math.log(x1), math.log(y1))
        count = 4 * frame.width
        for i in range(0, count + 1, 3):
            share = i / count
            x, y = start[0] + share * (end[0] - start[0]), start[1] + share * (end[1] - start[1])
            column, row = frame.position(x, y)
            dot_x, dot_y = round(column * 2 + 0.5), round(row * 4 + 1.5)
            cell = (dot_x // 2, dot_y // 4)
            if 0 <= cell[0] < frame.width and 0 <= cell[1] < frame.height:
                dots[cell] = dots.get(cell, 0) | _BRAILLE_BITS[dot_y % 4][dot_x % 2]
    return {cell: chr(0x2800 + bits) for cell, bits in dots.items()}


def _draw_rows(frame: _Frame, cells: Mapping[tuple[int, int], str]) -> list[str]:
    lines = []
    for row in range(frame.height):
        inside = "".join(cells.get((column, row), " ") for column in range(frame.width)).rstrip()
        edge = "┤" if row in frame.labels else "│"
        lines.append(f"{frame.labels.get(row, ''):>{frame.margin}} {edge}{inside}".rstrip())
    lines.append(" " * frame.margin + " └" + "─" * frame.width)
    return lines


def _draw_axis(frame: _Frame, batch_sizes: Sequence[int]) -> str:
    start = frame.margin + 2
    text = [" "] * (start + frame.width + 8)
    end = -1
    for size in batch_sizes:
        label, column = str(size), start + frame.cell(math.log(size), frame.top)[0]
        if column > end:
            text[column : column + len(label)] = label
            end = column + len(label)
    return "".join(text).rstrip()
