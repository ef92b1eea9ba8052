"""``batchscale report``: one page that a person reads first."""

from pathlib import Path
from typing import Annotated

import typer

from batchscale.cli.selection import WORKLOAD_HELP


def report(
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="A records tree, a table or an archive.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The .html file to write.")] = Path("report.html"),
    goal: Annotated[
        str | None,
        typer.Option(
            "--goal", help="Such as 'val/classification_error < 0.1'. Default: the records'.", show_default=False
        ),
    ] = None,
    workload: Annotated[
        list[str] | None,
        typer.Option("--workload", help=f"{WORKLOAD_HELP} May be given again.", show_default=False),
    ] = None,
    machines: Annotated[
        Path | None,
        typer.Option("--machines", help="machines.toml with prices: adds a plan.", show_default=False),
    ] = None,
    step_times: Annotated[
        list[Path] | None,
        typer.Option("--step-times", help="CSV of step times. Default: what the trials recorded.", show_default=False),
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print what the report states as a JSON object.")] = False,
) -> None:
    """Write a self-contained HTML report: the answer in words, the curve, and how far to trust it."""
    from batchscale.figures.selection import select_records
    from batchscale.records.read import read_records
    from batchscale.report.machines import PlanningFiles
    from batchscale.report.page import check_report_path, write_report
    from batchscale.spec.goal import Goal

    check_report_path(out)
    wanted = None if goal is None else Goal.parse(goal)
    records = read_records(path, lambda text: typer.echo(f"Notice: {text}", err=True))
    planning = None if machines is None else PlanningFiles(machines, tuple(step_times or ()))
    chosen = select_records(records, workload or [])
    write_report(chosen, out, wanted, name=path.name or "records", planning=planning)
    if json_:
        from batchscale.cli.output import print_json
        from batchscale.report.as_json import report_json

        print_json(report_json(chosen, wanted, out))
        return
    typer.echo(str(out))
