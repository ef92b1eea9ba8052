"""``batchscale law``: batch size and learning rate against tokens and parameters, as power laws that are checked."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchscale.cli.selection import GOAL_HELP, JSON_HELP, WORKLOAD_HELP, print_notice

if TYPE_CHECKING:
    from batchscale.analysis.laws import Laws
    from batchscale.analysis.power_law import LawPrediction, PowerLaw
    from batchscale.atlas.published_laws import PublishedLaw

VERSION = 1
METHODS = ("power-law", "noisy-quadratic-system")
INPUT_HELP = (
    "A CSV file of runs (parameters, tokens, batch_size, learning_rate, loss); or three or more curves: records, or "
    "CSV files with batch_size and steps. Default: the public runs of Step Law."
)
NAMES = {"b_opt": "B_opt", "b_crit": "B_crit", "learning_rate": "learning rate"}


def law(
    inputs: Annotated[list[Path] | None, typer.Argument(metavar="[INPUT]...", help=INPUT_HELP)] = None,
    tokens: Annotated[str | None, typer.Option(help="The tokens of a planned run, such as 20B.")] = None,
    parameters: Annotated[str | None, typer.Option(help="The parameters of its model, such as 1.5B.")] = None,
    sequence: Annotated[
        int | None, typer.Option(min=1, help="The tokens of a sequence, where batch sizes count sequences.")
    ] = None,
    model_parameters: Annotated[
        str | None, typer.Option(help="The parameters of the models of several curves, in their order: 70M,160M,410M.")
    ] = None,
    goal: Annotated[str | None, typer.Option(help=GOAL_HELP)] = None,
    workload: Annotated[str | None, typer.Option(help=WORKLOAD_HELP)] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the points of the laws to this file.")] = None,
    chart: Annotated[
        Path | None, typer.Option(help="Draw the laws with their points (.png, .svg, .pdf, .html).")
    ] = None,
    tokens_chart: Annotated[
        Path | None, typer.Option(help="Draw loss against batch size at fixed tokens, for a grid of runs.")
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="The law: power-law, or noisy-quadratic-system: the loss over parameters, batch size and steps."
        ),
    ] = METHODS[0],
    loss: Annotated[float | None, typer.Option(help="The goal of noisy-quadratic-system, with --parameters.")] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Fit laws of batch size and learning rate over data and models.

    Each law is checked on models (or curves) that were left out, and compared with published ones.
    """
    from batchscale.cli.law_inputs import read_laws
    from batchscale.cli.output import print_json
    from batchscale.errors import SpecError, one_line
    from batchscale.spec.amounts import parse_amount

    planned = None if tokens is None else parse_amount(tokens, "--tokens")
    size = None if parameters is None else parse_amount(parameters, "--parameters")
    if method not in METHODS:
        raise SpecError(f"--method must be {' or '.join(METHODS)}. Found '{one_line(method)}'.")
    if method == METHODS[1]:
        from batchscale.cli.law_system import fit_and_print

        given: dict[str, object] = {"--tokens": tokens, "--model-parameters": model_parameters, "--goal": goal}
        given |= {"--workload": workload, "--csv": csv, "--chart": chart, "--tokens-chart": tokens_chart}
        foreign = [name for name, value in given.items() if value is not None]
        if foreign:
            raise SpecError(f"--method {method} takes a grid of runs, --parameters and --loss. Found {foreign[0]}.")
        fit_and_print(inputs or [], sequence, size, loss, as_json=json_)
        return
    if loss is not None:
        raise SpecError(f"--loss needs --method {METHODS[1]}. Found --loss alone.")
    if planned is None and size is not None:
        raise SpecError("--parameters needs --tokens: a law predicts for a number of tokens. Found --parameters alone.")
    sizes = None if model_parameters is None else model_parameters.split(",")
    models = None if sizes is None else [parse_amount(text, "--model-parameters") for text in sizes]
    source, laws, grid = read_laws(inputs or [], sequence, models, workload, goal)
    predictions = {} if planned is None else _predict(laws, planned, size)
    if csv is not None:
        _write_points(laws, csv)
    _draw(laws, predictions, grid, chart, tokens_chart)
    if json_:
        print_json(_json(source, laws, predictions))
    else:
        _print(source, laws, predictions)


