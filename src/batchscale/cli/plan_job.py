"""The job files of a plan: a configuration and its training command, checked against the installed command line."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from batchscale.errors import PlanningError, one_line

if TYPE_CHECKING:
    from collections.abc import Mapping

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


def write_plan_job(plan: "MachinePlan", request: JobRequest) -> tuple[Path, ...]:
    """Write the job files; none if one of them cannot be made."""
    from batchscale import __version__
    from batchscale.planning.jobs.formats import job_files, write_job
    from batchscale.planning.jobs.job import TrainCommand, choice_metaparameters, give_up_steps, make_job
    from batchscale.spec.file import read_experiment

    choice = _picked(plan, request.pick)
    experiment = None if request.experiment is None else read_experiment(request.experiment)
    target, beside = _target(plan, request.experiment, experiment)
    command = TrainCommand(
        target,
        choice["batch_size"],
        give_up_steps(choice),
        choice_metaparameters(choice["metaparameters"]) | _settings(request.settings),
        plan.goal or (None if experiment is None else str(experiment.goal)),
    )
    _check_learning_rate(command.metaparameters, experiment)
    settings = {"records": request.records} if request.records else {}
    job = make_job(choice, command, image=request.image, addresses=request.addresses, **settings)
    files = job_files(job, request.format, train_options(), f"batchscale=={__version__}")
    return write_job({**files, **beside}, request.folder)


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
