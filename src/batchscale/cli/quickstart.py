"""``batchscale quickstart``: a complete measured curve in under a minute."""

import time
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from batchscale.cli.progress import run_with_progress
from batchscale.cli.run import print_outcome
from batchscale.formatting import count_text, duration

if TYPE_CHECKING:
    from batchscale.spec.plan import Plan

WORKLOADS = ("digits", "noisy_quadratic")


def quickstart(
    workload: Annotated[
        str, typer.Option(help="The workload: digits, or noisy_quadratic (seconds, beside its closed form).")
    ] = "digits",
    out: Annotated[
        Path | None, typer.Option(help="The folder to write. Default: batchscale-quickstart/WORKLOAD.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="The number of worker processes. Default: one per core.")
    ] = None,
    json_: Annotated[bool, typer.Option("--json", help="Print a JSON object at the end instead of text.")] = False,
) -> None:
    """Measure a complete curve on this machine in under a minute.

    Tunes a small workload at eight batch sizes, finds the three regimes and writes a report.
    """
    from batchscale.errors import UnknownNameError, suggest_names
    from batchscale.run.early_start import find_fork_server

    if workload not in WORKLOADS:
        raise UnknownNameError(f"--workload: the quickstart has no '{workload}'; {suggest_names(workload, WORKLOADS)}")
    start = time.monotonic()
    folder = out or Path("batchscale-quickstart") / workload
    file = _write_experiment(folder, workload)
    records = folder / "records"
    plan = _make_plan(file, workload)
    sizes, trials = count_text(len(plan.studies), "batch size"), count_text(plan.experiment.trials, "trial")
    typer.echo(f"{sizes}, {trials} each, until {plan.experiment.goal}.", err=json_)
    from batchscale.run.settings import RunSettings

    settings = RunSettings(workers=workers, fork_server=find_fork_server(file, records))
    outcome = run_with_progress(plan, records, settings, quiet=False)
    print_outcome(outcome, records, f"batchscale quickstart --workload {workload} --out {folder}")
    from batchscale.cli.output import print_json
    from batchscale.cli.run_result import print_result, result_json

    if json_:
        page = _write_page(folder, records, plan)
        print_json({**result_json(records, plan, outcome.status), "report": str(page)})
        return
    expected = expected_steps(records, plan) if workload == "noisy_quadratic" else None
    print_result(records, plan, expected)
    page = _write_page(folder, records, plan)
    _print_next(file, records, page, time.monotonic() - start)


def _write_experiment(folder: Path, workload: str) -> Path:
    """Write the experiment file, for the user to read and change; an existing one stays."""
    from batchscale.records.output_file import write_output

    file = folder / "experiment.toml"
    if not file.exists():
        write_output(file, (files("batchscale.cli") / "quickstart_files" / f"{workload}.toml").read_text())
    return file


def _make_plan(file: Path, workload: str) -> "Plan":
    from batchscale.errors import RunError
    from batchscale.run.preflight import make_checked_plan
    from batchscale.spec.file import read_experiment

    experiment = read_experiment(file)
    if experiment.workload.name.dataset != workload:
        raise RunError(
            f"--out must be a new folder or one of the same quickstart: {file.parent} has {experiment.workload.name}. "
            "Pass another."
        )
    return make_checked_plan(experiment, None)


def expected_steps(root: Path, plan: "Plan") -> Mapping[int, int]:
    """Return the closed form beside a measured curve of the noisy quadratic model.

    Per batch size the fewest evaluated steps after which the expected loss of one of its trials passes the goal, over
    the same trials and evaluation steps as the records: only the luck of single trials differs.
    """
    from batchscale.noisy_quadratic import UpdateRule, closed_form_steps_to_loss, parse_problem
    from batchscale.records.tree.read import read_tree

    spec = plan.experiment.workload
    problem = parse_problem(spec.dataset_options)
    trials = read_tree(root).workload(spec.name).trials
    expected = {}
    for study in plan.studies:
        steps: list[int] = []
        for row in trials.filter(batch_size=study.batch_size, status="COMPLETE").to_dicts():
            rule = UpdateRule(spec.name.optimizer, row["learning_rate"], row.get("momentum") or 0.0)
            limit = min(steps, default=study.train_steps)
            step = closed_form_steps_to_loss(problem, rule, study.batch_size, study.goal.value, limit)
            if step is not None:
                steps.append(next(s for s in study.evaluation_steps if s >= step))
        if steps:
            expected[study.batch_size] = min(steps)
    return expected


def _write_page(folder: Path, records: Path, plan: "Plan") -> Path:
    from batchscale.records.tree.read import read_tree
    from batchscale.report.page import write_report

    page = folder / "report.html"
    write_report(read_tree(records), page, plan.experiment.goal, name=str(records.name))
    return page


def _print_next(file: Path, records: Path, page: Path, seconds: float) -> None:
    rows = (
        ("Report", page),
        ("Records", records),
        ("Experiment", file),
        ("Extend", f"raise trials in {file.name}, then: batchscale run {file} --out {records}"),
        ("Your own", "batchscale init my.toml"),
    )
    typer.echo(f"\nFinished in {duration(seconds)}. A second run gives the same curve; another processor rounds")
    typer.echo("otherwise, and may move a point by a few steps.")
    for label, text in rows:
        typer.echo(f"  {label:<12}{text}")
