"""``batchscale analyze``: the curve of a workload, its regimes, and how certain they are."""

from pathlib import Path
from typing import Annotated

import typer

from batchscale.cli.completion import complete_workloads
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


def analyze(
    path: Annotated[Path, typer.Argument(metavar="PATH", help=RECORDS_HELP)],
    goal: Annotated[str | None, typer.Option(help=GOAL_HELP)] = None,
    workload: Annotated[
        str | None, typer.Option(help=f"{WORKLOAD_HELP} Default: all.", autocompletion=complete_workloads)
    ] = None,
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
    from batchscale.cli.answer import print_answer, print_points
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
        print_answer(analysis)
        print_points(analysis)
