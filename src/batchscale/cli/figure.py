"""``batchscale figure``: one chart of any records, one figure of the paper, or all of the paper's figures."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from batchscale.cli.output import Stages
from batchscale.cli.selection import WORKLOAD_HELP
from batchscale.errors import SpecError
from batchscale.figures.kinds import kind_names
from batchscale.figures.names import count

if TYPE_CHECKING:
    from batchscale.figures.theme import Theme
    from batchscale.records.frames import Records
    from batchscale.spec.durations import Budget

_T = TypeVar("_T")
_KINDS = f"{', '.join(kind_names())}; or paper-1 to paper-24"


def figure(
    kind: Annotated[str | None, typer.Argument(metavar="KIND", help=_KINDS, show_default=False)] = None,
    path: Annotated[
        Path | None, typer.Argument(metavar="PATH", help="A records tree, a table or an archive.", show_default=False)
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="A .png, .svg, .pdf, .html or .json file; with --all a folder.", show_default=False
        ),
    ] = None,
    data: Annotated[Path | None, typer.Option("--data", help="The same as PATH.", show_default=False)] = None,
    all_: Annotated[bool, typer.Option("--all", help="Make all 24 figures of the paper in the folder --out.")] = False,
    format_: Annotated[str, typer.Option("--format", help="With --all: png, svg, pdf, html or json.")] = "png",
    csv: Annotated[
        Path | None, typer.Option("--csv", help="Write the data behind the figure to this file.", show_default=False)
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Print the data behind the figure; --out may then be left out.")
    ] = False,
    theme: Annotated[str, typer.Option("--theme", help="light or dark")] = "light",
    goal: Annotated[
        list[str] | None,
        typer.Option(
            "--goal", help="Such as 'val/classification_error < 0.1'; may be given again.", show_default=False
        ),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option("--workload", help=f"{WORKLOAD_HELP} May be given again.", show_default=False),
    ] = None,
    batch_size: Annotated[
        list[int] | None, typer.Option("--batch-size", help="Only these; may be given again.", show_default=False)
    ] = None,
    metaparameter: Annotated[
        str | None, typer.Option("--metaparameter", help="For metaparameter and label-smoothing.", show_default=False)
    ] = None,
    normalise_at: Annotated[
        int | None, typer.Option("--normalise-at", help="Batch size; for curves.", show_default=False)
    ] = None,
    steps: Annotated[
        list[float] | None, typer.Option("--steps", help="A budget in steps; may be given again.", show_default=False)
    ] = None,
    epochs: Annotated[
        list[float] | None, typer.Option("--epochs", help="A budget in epochs; may be given again.", show_default=False)
    ] = None,
    train_examples: Annotated[
        int | None, typer.Option("--train-examples", help="Size of the training set, for epochs.", show_default=False)
    ] = None,
    first_trials: Annotated[
        int | None,
        typer.Option("--first-trials", help="Count only the first COMPLETE trials of each study.", show_default=False),
    ] = None,
    machines: Annotated[
        Path | None, typer.Option("--machines", help="machines.toml with prices; for plan.", show_default=False)
    ] = None,
    step_times: Annotated[
        list[Path] | None,
        typer.Option("--step-times", help="CSV of step times; for plan and step-time.", show_default=False),
    ] = None,
) -> None:
    """Draw a figure from records, and write it as a picture, a page or a specification.

    The goal may be left out where the records name one, or where the paper does.
    """
    from batchscale.figures.export import check_suffix, write_chart, write_frame
    from batchscale.figures.paper import PAPER_FIGURES, find_paper_figure
    from batchscale.figures.theme import find_theme

    colours = find_theme(theme)
    if all_ or kind == "all":
        place = data or path or (Path(kind) if kind and kind != "all" else None)
        _all_figures(_read(place), _required(out, "--out", "a folder for the figures"), format_, colours)
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
            draw, words = recipe.draw, f"Figure {recipe.number}. {recipe.title}"
        else:
            from batchscale.figures.default_goal import common_goal
            from batchscale.figures.kind import FigureRequest
            from batchscale.figures.kinds import find_kind
            from batchscale.spec.goal import Goal

            chosen = find_kind(name, list(PAPER_FIGURES))
            records = _narrow(_read(data or path), workload or [], batch_size or [])
            goals = tuple(Goal.parse(text) for text in goal or []) or (common_goal(records),)
            budgets = _budgets(steps or [], epochs or [])
            request = FigureRequest(
                records, goals, metaparameter, normalise_at, budgets, _positive(first_trials), _positive(train_examples)
            )
            request = replace(request, machines=machines, step_times=tuple(step_times or ()))
            frame = chosen.data(request)
            draw, words = chosen.plot, chosen.shows
        if csv is not None:
            write_frame(frame, csv)
        if target is not None:
            stages.enter(f"drawing {count(frame['panel'].n_unique(), 'panel')} as {target.suffix.lower()}")
            write_chart(draw(frame, colours), target, words)
    if json_:
        from batchscale.cli.figure_json import figure_json
        from batchscale.cli.output import print_json

        print_json(figure_json(name, words, target, frame))
        return
    _say_notes(frame["note"].drop_nulls().unique(maintain_order=True).to_list())


def _all_figures(records: "Records", folder: Path, suffix: str, theme: "Theme") -> None:
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

    place = _required(path, "PATH", "a records tree, a table or an archive")
    return read_records(place, lambda text: typer.echo(f"Notice: {text}", err=True))


def _required(value: _T | None, name: str, what: str) -> _T:
    if value is None:
        raise SpecError(f"batchscale figure needs {name}: {what}. Found none.")
    return value


def _narrow(records: "Records", workloads: list[str], batch_sizes: list[int]) -> "Records":
    from batchscale.figures.selection import select_records

    return select_records(records, workloads, batch_sizes)


def _budgets(steps: list[float], epochs: list[float]) -> "tuple[Budget, ...]":
    from batchscale.spec.durations import Budget, Unit

    for amount in (*steps, *epochs):
        if not 0 < amount < 2**60:
            raise SpecError(f"A budget is a positive number of steps or epochs. Found {amount:g}.")
    return (*(Budget(a, Unit.STEPS) for a in steps), *(Budget(a, Unit.EPOCHS) for a in epochs))


def _positive(value: int | None) -> int | None:
    if value is not None and value < 1:
        raise SpecError(f"A number of trials or examples is at least 1. Found {value}.")
    return value


def _say_notes(notes: list[str]) -> None:
    from batchscale.errors import one_line

    for note in notes[:8]:
        typer.echo(f"Notice: {one_line(note, 300)}", err=True)
    if len(notes) > 8:
        typer.echo(f"Notice: and {len(notes) - 8} more; --csv has all of them in the column note.", err=True)
