"""``batchscale fit``: the scaling law and the regimes of a CSV file of points."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.selection import BAND_HELP, BASELINE_HELP, JSON_HELP, PERFECT_HELP, USEFUL_HELP

if TYPE_CHECKING:
    from batchscale.analysis.curve_analysis import Analysis

EVERY_HELP = (
    "The number of steps between two evaluations: the goal was reached up to so many steps earlier. Without it, an "
    "interval that divides all steps counts. A column spacing of the file comes first."
)


def fit(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="CURVE.csv",
            help="A CSV file with the columns batch_size and steps, and spacing if known: a row per size or per run.",
        ),
    ],
    baseline: Annotated[
        str,
        typer.Option(help=BASELINE_HELP),
    ] = "robust",
    tau: Annotated[float, typer.Option(help=PERFECT_HELP)] = 0.3,
    useful: Annotated[float, typer.Option(help=USEFUL_HELP)] = 0.2,
    band: Annotated[float, typer.Option(help=BAND_HELP)] = 0.05,
    evaluate_every: Annotated[int | None, typer.Option(min=1, metavar="STEPS", help=EVERY_HELP)] = None,
    tokens_per_example: Annotated[
        int | None,
        typer.Option(min=1, max=2**31 - 1, help="The tokens of an example: write tokens. Default: write examples."),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Fit the scaling law to a CSV file of batch sizes and steps.

    The law is steps = S_min (1 + B_crit/B) or one of four other families, whichever describes the points best.
    """
    import polars as pl

    from batchscale.analysis.as_json import fit_json
    from batchscale.analysis.curve_analysis import AnalysisOptions, analyze_points
    from batchscale.analysis.curves import read_curve
    from batchscale.analysis.regimes import Thresholds
    from batchscale.analysis.scaling import FEWEST_POINTS
    from batchscale.cli.output import print_json
    from batchscale.cli.selection import parse_baseline
    from batchscale.errors import AnalysisError

    options = AnalysisOptions(
        parse_baseline(baseline),
        Thresholds(perfect=tau, useful=useful, band=band),
        tokens_per_example=tokens_per_example,
    )
    rows = read_curve(path)
    if evaluate_every is not None:
        given = pl.col("spacing") if "spacing" in rows.columns else pl.lit(None, dtype=pl.Float64)
        rows = rows.with_columns(given.fill_null(float(evaluate_every)).alias("spacing"))
    sizes = rows.drop_nulls("steps")["batch_size"].n_unique()
    if sizes < FEWEST_POINTS:
        raise AnalysisError(
            f"{path}: a scaling fit needs the steps to result at {FEWEST_POINTS} batch sizes or more. Found {sizes}."
        )
    answer = analyze_points(rows, options)
    if json_:
        print_json(fit_json(answer))
    else:
        _print_fit(answer)


def _print_fit(answer: "Analysis") -> None:
    from batchscale.cli.answer import print_answer
    from batchscale.cli.output import print_table

    summary = answer.summary
    assert summary is not None  # too few points were refused before
    print_answer(answer)
    typer.echo()
    columns = [*answer.unit.size_columns, "runs", "steps", "90 % interval", answer.unit.noun]
    columns += [] if summary.fit is None else ["fit", "off by"]
    print_table(columns, _rows(answer), right=range(len(columns)))
    typer.echo(f"{answer.unit.noun.capitalize()}: times the fewest.")
    if summary.fit is not None:
        typer.echo()
        print_table(
            ("family", "S_min", "B_crit", "B_opt", "k", "rms log", "AICc", "chosen"),
            [
                (
                    family.family.value,
                    None if family.s_min is None else _digits(family.s_min),
                    None if family.b_crit is None else answer.unit.short(family.b_crit, _digits),
                    None if family.b_opt is None else answer.unit.short(family.b_opt, _digits),
                    None if family.sharpness is None else _digits(family.sharpness, 3),
                    f"{family.rms_log:.3f}",
                    None if family.aicc is None else f"{family.aicc:.1f}",
                    family is summary.fit.best,
                )
                for family in summary.fit.families
            ],
            right=(1, 2, 3, 4, 5, 6),
        )


def _rows(answer: "Analysis") -> list[tuple[object, ...]]:
    from batchscale.analysis.measured import examples_ratio
    from batchscale.formatting import times_text

    summary = answer.summary
    assert summary is not None
    rows: list[tuple[object, ...]] = []
    columns = ("batch_size", "steps", "steps_low", "steps_high", "runs")
    for size, steps, low, high, runs in answer.curve.select(columns).rows():
        span = None if low is None else f"{_steps_text(low)} to {_steps_text(high)}"
        examples = times_text(examples_ratio(summary, size, summary.regimes.cheapest))
        row: tuple[object, ...] = (*answer.unit.size_cells(size), runs, _steps_text(steps), span, examples)
        if summary.fit is not None:
            law = float(summary.fit.best.steps(size)[0])
            row += (_steps_text(law), f"{steps / law - 1:+.1%}")
        rows.append(row)
    return rows


def _steps_text(steps: float) -> str:
    """Format steps: whole numbers from 1,000 on, else four digits; never a power of ten."""
    return f"{steps:,.0f}" if steps >= 1000 else f"{steps:,.4g}"


def _digits(value: float, digits: int = 4) -> str:
    return f"{value:,.0f}" if value >= 10**digits else f"{value:,.{digits}g}"
