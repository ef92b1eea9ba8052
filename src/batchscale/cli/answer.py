"""The answer of a curve for the terminal: title, key figures, drawing, advice, doubts, then the table."""

import re
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from batchscale.cli.drawing import Drawing, draw_curve
from batchscale.cli.output import available_width, lay_out, print_table, styled

if TYPE_CHECKING:
    from batchscale.analysis.answer import CurveAnswer
    from batchscale.analysis.curve_analysis import Analysis
    from batchscale.analysis.units import SizeUnit

ALWAYS = ("steps", "90 % interval", "trial", "reached")  # columns, also if empty
WIDEST = 100  # characters of a line of text
NARROWEST = 30
_COLOURS = {"●": "green", "◐": "yellow", "○": "bright_black"}


def print_answer(analysis: "Analysis", expected: Mapping[int, int] | None = None) -> None:
    """Print the answer of an analysed curve; ``expected`` are steps per batch size to mark beside it."""
    from batchscale.analysis.answer import make_answer

    answer = make_answer(analysis)
    _print_title(analysis)
    if answer.figures:
        typer.echo()
        _print_figures(answer)
    points = [(size, float(steps)) for size, steps in analysis.curve.select("batch_size", "steps").rows() if steps]
    if points:
        _print_drawing(analysis, points, expected or {})
    typer.echo()
    for sentence in answer.advice:
        print_text(sentence)
    if answer.notes:
        typer.echo()
        for note in answer.notes:
            print_text(note, "• ")
    if answer.basis:
        typer.echo()
        print_text(answer.basis, dim=True)


def print_points(analysis: "Analysis", expected: Mapping[int, int] | None = None) -> None:
    """Print the table of the batch sizes of an analysed study; ``expected`` as in ``print_answer``."""
    rows = [_point_cells(row, analysis.unit, expected) for row in analysis.curve.iter_rows(named=True)]
    always = (*analysis.unit.size_columns, *ALWAYS, analysis.unit.noun)
    columns = [name for name in rows[0] if name in always or any(row[name] for row in rows)]
    typer.echo()
    cells = [[row[name] for name in columns] for row in rows]
    print_table(columns, cells, right=range(len(columns) - ("notes" in columns)))


def _point_cells(row: dict[str, Any], unit: "SizeUnit", expected: Mapping[int, int] | None) -> dict[str, object]:
    """Return the cells of a batch size by the heading of their column."""
    from batchscale.formatting import span_text, whole_text
    from batchscale.records.metadata.study import study_note

    low, high = row["steps_low"], row["steps_high"]
    notes = [
        study_note(row["edge"] if row["at_edge"] else None, row["searches"]),
        "more trials would move the answer" if row["still_moves"] else "",
        "one finisher: no interval" if row["interval_note"] and low is None else "",
    ]
    return {
        **dict(zip(unit.size_columns, unit.size_cells(row["batch_size"]), strict=True)),
        "steps": row["steps"],
        "90 % interval": span_text(low, high, whole_text) or None,
        "closed form": (expected or {}).get(row["batch_size"]),
        "search alone": row["search_steps"] if row["seeds"] else None,
        "new seeds": row["seeds"],
        unit.noun: unit.amount(row["examples"]),
        "trial": row["trial_id"],
        "reached": f"{row['reached']} of {row['trials']}",
        "stopped early": row["stopped"],
        "infeasible": row["infeasible"],
        "notes": "; ".join(text for text in notes if text),
    }


def _print_title(analysis: "Analysis") -> None:
    if analysis.workload is None:
        return
    from batchscale.figures.names import workload_label

    typer.echo(styled(workload_label(analysis.workload), bold=True))
    typer.echo(styled(f"{analysis.workload}, goal {analysis.goal}", dim=True))


def _print_figures(answer: "CurveAnswer") -> None:
    """Print label, value, interval and trust of each figure below each other, the figures side by side."""
    figures = answer.figures
    marks = [f"{figure.trust.mark} {figure.trust}" for figure in figures]
    labels = [figure.label for figure in figures]
    cells = [[figure.value for figure in figures], [figure.interval for figure in figures], marks]
    width = available_width()
    header, lines = lay_out(labels, cells, frozenset(), width)
    if not header or len(lines) != len(cells):  # too narrow for columns
        for figure, mark in zip(figures, marks, strict=True):
            interval = f" ({figure.interval})" if figure.interval else ""
            typer.echo(f"{figure.label}: {styled(figure.value, bold=True)}{interval}, {mark}")
        return
    for line in header:
        typer.echo(styled(line, dim=True))
    typer.echo(styled(lines[0], bold=True))
    typer.echo(lines[1])
    typer.echo(re.sub("|".join(map(re.escape, set(marks))), lambda mark: _coloured(mark[0]), lines[2]))


def _coloured(mark: str) -> str:
    return styled(mark, fg=_COLOURS[mark[0]])


def _print_drawing(analysis: "Analysis", points: list[tuple[int, float]], expected: Mapping[int, int]) -> None:
    summary = analysis.summary
    regimes = None if summary is None else summary.regimes
    level = points[0][0] * points[0][1] if regimes is None else regimes.baseline_examples
    critical = None if summary is None else summary.critical.value
    drawing = Drawing(
        points,
        line=[(size, level / size) for size, _ in points],
        others=[(size, float(steps)) for size, steps in expected.items()],
        critical=critical,
        spans=() if summary is None or regimes is None or summary.misfit is not None else regimes.spans(),
        label=analysis.unit.short,
    )
    width = max(NARROWEST, min(64, (available_width() or WIDEST) - 14))
    typer.echo(f"\n{draw_curve(drawing, width)}")
    legend = ["● steps to result", "⠒ perfect scaling"]
    legend += ["┊ critical batch size"] if critical is not None else []
    legend += ["○ closed form"] if expected else []
    legend += ["batch size in tokens"] if analysis.unit.tokens_per_example else []
    print_text("   ".join(legend), dim=True)


def print_text(text: str, mark: str = "", *, dim: bool = False) -> None:
    """Print a sentence, in a terminal wrapped at words."""
    width = available_width()
    lines = [mark + text]
    if width is not None:
        lines = textwrap.wrap(
            text, max(NARROWEST, min(width, WIDEST)), initial_indent=mark, subsequent_indent=" " * len(mark)
        )
    for line in lines:
        typer.echo(styled(line, dim=dim))
