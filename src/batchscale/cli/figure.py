"""``batchscale figure``: one chart of any records, one figure of the paper, or all of the paper's figures."""

import datetime
import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from batchscale.cli.completion import complete_with, complete_workloads, figure_names
from batchscale.cli.output import Stages
from batchscale.cli.selection import GOAL_HELP, RECORDS_HELP, WORKLOAD_HELP, print_notice
from batchscale.errors import SpecError
from batchscale.figures.kinds import kind_names

if TYPE_CHECKING:
    import polars as pl

    from batchscale.figures.theme import Theme
    from batchscale.records.frames import Records
    from batchscale.spec.durations import Budget

VERSION = 1
_T = TypeVar("_T")
_KINDS = f"{', '.join(kind_names())}, or paper-1 to paper-24"


def figure(
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND", help=f"The kind of figure: {_KINDS}.", autocompletion=complete_with(figure_names)
        ),
    ] = None,
    path: Annotated[Path | None, typer.Argument(metavar="PATH", help=RECORDS_HELP)] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The file to write: .png, .svg, .pdf, .html or .json; with --all a folder."),
    ] = None,
    data: Annotated[Path | None, typer.Option(help="The records, instead of PATH.")] = None,
    all_: Annotated[
        bool, typer.Option("--all", help="Draw all 24 figures of the paper into the folder --out.")
    ] = False,
    format_: Annotated[str, typer.Option("--format", help="The format of --all: png, svg, pdf, html or json.")] = "png",
    csv: Annotated[Path | None, typer.Option(help="Write the data behind the figure to this file.")] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Print the data behind the figure as JSON. --out is optional then.")
    ] = False,
    theme: Annotated[str, typer.Option(help="The colours: light or dark.")] = "light",
    goal: Annotated[
        list[str] | None,
        typer.Option(help=f"{GOAL_HELP} May be repeated."),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(help=f"{WORKLOAD_HELP} Default: all. May be repeated.", autocompletion=complete_workloads),
    ] = None,
    batch_size: Annotated[
        list[int] | None,
        typer.Option(help="A batch size to show. Default: all. May be repeated."),
    ] = None,
    metaparameter: Annotated[
        str | None,
        typer.Option(help="The metaparameter to show, for metaparameter and label-smoothing."),
    ] = None,
    normalise_at: Annotated[
        int | None,
        typer.Option(help="The batch size at which curves are 1, for curves."),
    ] = None,
    steps: Annotated[list[float] | None, typer.Option(help="A budget in steps. May be repeated.")] = None,
    epochs: Annotated[list[float] | None, typer.Option(help="A budget in epochs. May be repeated.")] = None,
    train_examples: Annotated[
        int | None,
        typer.Option(help="The size of the training set, for --epochs."),
    ] = None,
    first_trials: Annotated[
        int | None,
        typer.Option(help="Use only so many COMPLETE trials of each study, the first ones."),
    ] = None,
    unit: Annotated[
        str | None,
        typer.Option(
            help="The unit of batch sizes on axes: tokens or examples. Default: tokens, where they are known."
        ),
    ] = None,
    machines: Annotated[Path | None, typer.Option(help="A machines.toml with prices, for plan.")] = None,
    step_times: Annotated[
        list[Path] | None,
        typer.Option(help="A CSV file of step times, for plan and step-time. May be repeated."),
    ] = None,
) -> None:
    """Draw a chart of records, or a figure of the paper.

    Writes a picture, a page or a Vega-Lite specification.
    """
    from batchscale.figures.export import check_suffix, write_chart, write_frame
    from batchscale.figures.names import count
    from batchscale.figures.paper import PAPER_FIGURES, find_paper_figure
    from batchscale.figures.theme import find_theme

    colours = find_theme(theme)
    if all_ or kind == "all":
        source = data or path or (Path(kind) if kind and kind != "all" else None)
        _draw_all(_read(source), _required(out, "--out", "a folder for the figures"), format_, colours)
        return
    name = _required(kind, "KIND", f"one of {_KINDS}")
    target = out if json_ else _required(out, "--out", "a file to write the figure to")
    if target is not None:
        check_suffix(target)
    with Stages() as stages:
        stages.enter("reading records and computing")
        if name.startswith("paper-"):
            recipe = find_paper_figure(name)
            frame = recipe.data(_read(data or path))
            draw, title = recipe.draw, f"Figure {recipe.number}. {recipe.title}"
        else:
            from batchscale.figures.kind import FigureRequest
            from batchscale.figures.kinds import find_kind
            from batchscale.figures.selection import common_goal, select_records
            from batchscale.spec.goal import Goal

            figure_kind = find_kind(name, list(PAPER_FIGURES))
            records = select_records(_read(data or path), workload or [], batch_size or [])
            goals = tuple(Goal.parse(text) for text in goal or []) or (common_goal(records),)
            budgets = _budgets(steps or [], epochs or [])
            request = FigureRequest(
                records, goals, metaparameter, normalise_at, budgets, _positive(first_trials), _positive(train_examples)
            )
            request = replace(request, machines=machines, step_times=tuple(step_times or ()))
            frame = figure_kind.data(request)
            draw, title = figure_kind.plot, figure_kind.shows
            frame = _in_unit(frame, unit)
        if csv is not None:
            write_frame(frame, csv)
        if target is not None:
            stages.enter(f"drawing {count(frame['panel'].n_unique(), 'panel')} as {target.suffix.lower()}")
            write_chart(draw(frame, colours), target, title)
    if json_:
        from batchscale.cli.output import print_json

        print_json(_figure_json(name, title, target, frame))
        return
    _print_notes(frame["note"].drop_nulls().unique(maintain_order=True).to_list())


