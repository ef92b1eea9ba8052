"""``batchscale compare``: several curves compared with the first."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchscale.cli.completion import complete_workloads
from batchscale.cli.selection import BASELINE_HELP, JSON_HELP, WORKLOAD_HELP

if TYPE_CHECKING:
    from batchscale.analysis.curve_analysis import Analysis, AnalysisOptions
    from batchscale.analysis.units import SizeUnit


def compare(
    paths: Annotated[
        list[Path],
        typer.Argument(metavar="CURVES", help="Records (each workload is a curve) or CSV files of curves."),
    ],
    goal: Annotated[str | None, typer.Option(help="One goal for all curves. Default: the goal of each study.")] = None,
    workload: Annotated[
        str | None, typer.Option(help=f"{WORKLOAD_HELP} Default: all.", autocompletion=complete_workloads)
    ] = None,
    baseline: Annotated[str, typer.Option(help=BASELINE_HELP)] = "robust",
    normalise_at: Annotated[
        int | None,
        typer.Option(min=1, help="The batch size at which all curves are 1. Default: the smallest in common."),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Compare how far several curves scale.

    Prints the ratios of critical batch sizes with intervals, and a sentence for each curve.
    """
    from batchscale.analysis.as_json import VERSION
    from batchscale.analysis.comparison import common_unit
    from batchscale.analysis.comparison import compare as compare_curves
    from batchscale.analysis.curve_analysis import AnalysisOptions
    from batchscale.cli.output import print_json
    from batchscale.cli.selection import parse_baseline

    options = AnalysisOptions(parse_baseline(baseline))
    analyses: dict[str, Analysis] = {}
    for path in paths:
        for name, analysis in _analyze_path(path, goal, workload, options):
            analyses[name if name not in analyses else f"{path}: {name}"] = analysis
    result = compare_curves(analyses, level=options.resampling.level, normalise_at=normalise_at)
    if json_:
        print_json(
            {
                "version": VERSION,
                "curves": result.table.to_dicts(),
                "normalised": result.overlay.to_dicts(),
                "sentences": list(result.sentences),
                "tokens_per_example": {name: analysis.unit.tokens_per_example for name, analysis in analyses.items()},
            }
        )
        return
    _print_comparison(result.table.to_dicts(), common_unit(analyses.values()))
    typer.echo()
    for sentence in result.sentences:
        typer.echo(sentence)


def _analyze_path(
    path: Path, goal: str | None, workload: str | None, options: "AnalysisOptions"
) -> "list[tuple[str, Analysis]]":
    from batchscale.analysis.curve_analysis import analyze, analyze_points
    from batchscale.analysis.curves import read_curve
    from batchscale.cli.selection import open_records, select_goal, select_workloads

    if path.suffix.lower() == ".csv":
        return [(path.stem, analyze_points(read_curve(path), options))]
    records = open_records(path)
    return [
        (str(name), analyze(records, name, select_goal(records, name, goal), options))
        for name in select_workloads(records, workload)
    ]


def _print_comparison(rows: list[dict[str, Any]], unit: "SizeUnit") -> None:
    from batchscale.cli.output import print_table
    from batchscale.formatting import rounded_text, span_text

    def size(value: float | None) -> str | None:
        return None if value is None else unit.short(value, rounded_text)

    tokens = " (tokens)" if unit.tokens_per_example else ""
    print_table(
        (
            "curve",
            f"perfect scaling to{tokens}",
            f"useful to{tokens}",
            f"B_opt{tokens}",
            f"B_crit{tokens}",
            "90 % interval",
            "ratio",
            "90 % interval",
            "notes",
        ),
        [
            (
                row["name"],
                None if row["perfect_scaling_end"] is None else unit.short(row["perfect_scaling_end"]),
                f"{'' if row['max_useful_reached'] else '≥ '}{unit.short(row['max_useful_batch_size'])}"
                if row["max_useful_batch_size"] is not None
                else None,
                size(row["b_opt"]),
                size(row["b_crit"]),
                span_text(row["b_crit_low"], row["b_crit_high"], lambda end: unit.short(end, rounded_text)) or None,
                None if row["ratio"] is None else rounded_text(row["ratio"]),
                span_text(row["ratio_low"], row["ratio_high"]) or None,
                row["notes"] or "",
            )
            for row in rows
        ],
        right=(1, 2, 3, 4, 5, 6, 7),
    )