def _predict(laws: "Laws", tokens: float, parameters: float | None) -> "dict[str, LawPrediction]":
    """Return the predictions of all laws; a law of parameters that are not given is left out with a notice."""
    from batchscale.errors import AnalysisError

    predictions = {}
    for quantity, fitted in laws.laws.items():
        try:
            predictions[quantity] = fitted.predict(tokens, parameters)
        except AnalysisError as error:
            print_notice(str(error))
    return predictions


def _write_points(laws: "Laws", path: Path) -> None:
    import polars as pl

    from batchscale.records.output_file import write_output

    frames = [fitted.points.with_columns(pl.lit(name).alias("quantity")) for name, fitted in laws.laws.items()]
    write_output(path, (pl.concat(frames) if frames else pl.DataFrame()).write_csv())


def _draw(laws: "Laws", predictions: "dict[str, LawPrediction]", grid: Any, *charts: Path | None) -> None:
    if not any(charts):
        return
    from batchscale.errors import AnalysisError
    from batchscale.figures.export import check_suffix, write_chart
    from batchscale.figures.law_charts import iso_token_frame, law_frame, plot_iso_tokens, plot_laws

    chart, tokens_chart = charts
    for path in filter(None, charts):
        check_suffix(path)
    if chart is not None:
        write_chart(plot_laws(law_frame(laws, predictions)), chart, "Laws over tokens")
    if tokens_chart is not None:
        if grid is None:
            raise AnalysisError("--tokens-chart needs a grid of runs with losses. Found curves.")
        write_chart(plot_iso_tokens(iso_token_frame(grid)), tokens_chart, "Loss against batch size at fixed tokens")


def law_text(fitted: "PowerLaw") -> str:
    """Return the formula of a law.

    The exponents have three digits, as published ones do.
    """
    from batchscale.formatting import metaparameter_text

    letters = {"tokens": "D", "parameters": "N"}
    powers = " ".join(f"{letters[name]}^{fitted.exponents[name]:.3f}" for name in fitted.names)
    return f"{metaparameter_text(fitted.scale)} {powers}"


def value_text(quantity: str, value: float) -> str:
    """Return a batch size in tokens, or a learning rate, in three digits."""
    from batchscale.formatting import metaparameter_text, rounded_text

    return metaparameter_text(value) if quantity == "learning_rate" else rounded_text(value)


def _span(quantity: str, low: float, high: float) -> str:
    return f"{value_text(quantity, low)} to {value_text(quantity, high)}"


def _print(source: str, laws: "Laws", predictions: "dict[str, LawPrediction]") -> None:
    from batchscale.cli.output import print_table
    from batchscale.formatting import percent_text

    typer.echo(f"Laws over {laws.unit} D and parameters N, from {source}. Batch sizes are in {laws.unit}.")
    rows = [
        (
            NAMES[quantity],
            law_text(fitted),
            "{:.2f} to {:.2f}".format(*fitted.exponent_ranges["tokens"]),
            "{:.2f} to {:.2f}".format(*fitted.exponent_ranges["parameters"]) if len(fitted.names) > 1 else None,
            len(fitted.points),
            f"{percent_text(fitted.covered)} in a 90 % interval",
        )
        for quantity, fitted in laws.laws.items()
    ]
    if rows:
        print_table(("quantity", "law", "exponent of D", "of N", "points", "left out and predicted"), rows, right=(4,))
    for quantity, reason in laws.refusals.items():
        typer.echo(f"No law of {NAMES[quantity]}: {reason}")
    if predictions:
        typer.echo()
        _print_predictions(predictions, laws.unit)
    typer.echo()
    _print_published(laws, predictions)


