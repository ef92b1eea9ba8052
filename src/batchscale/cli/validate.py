"""``batchscale validate``: check an experiment file and show what would be run."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchscale.cli.output import print_json, print_table
from batchscale.formatting import duration, size

if TYPE_CHECKING:
    from batchscale.cli.validate_time import RunTime
    from batchscale.spec.experiment import Experiment
    from batchscale.spec.plan import Plan, WorkloadInfo

VERSION = 1


@dataclass(frozen=True)
class _Found:
    """What is known of an experiment before it runs. ``data`` is None where nobody but a script knows."""

    plan: "Plan"
    facts: "WorkloadInfo"
    data: str | None
    data_present: bool | None
    records_bytes: int
    time: "RunTime | None"


def validate(
    file: Annotated[Path, typer.Argument(help="The experiment file (TOML).")],
    data_dir: Annotated[Path | None, typer.Option(help="Where the data sets are.")] = None,
    time: Annotated[
        bool, typer.Option("--time", help="Time a step of every batch size here, and estimate the whole run.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Check an experiment file and print what would be run: data, studies, trials, steps and their cost."""
    from batchscale.errors import SpecError
    from batchscale.run.disk import records_bytes
    from batchscale.run.preflight import find_facts
    from batchscale.spec.file import read_experiment
    from batchscale.spec.plan import make_plan

    experiment = read_experiment(file)
    try:
        facts = find_facts(experiment, data_dir)
        plan = make_plan(experiment, facts)
    except SpecError as error:
        raise SpecError(f"{file}: {error}") from None
    data, present = _find_data(experiment, data_dir)
    measured = _measure(plan, data_dir) if time else None
    found = _Found(plan, facts, data, present, records_bytes(plan), measured)
    if as_json:
        print_json(_to_json(found))
    else:
        _print(found)


def _find_data(experiment: "Experiment", data_dir: Path | None) -> tuple[str | None, bool | None]:
    """Where the data is or how to get it, and whether it is there; a file of the user's own was loaded already."""
    from batchscale.workloads.datasets.files.locations import find_dataset

    if experiment.trainer is not None:
        return None, None
    if experiment.workload.file is not None:
        return f"as {experiment.workload.file} gives it", True
    found = find_dataset(experiment.workload.name.dataset, data_dir, experiment.workload.dataset_options)
    if not found.needs_files:
        return found.how, True
    return (found.how, False) if found.path is None else (str(found.path), True)


def _measure(plan: "Plan", data_dir: Path | None) -> "RunTime":
    from batchscale.cli.output import Stages
    from batchscale.cli.validate_time import time_run

    with Stages() as stages:
        return time_run(plan, data_dir, stages.enter)


def _print(found: _Found) -> None:
    from batchscale.study.stop_rules import find_rule

    plan, experiment = found.plan, found.plan.experiment
    typer.echo(f"workload  {experiment.workload.name}")
    typer.echo(f"goal      {experiment.goal}")
    typer.echo(f"stop      {experiment.stop.value}")
    typer.echo(f"searched  {_ranges(plan)}")
    typer.echo(f"training  {_training_set(found.facts)}")
    if found.data is not None:
        typer.echo(f"data      {found.data if found.data_present else f'missing: {found.data}'}")
    typer.echo(f"records   about {size(found.records_bytes)} on disk, and up to --keep-states for trials' states")
    if experiment.trainer is not None:
        typer.echo(f"command   {_example_command(plan)}")
    typer.echo()
    _print_studies(found)
    together = find_rule(experiment.stop).ends_together
    more = f"'{experiment.stop}' usually needs far fewer." if together else "another search as well."
    typer.echo(f"\nFor one search at every batch size, every trial to its budget. Diverged trials come on top; {more}")
    if found.time is not None:
        typer.echo(_describe_time(found.time))


def _print_studies(found: _Found) -> None:
    plan, time = found.plan, found.time
    columns = ["batch size", "trials", "steps", "measurements", "trial-steps", "trial-examples"]
    rows: list[list[object]] = [
        [s.batch_size, s.trials, s.train_steps, len(s.evaluation_steps), s.trial_steps, s.trial_steps * s.batch_size]
        for s in plan.studies
    ]
    rows.append(["total", sum(s.trials for s in plan.studies), "", "", plan.trial_steps, plan.trial_examples])
    if time is not None:
        columns.append("step")
        for row, study in zip(rows, plan.studies, strict=False):
            seconds = time.step_s[study.batch_size]
            row.append("too large" if seconds is None else f"{1000 * seconds:.3g} ms")
        rows[-1].append("")
    print_table(columns, rows, right=range(len(columns)))


def _training_set(facts: "WorkloadInfo") -> str:
    examples = facts.num_train_examples
    count = "size not known before the data is read, or without end" if examples is None else f"{examples:,} examples"
    return count + (f", {facts.num_outputs:,} outputs of the model (classes)" if facts.num_outputs else "")


def _describe_time(time: "RunTime") -> str:
    if time.run_s is None:
        return "The largest batch sizes do not fit in memory here, so the run has no time."
    return (
        f"About {duration(time.run_s)} on {time.workers} workers, a measurement {1000 * time.evaluation_s:.3g} ms. "
        "One trial alone on one device was timed, here and now; compiling and loading come on top, and small models "
        "that are trained together need less."
    )


def _example_command(plan: "Plan") -> str:
    """The command of a trial in the middle of the search space, as a shell would show it."""
    import shlex

    from batchscale.trainers.command import show_command

    return shlex.join(show_command(plan))


def _ranges(plan: "Plan") -> str:
    names = plan.studies[0].space.names
    fixed = [f"{name} = {value:g}" for name, value in plan.experiment.search.fixed.items()]
    return ", ".join(names or ("nothing",)) + (f" (fixed: {', '.join(fixed)})" if fixed else "")


def _to_json(found: _Found) -> dict[str, Any]:
    plan, time = found.plan, found.time
    return {
        "version": VERSION,
        "workload": str(plan.experiment.workload.name),
        "goal": str(plan.experiment.goal),
        "stop": plan.experiment.stop.value,
        "num_train_examples": found.facts.num_train_examples,
        "num_outputs": found.facts.num_outputs,
        "data": found.data,
        "data_present": found.data_present,
        "records_bytes": found.records_bytes,
        "studies": [
            {
                "batch_size": study.batch_size,
                "trials": study.trials,
                "train_steps": study.train_steps,
                "measurements": len(study.evaluation_steps),
                "trial_steps": study.trial_steps,
                "step_time_s": None if time is None else time.step_s[study.batch_size],
                "parameter_configs": study.space.to_json(),
                "fixed": dict(study.fixed),
            }
            for study in plan.studies
        ],
        "trials": sum(study.trials for study in plan.studies),
        "trial_steps": plan.trial_steps,
        "trial_examples": plan.trial_examples,
        "evaluation_time_s": None if time is None else time.evaluation_s,
        "workers": None if time is None else time.workers,
        "run_time_s": None if time is None else time.run_s,
    }
