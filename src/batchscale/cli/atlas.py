"""``batchscale atlas``: public curves as a table, your own beside them, and the curves most like yours."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchscale.cli.output import print_json
from batchscale.cli.selection import GOAL_HELP, JSON_HELP, WORKLOAD_HELP, print_notice

if TYPE_CHECKING:
    from batchscale.atlas.similar import Neighbour, Prior
    from batchscale.atlas.table import Atlas

VERSION = 1
HELP = "Look up public curves, and find those most like yours."
INPUT_HELP = "Records, an experiment file (.toml), or a CSV file with the columns batch_size and steps."
SORTS = ("b_crit", "b_opt", "used", "parameters", "label", "source")
_COLUMNS = ("kind", "dataset", "model", "optimizer", "source")

SourceOption = Annotated[
    str | None, typer.Option(help="Only of this source: paper, mlperf, zeus, step_law, nqs, ddsp, batchscale or own.")
]


def make_atlas_app() -> typer.Typer:
    """Return the command ``batchscale atlas`` and the commands under it."""
    app = typer.Typer(help=HELP, invoke_without_command=True, rich_markup_mode=None)
    app.callback(invoke_without_command=True, help=HELP)(atlas)
    app.command("show")(show)
    app.command("like")(like)
    app.command("add")(add)
    return app


def atlas(
    context: typer.Context,
    kind: Annotated[str | None, typer.Option(help="Only this kind of model, such as 'language model'.")] = None,
    data: Annotated[str | None, typer.Option(help="Only data sets whose name contains this.")] = None,
    model: Annotated[str | None, typer.Option(help="Only models whose name contains this.")] = None,
    optimizer: Annotated[str | None, typer.Option(help="Only optimizers whose name contains this.")] = None,
    source: SourceOption = None,
    sort: Annotated[str, typer.Option(help=f"The column to sort by: {', '.join(SORTS)}.")] = "b_crit",
    all_: Annotated[bool, typer.Option("--all", help="All goals and versions, not one curve per workload.")] = False,
    csv: Annotated[Path | None, typer.Option(help="Write the table to this file, with every column.")] = None,
    runs_csv: Annotated[Path | None, typer.Option(help="Write the runs behind the table to this file.")] = None,
    chart: Annotated[
        Path | None, typer.Option(help="Draw the curves over their critical batch sizes (.png, .svg, .pdf, .html).")
    ] = None,
    sizes_chart: Annotated[
        Path | None, typer.Option(help="Draw B_crit and B_opt against data used and parameters.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Look up public curves, and find those most like yours."""
    if context.invoked_subcommand is not None:
        return
    from batchscale.records.output_file import write_output

    filters = {"kind": kind, "dataset": data, "model": model, "optimizer": optimizer, "source": source}
    selected = _select(_read(), filters, sort, all_=all_)
    if csv is not None:
        write_output(csv, selected.curves.write_csv())
    if runs_csv is not None:
        write_output(runs_csv, selected.runs.write_csv())
    _draw(selected, chart, sizes_chart)
    if json_:
        print_json({"version": VERSION, "curves": selected.curves.to_dicts(), "sources": _sources(selected)})
    else:
        _print_list(selected)


