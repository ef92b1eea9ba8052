"""``batchscale report``: one HTML page with the result of records."""

from pathlib import Path
from typing import Annotated

import typer

from batchscale.cli.completion import complete_workloads
from batchscale.cli.selection import GOAL_HELP, RECORDS_HELP, WORKLOAD_HELP, print_notice


def report(
    path: Annotated[Path, typer.Argument(metavar="PATH", help=RECORDS_HELP)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The .html file to write.")] = Path("report.html"),
    goal: Annotated[
        str | None,
        typer.Option(help=GOAL_HELP),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option(help=f"{WORKLOAD_HELP} Default: all. May be repeated.", autocompletion=complete_workloads),
    ] = None,
    machines: Annotated[
        Path | None,
        typer.Option(help="A machines.toml with prices: adds a plan to the report."),
    ] = None,
    step_times: Annotated[
        list[Path] | None,
        typer.Option(help="A CSV file of step times. Default: the times of the trials."),
    ] = None,
    work: Annotated[
        Path | None,
        typer.Option(help="A CSV file of 'calibrate --work': plans machines that were not measured, by estimates."),
    ] = None,
    json_: Annotated[
        bool, typer.Option("--json", help="Also print the statements of the report as a JSON object.")
    ] = False,
) -> None:
    """Write an HTML report of the result and its certainty.

    The page is one file without links to other sites.
    """
    from batchscale.figures.selection import select_records
    from batchscale.records.read import read_records
    from batchscale.report.machines import PlanningFiles
    from batchscale.report.page import check_report_path, write_report
    from batchscale.spec.goal import Goal

    check_report_path(out)
    report_goal = None if goal is None else Goal.parse(goal)
    records = read_records(path, print_notice)
    planning = None if machines is work is None else PlanningFiles(machines, tuple(step_times or ()), work)
    selected = select_records(records, workload or [])
    write_report(selected, out, report_goal, name=path.name or "records", planning=planning)
    if json_:
        from batchscale.cli.output import print_json
        from batchscale.report.page import report_json

        print_json(report_json(selected, report_goal, out))
        return
    typer.echo(str(out))
