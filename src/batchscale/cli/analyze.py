"""``batchscale analyze``: the curve of a workload, its regimes, and how certain they are."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchscale.cli.selection import (
    BAND_HELP,
    BASELINE_HELP,
    GOAL_HELP,
    PERFECT_HELP,
    RECORDS_HELP,
    USEFUL_HELP,
    WORKLOAD_HELP,
    print_notice,
)

if TYPE_CHECKING:
    from batchscale.analysis.curve_analysis import Analysis

COLUMNS = ("batch size", "steps", "90 % interval", "examples", "trial", "reached", "infeasible", "notes")


def analyze(
    path: Annotated[Path, typer.Argument(metavar="PATH", help=RECORDS_HELP)],
    goal: Annotated[str | None, typer.Option(help=GOAL_HELP)] = None,
    workload: Annotated[str | None, typer.Option(help=f"{WORKLOAD_HELP} Default: all.")] = None,
    baseline: Annotated[str, typer.Option(help=BASELINE_HELP)] = "robust",
    tau: Annotated[float, typer.Option(help=PERFECT_HELP)] = 0.3,
    useful: Annotated[float, typer.Option(help=USEFUL_HELP)] = 0.2,
    band: Annotated[float, typer.Option(help=BAND_HELP)] = 0.05,
    seed: Annotated[int, typer.Option(help="The seed of the resampling for intervals.", min=0)] = 0,
    searched: Annotated[
        bool, typer.Option("--searched", help="Use the best trial of each search, not its confirmation by new seeds.")
    ] = False,
    json_: Annotated[
        bool, typer.Option("--json", help="Print a JSON object (a list for several workloads) instead of text.")
    ] = False,
) -> None:
    """Show steps to result per batch size, with intervals and regimes.

    Prints the curve as a table, then the three regimes, the critical batch size and what would make them more certain.
    """
    from batchscale.analysis.as_json import analysis_json
    from batchscale.analysis.curve_analysis import AnalysisOptions
    from batchscale.analysis.curve_analysis import analyze as analyze_workload
    from batchscale.analysis.intervals import Resampling
    from batchscale.analysis.regimes import Thresholds
    from batchscale.cli.output import print_json
    from batchscale.cli.selection import open_records, parse_baseline, select_goal, select_workloads
    from batchscale.errors import AnalysisError

    options = AnalysisOptions(
        parse_baseline(baseline),
        Thresholds(perfect=tau, useful=useful, band=band),
        Resampling(seed=seed),
        confirmed=not searched,
    )
    records = open_records(path)
    names = select_workloads(records, workload)
    goals = [select_goal(records, name, goal) for name in names]
    analyses = []
    for name, workload_goal in zip(names, goals, strict=True):
        try:
            analyses.append(analyze_workload(records, name, workload_goal, options))
        except AnalysisError as error:
            if len(names) == 1:
                raise
            print_notice(str(error))  # other workloads still have a result
    if not analyses:
        raise AnalysisError("A workload must have a COMPLETE trial to be analyzed. Found none in these workloads.")
    if json_:
        objects = [analysis_json(analysis) for analysis in analyses]
        print_json(objects[0] if len(objects) == 1 else objects)
        return
    for i, analysis in enumerate(analyses):
        if i:
            typer.echo()
        _print_analysis(analysis)


def _print_analysis(analysis: "Analysis") -> None:
    from batchscale.analysis.sentences import answer_sentences
    from batchscale.cli.output import print_table

    typer.echo(f"{analysis.workload}, goal {analysis.goal}")
    print_table(COLUMNS, [_row(row) for row in analysis.curve.iter_rows(named=True)], right=(0, 1, 2, 3, 4, 5, 6))
    typer.echo()
    for sentence in answer_sentences(analysis):
        typer.echo(sentence)


def _row(row: dict[str, Any]) -> tuple[object, ...]:
    from batchscale.formatting import span_text, whole_text
    from batchscale.records.metadata.study import study_note

    low, high = row["steps_low"], row["steps_high"]
    span = span_text(low, high, whole_text) or None
    notes = [
        study_note(row["edge"] if row["at_edge"] else None, row["searches"]),
        f"{row['stopped']} stopped early" if row["stopped"] else "",
        "still moves" if row["still_moves"] else "",
        f"{row['seeds']} new seeds, search alone {row['search_steps']:,}" if row["seeds"] else "",
        "one finisher: no interval" if row["interval_note"] and low is None else "",
    ]
    reached = f"{row['reached']}/{row['trials']}"
    note = "; ".join(text for text in notes if text)
    return (row["batch_size"], row["steps"], span, row["examples"], row["trial_id"], reached, row["infeasible"], note)
