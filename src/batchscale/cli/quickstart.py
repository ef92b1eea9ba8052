"""``batchscale quickstart``: a whole measured curve, from nothing, in under a minute."""

import time
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.run import report_outcome, run_shown
from batchscale.formatting import duration

if TYPE_CHECKING:
    from batchscale.spec.plan import Plan

WORKLOADS = ("digits", "noisy_quadratic")


def quickstart(
    workload: Annotated[
        str, typer.Option(help="digits, or noisy_quadratic (seconds, with its closed form).")
    ] = "digits",
    out: Annotated[Path | None, typer.Option("--out", help="Folder. Default: batchscale-quickstart/WORKLOAD.")] = None,
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes. Default: one per core.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print a JSON object when it is finished.")] = False,
) -> None:
    """Measure a curve here and now: tune at eight batch sizes, find the three regimes, write a report."""
    from batchscale.cli.closing import closing_json, print_closing
    from batchscale.cli.output import print_json
    from batchscale.errors import RunError, UnknownNameError, suggest_names
    from batchscale.run.preflight import make_checked_plan
    from batchscale.run.run_settings import RunSettings
    from batchscale.spec.file import read_experiment

    if workload not in WORKLOADS:
        raise UnknownNameError(f"The quickstart has no workload '{workload}'; {suggest_names(workload, WORKLOADS)}")
    began = time.monotonic()
    folder = out or Path("batchscale-quickstart") / workload
    file = _write_experiment(folder, workload)
    experiment = read_experiment(file)
    if experiment.workload.name.dataset != workload:
        raise RunError(
            f"{folder}: a quickstart has a folder of its own. Found one with {experiment.workload.name} there. "
            "Give another folder with --out."
        )
    plan = make_checked_plan(experiment, None)
    what = f"{len(plan.studies)} batch sizes, {plan.experiment.trials} trials each, until {plan.experiment.goal}."
    typer.echo(what, err=json_)
    records = folder / "records"
    outcome = run_shown(plan, records, RunSettings(workers=workers), quiet=False)
    report_outcome(outcome, records, f"batchscale quickstart --workload {workload} --out {folder}")
    if json_:
        page = _write_page(folder, records, plan)
        print_json({**closing_json(records, plan, outcome.snapshot), "report": str(page)})
        return
    expected = None
    if workload == "noisy_quadratic":
        from batchscale.cli.closed_form import expected_steps

        expected = expected_steps(records, plan)
    print_closing(records, plan, expected)
    page = _write_page(folder, records, plan)
    _say_next(file, records, page, time.monotonic() - began)


def _write_experiment(folder: Path, workload: str) -> Path:
    """The experiment as a file of the user's own, to be read and changed; one that is there stays."""
    from batchscale.records.durable import replace_durably

    file = folder / "experiment.toml"
    if not file.exists():
        replace_durably(file, (files("batchscale.cli") / "quickstart_files" / f"{workload}.toml").read_text())
    return file


def _write_page(folder: Path, records: Path, plan: "Plan") -> Path:
    from batchscale.records.tree.read import read_tree
    from batchscale.report.page import write_report

    page = folder / "report.html"
    write_report(read_tree(records), page, plan.experiment.goal, name=str(records.name))
    return page


def _say_next(file: Path, records: Path, page: Path, seconds: float) -> None:
    typer.echo(f"\nAll of it took {duration(seconds)}.")
    typer.echo(f"  report       {page}")
    typer.echo(f"  records      {records}")
    typer.echo(f"  experiment   {file}")
    typer.echo("Next:")
    typer.echo(f"  how sure is it?            batchscale analyze {records}")
    typer.echo(f"  more trials                raise them in {file.name}, then batchscale run {file} --out {records}")
    typer.echo("  an experiment of your own  batchscale init my.toml")
