"""The job files of a plan: a configuration and its training command, checked against the installed command line."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from batchscale.errors import PlanningError, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from batchscale.planning.jobs.own_script import ScriptCommand
    from batchscale.planning.plan import MachinePlan
    from batchscale.planning.recommend import Choice
    from batchscale.spec.experiment import Experiment

EXPERIMENT = "experiment.toml"


@dataclass(frozen=True)
class JobRequest:
    """The job to write: ``pick`` is fastest, cheapest, budget or deadline; ``settings`` are name=number."""

    format: str
    folder: Path
    pick: str = "fastest"
    experiment: Path | None = None
    image: str = "batchscale:latest"
    addresses: tuple[str, ...] = ()
    records: str | None = None
    settings: tuple[str, ...] = ()
    has_goal: bool = False
    """True if the goal of the plan was given as an option, and may differ from that of the experiment."""


def write_plan_job(plan: "MachinePlan", request: JobRequest) -> tuple[tuple[Path, ...], tuple[str, ...]]:
    """Write the job files, none if one of them cannot be made. Return their paths, and what is left to fill in."""
    from batchscale import __version__
    from batchscale.planning.jobs.fill_in import fill_in
    from batchscale.planning.jobs.formats import job_files, write_job
    from batchscale.planning.jobs.job import TrainCommand, choice_metaparameters, give_up_steps, make_job
    from batchscale.spec.file import read_experiment

    choice = _picked(plan, request.pick)
    experiment = None if request.experiment is None else read_experiment(request.experiment)
    if experiment is not None:
        check_same(plan, experiment, has_goal=request.has_goal)
    values = choice_metaparameters(choice["metaparameters"]) | _settings(request.settings)
    goal = plan.goal or (None if experiment is None else str(experiment.goal))
    beside: dict[str, str] = {}
    command: TrainCommand | ScriptCommand
    if experiment is not None and experiment.trainer is not None:
        command = _script_command(experiment, choice["batch_size"], values, goal or str(experiment.goal))
    else:
        target, beside = _target(plan, request.experiment, experiment)
        micro = choice["micro_batch"] if (choice["accumulation"] or 1) > 1 else None
        command = TrainCommand(target, choice["batch_size"], give_up_steps(choice), values, goal, micro)
        _check_learning_rate(values, experiment)
    settings = {"records": request.records} if request.records else {}
    job = make_job(choice, command, image=request.image, addresses=request.addresses, **settings)
    files = job_files(job, request.format, train_options(), f"batchscale=={__version__}")
    return write_job({**files, **beside}, request.folder), fill_in(job, request.format)


def check_same(plan: "MachinePlan", experiment: "Experiment", *, has_goal: bool = False) -> None:
    """Raise PlanningError if an experiment is not that of the curve: another workload, goal or batch sizes.

    Args:
        plan: The plan of the curve. A curve from a CSV file has no workload and no goal.
        experiment: The experiment that a job is to train.
        has_goal: True if the user chose the goal of the curve, which may then have another value.
    """
    from batchscale.spec.goal import Goal

    where = f"{one_line(experiment.source, 300)}: the experiment must be the one that the curve was measured with."
    name = str(experiment.workload.name)
    if plan.workload is not None and plan.workload != name:
        raise PlanningError(
            f"{where} The curve is of {one_line(plan.workload)}. Found {one_line(name)}. Pass the other file."
        )
    if plan.goal is not None and plan.goal != str(experiment.goal):
        goal = Goal.parse(plan.goal)
        if not has_goal or (goal.metric, goal.maximize) != (experiment.goal.metric, experiment.goal.maximize):
            raise PlanningError(
                f"{where} The curve is of the goal {one_line(plan.goal)}. Found {experiment.goal}. Pass --goal "
                f"'{experiment.goal}', or the other file."
            )
    measured = plan.table.filter(plan.table["steps_from"] == "measured")["batch_size"].unique().sort().to_list()
    sizes = experiment.batch_sizes.sizes
    largest = max(measured, default=0) if experiment.batch_sizes.full else 0  # may be the size of the training set
    missing = [size for size in measured if size not in sizes and size != largest]
    if missing and experiment.batch_sizes.auto is None:  # an adaptive experiment chose them itself
        raise PlanningError(
            f"{where} The curve has batch size {missing[0]:,}. Found batch sizes {_list(sizes)} in the file. Pass the "
            "other file, or add the batch size if it is the same experiment."
        )


def _list(sizes: tuple[int, ...]) -> str:
    from batchscale.formatting import list_sizes

    return list_sizes(list(sizes)) if sizes else "'full'"


def _script_command(experiment: "Experiment", batch_size: int, values: dict[str, str], goal: str) -> "ScriptCommand":
    from batchscale.planning.jobs.own_script import ScriptCommand, metaparameter_names, script_files

    assert experiment.trainer is not None
    names = metaparameter_names(experiment)
    unknown = sorted(set(values) - names)
    if unknown:
        raise PlanningError(
            f"{one_line(experiment.source, 300)}: the metaparameters of a job must be those of the experiment: "
            f"{', '.join(sorted(names))}. Found {one_line(', '.join(unknown))} in the curve or in --set."
        )
    fixed = {name: repr(value) for name, value in experiment.search.fixed.items()}
    missing = sorted(names - set(fixed | values))
    if missing:
        raise PlanningError(
            f"A job needs all metaparameters of the experiment. Found no {one_line(', '.join(missing))} in this curve. "
            f"Pass --set {missing[0]}=NUMBER, or records."
        )
    files, not_shipped = script_files(experiment.trainer)
    return ScriptCommand(experiment, batch_size, fixed | values, goal, files, not_shipped)


def train_options() -> set[str]:
    """Return the options of ``batchscale train``, from the command itself."""
    import typer
    import typer.main

    from batchscale.cli.train import train

    app = typer.Typer()
    app.command()(train)
    return {option for parameter in typer.main.get_command(app).params for option in parameter.opts}


def _picked(plan: "MachinePlan", pick: str) -> "Choice":
    choice = plan.recommendations.pick(pick)
    if choice is None:
        raise PlanningError(f"--pick {pick} needs --{pick}, and a configuration that meets it. Found none.")
    return choice


def _settings(texts: tuple[str, ...]) -> dict[str, str]:
    settings = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            float(number)
        except ValueError:
            name = ""
        if not name.strip():
            raise PlanningError(f"--set must be name=number, such as learning_rate=0.1. Found {one_line(repr(text))}.")
        settings[name.strip()] = number.strip()
    return settings


def _check_learning_rate(metaparameters: "Mapping[str, str]", experiment: "Experiment | None") -> None:
    """Raise PlanningError if the job has no learning rate: no workload has a default."""
    fixed = {} if experiment is None else experiment.search.fixed
    if "learning_rate" not in metaparameters and "learning_rate" not in fixed:
        raise PlanningError(
            "A job needs a learning rate. Found none in this curve. Pass --set learning_rate=0.1, or records."
        )


def _target(plan: "MachinePlan", file: Path | None, experiment: "Experiment | None") -> tuple[str, dict[str, str]]:
    """Return what the job trains, and the files that it needs beside it."""
    if file is None or experiment is None:
        if plan.has_own_script:
            raise PlanningError(
                "A job of these records runs the training script that measured them, which only their experiment file "
                "names. Found none: pass --experiment FILE."
            )
        if plan.workload is None:
            raise PlanningError("A job needs a workload. Found none in this curve; pass --experiment FILE.")
        return plan.workload, {}
    files = {EXPERIMENT: file.read_text(encoding="utf-8-sig")}
    if experiment.workload.file is not None:
        source = Path(experiment.workload.file)
        try:
            files[source.name] = source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PlanningError(f"{source}: the workload's file cannot be read ({error}).") from None
        if source.parent != file.parent:
            raise PlanningError(
                f"The workload's file must lie beside its experiment file: both go into the job. Found {source}."
            )
    return EXPERIMENT, files
