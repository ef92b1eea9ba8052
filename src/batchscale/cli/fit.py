"""``batchscale fit``: the scaling law and the regimes of bare points."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from batchscale.analysis import Analysis


def fit(
    path: Annotated[
        Path, typer.Argument(metavar="CURVE.csv", help="CSV with the columns batch_size and steps.", show_default=False)
    ],
    baseline: Annotated[
        str, typer.Option(help="Perfect scaling line: robust (the smallest batch sizes agree) or first (the paper's).")
    ] = "robust",
    tau: Annotated[float, typer.Option(help="How far above the line still counts as perfect scaling.")] = 0.3,
    useful: Annotated[float, typer.Option(help="How far above the fewest steps still counts as useful.")] = 0.2,
    json_: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Fit steps = S_min (1 + B_crit/B), and its sharper family, to the points of a curve."""
    from batchscale.analysis import Options, Thresholds, analyze_points, read_curve
    from batchscale.analysis.as_json import scaling_json
    from batchscale.analysis.scaling import FEWEST_POINTS
    from batchscale.cli.choices import parse_baseline
    from batchscale.cli.output import print_json
    from batchscale.errors import AnalysisError

    options = Options(parse_baseline(baseline), Thresholds(perfect=tau, useful=useful))
    curve = read_curve(path)
    if len(curve) < FEWEST_POINTS:
        raise AnalysisError(
            f"{path}: a scaling fit needs the steps to result at {FEWEST_POINTS} batch sizes or more. "
            f"Found {len(curve)}."
        )
    answer = analyze_points(curve, options)
    if json_:
        print_json(scaling_json(answer))
    else:
        _print_fit(answer)


def _print_fit(answer: "Analysis") -> None:
    from batchscale.analysis import critical_sentence, scaling_sentences
    from batchscale.cli.output import print_table

    found = answer.regimes
    assert found is not None  # fewer points than regimes need were refused before
    if found.fit is not None:
        best = found.fit.best
        laws = {size: float(best.steps(size)[0]) for size in answer.curve["batch_size"].to_list()}
        rows = [
            (int(size), f"{steps:,.6g}", f"{laws[size]:,.6g}", f"{steps / laws[size] - 1:+.1%}")
            for size, steps in answer.curve.rows()
        ]
        print_table(("batch size", "steps", "fit", "off by"), rows, right=(0, 1, 2, 3))
        typer.echo()
        print_table(
            ("family", "S_min", "B_crit", "k", "rms log", "AICc", "chosen"),
            [
                (
                    one.family.value,
                    f"{one.s_min:,.4g}",
                    f"{one.b_crit:,.4g}",
                    f"{one.sharpness:.3g}",
                    f"{one.rms_log:.3f}",
                    None if one.aicc is None else f"{one.aicc:.1f}",
                    one is best,
                )
                for one in found.fit.families
            ],
            right=(1, 2, 3, 4, 5),
        )
        typer.echo()
    for sentence in (*scaling_sentences(found), critical_sentence(found, answer.intervals)):
        typer.echo(sentence)