def _in_unit(frame: "pl.DataFrame", unit: str | None) -> "pl.DataFrame":
    """Return the frame of a figure whose axes are in this unit."""
    from batchscale.analysis.units import TOKENS

    if unit not in (None, "tokens", "examples"):
        raise SpecError(f"--unit must be tokens or examples. Found {unit!r}.")
    if unit == "tokens" and TOKENS not in frame.columns:
        raise SpecError("--unit tokens needs records that state the tokens of an example. Found none here.")
    return frame.drop(TOKENS) if unit == "examples" and TOKENS in frame.columns else frame


def _draw_all(records: "Records", folder: Path, suffix: str, theme: "Theme") -> None:
    from batchscale.figures.export import check_suffix, write_chart, write_frame
    from batchscale.figures.paper import PAPER_FIGURES

    check_suffix(folder / f"figure.{suffix}")
    for recipe in PAPER_FIGURES.values():
        frame = recipe.data(records)
        target = folder / f"{recipe.name}.{suffix}"
        write_frame(frame, target.with_suffix(".csv"))
        write_chart(recipe.draw(frame, theme), target, f"Figure {recipe.number}. {recipe.title}")
        typer.echo(str(target))


def _read(path: Path | None) -> "Records":
    from batchscale.records.read import read_records

    return read_records(_required(path, "PATH", "a records tree, a table or an archive"), print_notice)


def _required(value: _T | None, name: str, meaning: str) -> _T:
    if value is None:
        raise SpecError(f"batchscale figure needs {name}: {meaning}. Found none.")
    return value


def _budgets(steps: list[float], epochs: list[float]) -> "tuple[Budget, ...]":
    from batchscale.spec.durations import Budget, Unit

    for amount in (*steps, *epochs):
        if not 0 < amount < 2**60:
            raise SpecError(f"--steps and --epochs must be positive numbers. Found {amount:g}.")
    return (*(Budget(a, Unit.STEPS) for a in steps), *(Budget(a, Unit.EPOCHS) for a in epochs))


def _positive(value: int | None) -> int | None:
    if value is not None and value < 1:
        raise SpecError(f"--first-trials and --train-examples must be at least 1. Found {value}.")
    return value


def _print_notes(notes: list[str]) -> None:
    from batchscale.errors import one_line

    for note in notes[:8]:
        print_notice(one_line(note, 300))
    if len(notes) > 8:
        print_notice(f"and {len(notes) - 8} more; the column note of --csv has all of them.")


def _figure_json(kind: str, shows: str, out: Path | None, frame: "pl.DataFrame") -> dict[str, Any]:
    """Return the object of ``--json``: the rows behind a figure, as ``--csv`` writes them."""
    return {
        "version": VERSION,
        "figure": kind,
        "shows": shows,
        "out": None if out is None else str(out),
        "columns": frame.columns,
        "rows": [{name: _plain(value) for name, value in row.items()} for row in frame.iter_rows(named=True)],
        "notes": frame["note"].drop_nulls().unique(maintain_order=True).to_list(),
    }


def _plain(value: Any) -> Any:
    """Convert a cell to JSON: no NaN, no dates."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {name: _plain(item) for name, item in value.items()}
    return value.isoformat() if isinstance(value, datetime.date | datetime.datetime) else value