def show(
    name: Annotated[str, typer.Argument(metavar="CURVE", help="The identifier of a curve, as in the list.")],
    json_: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Show one curve of the atlas: its points, the answer, its source and licence."""
    from batchscale.analysis.sentences import answer_sentences
    from batchscale.atlas.sources import SOURCES
    from batchscale.cli.output import print_table
    from batchscale.formatting import rounded_text, span_text

    table = _read()
    curve = table.find(name)
    answer, source = curve.analyze(), SOURCES[curve.source]
    points = table.select(table.curves.filter(table.curves["curve"] == name)).points()
    row = table.curves.filter(table.curves["curve"] == name).to_dicts()[0]
    if json_:
        sizes = points.select("batch_size", "steps", "runs").to_dicts()
        sentences = list(answer_sentences(answer))
        print_json(
            {"version": VERSION, "curve": row, "points": sizes, "sentences": sentences}
            | {"source": _source_json(source.name)}
        )
        return
    typer.echo(f"{curve.label}, {curve.optimizer or 'optimizer not stated'}, to {curve.goal} {curve.variant}".rstrip())
    steps = "steps" if curve.is_absolute else "relative steps"
    rows = [(size, f"{value:,.4g}", runs) for _, size, value, runs in points.rows()]
    print_table((f"batch size ({curve.batch_unit})", steps, "runs"), rows, right=(0, 1, 2))
    typer.echo()
    for sentence in answer_sentences(answer):
        typer.echo(sentence)
    low = None if answer.summary is None else answer.summary.critical.low
    if row["b_crit"] is not None and (low is None or abs(low / (row["b_crit_low"] or low) - 1) > 0.01):
        span = span_text(row["b_crit_low"], row["b_crit_high"])
        typer.echo(
            f"The list has B_crit {rounded_text(row['b_crit'])} ({span}): it counts all trials, not the best alone."
        )
    notes = [f"Tuned: {source.tuning}.", f"It can tell: {source.shows}.", f"Limits: {source.limits}."]
    notes += [f"Note: {curve.note}."] if curve.note else []
    cite = f"Source: {source.title}, {source.address} ({source.licence}, {source.date}). {source.credit}"
    typer.echo("\n" + "\n".join([*notes, cite.rstrip(". ") + "."]))


def like(
    path: Annotated[Path, typer.Argument(metavar="RECORDS", help=INPUT_HELP)],
    goal: Annotated[str | None, typer.Option(help=GOAL_HELP)] = None,
    workload: Annotated[str | None, typer.Option(help=WORKLOAD_HELP)] = None,
    kind: Annotated[str | None, typer.Option(help="The kind of your model, where its name does not tell.")] = None,
    count: Annotated[int, typer.Option(min=1, max=50, help="The number of curves to list.")] = 6,
    chart: Annotated[Path | None, typer.Option(help="Draw your curve on top of the atlas.")] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Find the public curves most like yours, and what they suggest."""
    from batchscale.atlas.similar import find_similar, make_prior
    from batchscale.cli.atlas_inputs import read_one

    table = _read()
    name, curve, answer = read_one(path, workload, goal, _kind(kind))
    neighbours = find_similar(table, curve, count)
    prior = make_prior(neighbours)
    if chart is not None:
        from batchscale.figures.export import check_suffix, write_chart
        from batchscale.figures.kinds.atlas import atlas_frame, plot_atlas

        check_suffix(chart)
        main = table.select(table.curves.filter("main"))
        write_chart(plot_atlas(atlas_frame(main, [] if answer is None else [answer])), chart, "The atlas and yours")
    if json_:
        print_json(
            {
                "version": VERSION,
                "of": name,
                "kind": curve.kind or None,
                "b_crit": None if answer is None or answer.summary is None else answer.summary.critical.value,
                "neighbours": [
                    {"curve": item.row, "distance": item.distance, "reasons": list(item.reasons)} for item in neighbours
                ],
                "prior": _prior_json(prior),
            }
        )
    else:
        _print_similar(name, neighbours, prior)


def add(
    path: Annotated[Path, typer.Argument(metavar="CURVE", help=f"{INPUT_HELP} An experiment file has no curve.")],
    name: Annotated[
        str | None, typer.Option(help="The identifier. Default: own- and the name of file or workload.")
    ] = None,
    goal: Annotated[
        str | None,
        typer.Option(
            help="The goal. Default: that of the studies; of the published archive, that of the paper's figures."
        ),
    ] = None,
    workload: Annotated[str | None, typer.Option(help=f"{WORKLOAD_HELP} Default: all.")] = None,
    kind: Annotated[str | None, typer.Option(help="The kind of model, where its name does not tell.")] = None,
    data: Annotated[str, typer.Option(help="The data set, for a CSV file.")] = "",
    model: Annotated[str, typer.Option(help="The model, for a CSV file.")] = "",
    optimizer: Annotated[str, typer.Option(help="The optimizer, for a CSV file.")] = "",
    parameters: Annotated[str | None, typer.Option(help="The parameters of the model, such as 25.6M.")] = None,
    replace: Annotated[bool, typer.Option("--replace", help="Replace a curve of the same name.")] = False,
    json_: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Add your own curve to the atlas of this machine."""
    from batchscale.atlas.curve import summary_row
    from batchscale.atlas.table import add_curve, own_folder
    from batchscale.cli.atlas_inputs import OwnNames, read_curves

    names = OwnNames(name, data, model, optimizer, _kind(kind), _count(parameters, "--parameters"))
    folder = own_folder()
    curves = read_curves(path, workload, goal, names)
    for curve, answer in curves:
        add_curve(curve, summary_row(curve, answer), folder, replaces=replace)
    if json_:
        print_json({"version": VERSION, "folder": str(folder), "added": [curve.curve for curve, _ in curves]})
    else:
        for curve, _ in curves:
            typer.echo(f"Added {curve.curve} to {folder}.")


def _count(text: str | None, option: str) -> int | None:
    from batchscale.spec.amounts import parse_amount

    return None if text is None else round(parse_amount(text, option))


def _kind(text: str | None) -> str:
    from batchscale.atlas.curve import KINDS
    from batchscale.errors import UnknownNameError, one_line, suggest_names

    if text is not None and text not in KINDS:
        raise UnknownNameError(f"No kind of model is called '{one_line(text)}'; {suggest_names(text, KINDS)}")
    return text or ""


def _read() -> "Atlas":
    from batchscale.atlas.table import read_atlas

    table = read_atlas()
    for notice in table.notices:
        print_notice(notice)
    return table


def _select(table: "Atlas", filters: dict[str, str | None], sort: str, *, all_: bool) -> "Atlas":
    """Return the curves that match, sorted, missing values last; an error names the values that a column has."""
    import polars as pl

    from batchscale.errors import AnalysisError, SpecError, one_line

    if sort not in SORTS:
        raise SpecError(f"--sort must be one of {', '.join(SORTS)}. Found '{one_line(sort)}'.")
    rows = table.curves if all_ else table.curves.filter("main")
    for column, text in filters.items():
        if text is None:
            continue
        names = [column, "label"] if column in ("dataset", "model") else [column]
        matching = [pl.col(name).str.to_lowercase().str.contains(text.lower(), literal=True) for name in names]
        if rows.filter(pl.any_horizontal(matching)).is_empty():
            values = ", ".join(value or "(not stated)" for value in rows[column].unique().sort())
            option = "--data" if column == "dataset" else f"--{column}"
            raise AnalysisError(f"{option} must match a curve. Found '{one_line(text)}'; the rest has {values}.")
        rows = rows.filter(pl.any_horizontal(matching))
    return table.select(rows.sort(sort, nulls_last=True, maintain_order=True))


def _draw(selected: "Atlas", chart: Path | None, sizes_chart: Path | None) -> None:
    if chart is None and sizes_chart is None:
        return
    from batchscale.figures.atlas_sizes import plot_sizes, sizes_frame
    from batchscale.figures.export import check_suffix, write_chart
    from batchscale.figures.kinds.atlas import TITLE, atlas_frame, plot_atlas

    for path in filter(None, (chart, sizes_chart)):
        check_suffix(path)
    if chart is not None:
        write_chart(plot_atlas(atlas_frame(selected)), chart, TITLE)
    if sizes_chart is not None:
        write_chart(plot_sizes(sizes_frame(selected)), sizes_chart, "Batch sizes of the atlas")


def _print_list(selected: "Atlas") -> None:
    from batchscale.atlas.sources import SOURCES
    from batchscale.cli.output import print_table
    from batchscale.formatting import count_text, rounded_text, span_text

    def bounds(row: dict[str, Any], name: str) -> str | None:
        return span_text(row[f"{name}_low"], row[f"{name}_high"]) or None

    rows = [
        (
            f"{row['label']}{' (' + row['optimizer'] + ')' if row['optimizer'] else ''}",
            row["goal"],
            f"{row['smallest']:,} to {row['largest']:,}" if row["smallest"] else None,
            rounded_text(row["b_opt"]) or None,
            rounded_text(row["b_crit"]) or None,
            bounds(row, "b_crit"),
            row["batch_unit"],
            row["curve"],
        )
        for row in selected.curves.iter_rows(named=True)
    ]
    columns = ("workload", "goal", "batch sizes", "B_opt", "B_crit", "90 % interval", "counted in", "curve")
    print_table(columns, rows, right=(3, 4))
    typer.echo(f"\n{count_text(len(rows), 'curve')}. Sources:")
    for name in selected.curves["source"].unique(maintain_order=True):
        source = SOURCES[name]
        typer.echo(f"  {source.title} ({source.licence}). Limits: {source.limits}.")


def _print_similar(name: str, neighbours: "list[Neighbour]", prior: "Prior") -> None:
    from batchscale.atlas.similar import prior_sentences
    from batchscale.cli.output import print_table
    from batchscale.formatting import rounded_text

    typer.echo(f"Most like {name}:")
    rows = [
        (item.row["label"], item.row["source"], rounded_text(item.row["b_crit"]) or None, ", ".join(item.reasons))
        for item in neighbours
    ]
    print_table(("curve", "source", "B_crit", "why"), rows, right=(2,))
    typer.echo()
    for sentence in prior_sentences(prior):
        typer.echo(sentence)


def _prior_json(prior: "Prior") -> dict[str, Any]:
    from batchscale.atlas.similar import prior_sentences

    return {
        "b_crit": prior.b_crit,
        "b_crit_low": prior.b_crit_low,
        "b_crit_high": prior.b_crit_high,
        "batch_sizes": list(prior.batch_sizes),
        "max_useful_batch_size": prior.useful_high,
        "sentences": prior_sentences(prior),
    }


def _sources(selected: "Atlas") -> dict[str, Any]:
    return {name: _source_json(name) for name in selected.curves["source"].unique(maintain_order=True)}


def _source_json(name: str) -> dict[str, str]:
    from dataclasses import asdict

    from batchscale.atlas.sources import SOURCES

    return asdict(SOURCES[name])
