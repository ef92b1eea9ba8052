"""``batchscale validate``: check an experiment file, show what it would run, and estimate the time."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from batchscale.cli.output import Stages, print_json, print_table
from batchscale.cli.selection import DATA_DIR_HELP, JSON_HELP, print_notice
from batchscale.errors import RunError, SpecError
from batchscale.formatting import count_text, duration, size

if TYPE_CHECKING:
    from batchscale.spec.experiment import Experiment
    from batchscale.spec.plan import Plan, WorkloadInfo
    from batchscale.workloads.workload import Workload

VERSION = 1


@dataclass(frozen=True)
class RunTime:
    """The seconds of a step by batch size, of an evaluation, and of the whole run on a number of workers.

    ``run_s`` counts one search at every batch size in which every trial trains to its step budget. Batch sizes that do
    not fit in memory have no step time; then the run has no time either.
    """

    step_s: dict[int, float | None]
    evaluation_s: float
    workers: int
    run_s: float | None


@dataclass(frozen=True)
class _Preview:
    """The properties of an experiment before it runs. ``data`` is None for a script of the user's own."""

    plan: "Plan"
    info: "WorkloadInfo"
    data: str | None
    data_present: bool | None
    records_bytes: int
    time: RunTime | None


def validate(
    file: Annotated[Path, typer.Argument(help="The experiment file (TOML).")],
    data_dir: Annotated[Path | None, typer.Option(help=DATA_DIR_HELP)] = None,
    time: Annotated[
        bool, typer.Option("--time", help="Time a step of every batch size here, and estimate the whole run.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, help="The workers to estimate with --time for. Default: one per accelerator, else per core."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help=JSON_HELP)] = False,
) -> None:
    """Check an experiment file and show what it would run.

    Shows the data, studies, trials and steps, with the size of the records and, with --time, the time of the run.
    """
    from batchscale.run.disk import records_bytes
    from batchscale.run.preflight import find_facts
    from batchscale.spec.file import read_experiment
    from batchscale.spec.plan import make_plan

    experiment = read_experiment(file)
    try:
        info = find_facts(experiment, data_dir)
        plan = make_plan(experiment, info)
    except SpecError as error:
        raise SpecError(f"{file}: {error}") from None
    print_decision_notices(plan)
    data, present = _find_data(experiment, data_dir)
    run_time = time_run(plan, data_dir, workers) if time else None
    preview = _Preview(plan, info, data, present, records_bytes(plan), run_time)
    if as_json:
        print_json(_to_json(preview))
    else:
        _print(preview)


def print_decision_notices(plan: "Plan") -> None:
    """Print warnings about the machines that an adaptive experiment decides between, such as old prices.

    Raises:
        PlanningError: no configuration of its files can be used.
    """
    if plan.experiment.adaptive is None or not plan.experiment.adaptive.aim.is_decision:
        return
    from batchscale.adaptive.configurations import read_configurations

    for notice in read_configurations(plan).notices:
        print_notice(notice)


def _find_data(experiment: "Experiment", data_dir: Path | None) -> tuple[str | None, bool | None]:
    """Return the place of the data or how to get it, and True if it is present."""
    from batchscale.workloads.datasets.files.locations import find_dataset

    if experiment.trainer is not None:
        return None, None
    if experiment.workload.file is not None:
        return f"from {experiment.workload.file}", True
    dataset = find_dataset(experiment.workload.name.dataset, data_dir, experiment.workload.dataset_options)
    if not dataset.needs_files:
        return dataset.how, True
    return (dataset.how, False) if dataset.path is None else (str(dataset.path), True)


def time_run(plan: "Plan", data_dir: Path | None, workers: int | None = None) -> RunTime:
    """Time the steps and an evaluation of a plan: one trial on one device, computing as a worker does.

    The time of the run is that on ``workers``, by default as many as a run here has.

    Raises:
        RunError: the experiment trains with a script of the user's own.
    """
    from batchscale.workers.environment import check_devices, computing_like_a_worker, default_workers

    if plan.experiment.trainer is not None:
        raise RunError(
            "--time needs an experiment for our own engine. Found a [trainer] table. 'batchscale trainer check' times "
            "the steps of your script."
        )
    with Stages() as stages, computing_like_a_worker():  # before JAX starts
        from batchscale.training.calibration import Effort, OutOfMemoryError, time_steps
        from batchscale.workloads.registry import get_workload

        stages.enter("loading data")
        workload = get_workload(plan.experiment.workload, data_dir)
        step_s: dict[int, float | None] = {}
        for study in plan.studies:
            stages.enter(f"timing a step of batch size {study.batch_size:,}")
            try:
                times = time_steps(workload, study.batch_size, Effort(3, 0.2)).step_times_s
                step_s[study.batch_size] = sorted(times)[len(times) // 2]
            except OutOfMemoryError:
                step_s[study.batch_size] = None
        stages.enter("timing an evaluation")
        evaluation_s = _time_evaluation(workload, plan)
    devices = check_devices(plan.experiment.run.devices_per_trial)
    workers = workers or default_workers(devices)
    total = 0.0
    for study in plan.studies:
        seconds = step_s[study.batch_size]
        if seconds is None:
            return RunTime(step_s, evaluation_s, workers, None)
        total += study.trial_steps * seconds + study.trials * len(study.evaluation_steps) * evaluation_s
    return RunTime(step_s, evaluation_s, workers, total / workers)


def _time_evaluation(workload: "Workload", plan: "Plan") -> float:
    """Return the seconds of a warm evaluation of one trial, which hardly depends on the batch size."""
    from batchscale.study.trial import TrialTask
    from batchscale.training.settings import EngineSettings
    from batchscale.training.study_engine import StudyEngine

    study = replace(plan.studies[0], evaluation_steps=(0, 1), train_steps=1)
    engine = StudyEngine(workload, study, plan.experiment.evaluation, EngineSettings(population=1))
    # The low end of every range is the least likely to diverge.
    low = {c.name: c.feasible_points[0] if c.feasible_points else c.min_value for c in study.space}
    for trial_id in (1, 2):  # the first one compiles
        task = TrialTask(trial_id, {**low, **study.fixed}, seed=trial_id, until_step=1, from_step=-1)
        (progress,) = engine.advance([task])
        engine.discard(trial_id)
    return progress.timing["evaluation_s"]


def _print(preview: _Preview) -> None:
    from batchscale.study.stop_rules.rule import find_rule

    plan, experiment = preview.plan, preview.plan.experiment
    typer.echo(f"workload  {experiment.workload.name}")
    typer.echo(f"goal      {experiment.goal}")
    typer.echo(f"stop      {experiment.stop.value}")
    typer.echo(f"searched  {_describe_search(plan)}")
    typer.echo(f"training  {_describe_training_set(preview)}")
    for protocol in (experiment.adaptive, experiment.averaging, experiment.branches):
        if protocol is not None:
            typer.echo(f"{'aim' if protocol is experiment.adaptive else 'measured':<9} {protocol}")
    if preview.data is not None:
        typer.echo(f"data      {preview.data if preview.data_present else f'missing: {preview.data}'}")
    typer.echo(f"records   about {size(preview.records_bytes)} on disk, and up to --keep-states for trials' states")
    if experiment.trainer is not None:
        typer.echo(f"command   {_example_command(plan)}")
    typer.echo()
    _print_studies(preview)
    together = find_rule(experiment.stop).ends_together
    more = f"'{experiment.stop}' usually needs far fewer." if together else "another search adds to it."
    typer.echo(f"\nOne search at every batch size, every trial to its budget. Diverged trials add to it; {more}")
    if experiment.adaptive is not None:
        typer.echo("The run chooses from these batch sizes, and gives them more trials only where the aim needs them.")
    if preview.time is not None:
        typer.echo(_describe_time(preview.time))


def _print_studies(preview: _Preview) -> None:
    plan, time = preview.plan, preview.time
    tokens = plan.studies[0].tokens_per_example
    columns = [
        "batch size",
        "trials",
        "steps",
        "measurements",
        "all steps",
        f"all {'tokens' if tokens else 'examples'}",
    ]
    rows: list[list[object]] = [
        [
            s.batch_size,
            s.trials,
            s.train_steps,
            len(s.evaluation_steps),
            s.trial_steps,
            s.trial_steps * s.batch_size * (tokens or 1),
        ]
        for s in plan.studies
    ]
    total = plan.trial_examples * (tokens or 1)
    rows.append(["total", sum(s.trials for s in plan.studies), "", "", plan.trial_steps, total])
    if tokens is not None:
        columns.insert(1, "tokens")
        for row, study in zip(rows, plan.studies, strict=False):
            row.insert(1, study.batch_size * tokens)
        rows[-1].insert(1, "")
    if time is not None:
        columns.append("step")
        for row, study in zip(rows, plan.studies, strict=False):
            seconds = time.step_s[study.batch_size]
            row.append("too large" if seconds is None else f"{1000 * seconds:.3g} ms")
        rows[-1].append("")
    print_table(columns, rows, right=range(len(columns)))


def _describe_training_set(preview: _Preview) -> str:
    info, tokens_per_example = preview.info, preview.plan.studies[0].tokens_per_example
    examples = info.num_train_examples
    count = "unknown size, or sampled without end" if examples is None else f"{examples:,} examples"
    tokens = "" if tokens_per_example is None else f", {tokens_per_example:,} tokens an example"
    return count + tokens + (f", {info.num_outputs:,} outputs of the model (classes)" if info.num_outputs else "")


def _describe_time(time: RunTime) -> str:
    if time.run_s is None:
        return "The largest batch sizes do not fit in memory here, so the run has no time."
    workers = count_text(time.workers, "worker")
    return (
        f"About {duration(time.run_s)} on {workers}, a measurement {1000 * time.evaluation_s:.3g} ms. "
        "This is the time of one trial on one device of this machine. Compiling and loading add to it; small models "
        "that are trained together need less."
    )


def _example_command(plan: "Plan") -> str:
    """Return the shell command of a trial in the middle of the search space."""
    import shlex

    from batchscale.trainers.command import show_command

    return shlex.join(show_command(plan))


def _describe_search(plan: "Plan") -> str:
    names = plan.studies[0].space.names
    fixed = [f"{name} = {value:g}" for name, value in plan.experiment.search.fixed.items()]
    return ", ".join(names or ("nothing",)) + (f" (fixed: {', '.join(fixed)})" if fixed else "")


def _to_json(preview: _Preview) -> dict[str, Any]:
    plan, time = preview.plan, preview.time
    return {
        "version": VERSION,
        "workload": str(plan.experiment.workload.name),
        "goal": str(plan.experiment.goal),
        "stop": plan.experiment.stop.value,
        "adaptive": None if plan.experiment.adaptive is None else plan.experiment.adaptive.to_json(),
        "num_train_examples": preview.info.num_train_examples,
        "num_outputs": preview.info.num_outputs,
        "tokens_per_example": plan.studies[0].tokens_per_example,
        "data": preview.data,
        "data_present": preview.data_present,
        "records_bytes": preview.records_bytes,
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
