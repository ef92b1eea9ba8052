"""The job files of a plan: which configuration, which command, checked against the command line that is installed."""

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
    """What is to be written: ``pick`` is fastest, cheapest, budget or deadline; ``settings`` are name=number."""

    format: str
    folder: Path
    pick: str = "fastest"
    experiment: Path | None = None
    image: str = "batchscale:latest"
    addresses: tuple[str, ...] = ()
    records: str | None = None
    settings: tuple[str, ...] = ()


def write_plan_job(plan: "MachinePlan", request: JobRequest) -> tuple[Path, ...]:
    """Writes the files; nothing is written where one of them cannot be made."""
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
    _require_learning_rate(command.metaparameters, experiment)
    settings = {"records": request.records} if request.records else {}
    job = make_job(choice, command, image=request.image, addresses=request.addresses, **settings)
    files = job_files(job, request.format, train_options(), f"batchscale=={__version__}")
    return write_job({**files, **beside}, request.folder)


def train_options() -> set[str]:
    """The options that ``batchscale train`` has, as the command line itself says."""
    import typer
    import typer.main

    from batchscale.cli.train import train

    app = typer.Typer()
    app.command()(train)
    return {option for parameter in typer.main.get_command(app).params for option in parameter.opts}


def _picked(plan: "MachinePlan", pick: str) -> "Choice":
    found = plan.recommendations.pick(pick)
    if found is None:
        raise PlanningError(f"--pick {pick} needs --{pick}, and a configuration that meets it. Found none.")
    return found


def _settings(texts: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            float(number)
        except ValueError:
            name = ""
        if not name.strip():
            raise PlanningError(
                f"--set is written name=number, such as learning_rate=0.1. Found {one_line(repr(text))}."
            )
        found[name.strip()] = number.strip()
    return found


def _require_learning_rate(known: "Mapping[str, str]", experiment: "Experiment | None") -> None:
    """Every workload has one, and none has a default: better refused here than on the machine, hours later."""
    fixed = {} if experiment is None else experiment.search.fixed
    if "learning_rate" not in known and "learning_rate" not in fixed:
        raise PlanningError(
            "A job needs the learning rate to train with, and this curve does not say it; give --set "
            "learning_rate=0.1, or a curve from records."
        )


def _target(plan: "MachinePlan", experiment: Path | None, found: "Experiment | None") -> tuple[str, dict[str, str]]:
    """What is trained, and the files that must lie beside the job for it."""
    if experiment is None or found is None:
        if plan.workload is None:
            raise PlanningError("A job trains a workload, and this curve does not name one; give --experiment FILE.")
        return plan.workload, {}
    files = {EXPERIMENT: experiment.read_text(encoding="utf-8-sig")}
    if found.workload.file is not None:
        source = Path(found.workload.file)
        try:
            files[source.name] = source.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise PlanningError(f"{source}: the workload's file cannot be read ({error}).") from None
        if source.parent != experiment.parent:
            raise PlanningError(
                f"The workload's file lies beside its experiment, so that both can go into the job. Found {source}."
            )
    return EXPERIMENT, files