def _print_predictions(predictions: "dict[str, LawPrediction]", unit: str) -> None:
    from batchscale.cli.output import print_table
    from batchscale.formatting import rounded_text, times_text

    first = next(iter(predictions.values()))
    model = "" if first.parameters is None else f" and {rounded_text(first.parameters)} parameters"
    typer.echo(f"For {rounded_text(first.tokens)} {unit}{model}:")
    rows = [
        (
            NAMES[quantity],
            value_text(quantity, item.value),
            _span(quantity, item.low, item.high),
            "inside the points" if item.outside == 1 else f"{times_text(item.outside)} times outside the points",
        )
        for quantity, item in predictions.items()
    ]
    print_table(("quantity", "prediction", "90 % interval", "where"), rows, right=(1,))


def _print_published(laws: "Laws", predictions: "dict[str, LawPrediction]") -> None:
    from batchscale.cli.output import print_table

    rows = []
    for published, fitted, value, agrees in compare_published(laws, predictions):
        rows.append(
            (
                NAMES[published.quantity],
                published.name,
                published.formula,
                None if value is None else value_text(published.quantity, value),
                {True: "yes", False: "no", None: None}[agrees],
                published.source.partition(",")[0] if fitted else None,
            )
        )
    if rows:
        where = "there" if predictions else "in the middle of the points"
        typer.echo(f"Published laws, and whether they lie in our interval {where}:")
        print_table(("quantity", "law", "formula", "value", "agrees", "source"), rows, right=(3,))


def compare_published(
    laws: "Laws", predictions: "dict[str, LawPrediction]"
) -> "list[tuple[PublishedLaw, PowerLaw, float | None, bool | None]]":
    """Return published laws beside fitted ones, their value where ours was predicted, and whether our interval has it.

    They are laws of tokens; curves in examples are compared with none. Without a prediction the place is the middle of
    the points. A law without a scale is compared by its exponent.
    """
    import math

    from batchscale.atlas.published_laws import find_published

    compared: list[tuple[PublishedLaw, PowerLaw, float | None, bool | None]] = []
    if laws.unit != "tokens":
        return compared
    for quantity, fitted in laws.laws.items():
        ours = predictions.get(quantity)
        if ours is None:
            logs = {name: fitted.points[name].log().mean() for name in ("tokens", "parameters")}
            middle = {name: None if value is None else math.exp(float(value)) for name, value in logs.items()}  # type: ignore[arg-type]
            ours = fitted.predict(middle["tokens"] or 1.0, middle["parameters"])
        for published in find_published(quantity):
            value = published.value(ours.tokens, ours.parameters)
            low, high = fitted.exponent_ranges["tokens"]
            agrees = ours.low <= value <= ours.high if value is not None else None
            if published.scale is None:
                agrees = low <= published.exponents["tokens"] <= high
            compared.append((published, fitted, value, agrees))
    return compared


def _json(source: str, laws: "Laws", predictions: "dict[str, LawPrediction]") -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "version": VERSION,
        "source": source,
        "unit": laws.unit,
        "laws": {
            name: {
                "formula": law_text(fitted),
                "scale": fitted.scale,
                "exponents": dict(fitted.exponents),
                "exponent_ranges": {key: list(ends) for key, ends in fitted.exponent_ranges.items()},
                "scatter": fitted.scatter,
                "law_scatter": fitted.law_scatter,
                "covered": fitted.covered,
                "points": fitted.points.to_dicts(),
            }
            for name, fitted in laws.laws.items()
        },
        "refusals": laws.refusals,
        "predictions": {name: asdict(item) for name, item in predictions.items()},
        "published": [
            {**asdict(published), "exponents": dict(published.exponents), "value": value, "agrees": agrees}
            for published, _, value, agrees in compare_published(laws, predictions)
        ],
    }
