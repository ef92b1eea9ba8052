"""The command, the environment and the document of a trial's script, and the checks of an experiment with one."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from batchscale.errors import SpecError, one_line
from batchscale.machine import count_cores
from batchscale.search.points import to_value
from batchscale.spec.experiment import Experiment
from batchscale.spec.goal import SPLITS, Goal
from batchscale.spec.plan import Plan, Study, WorkloadInfo
from batchscale.spec.redaction import redact_words
from batchscale.spec.space import ParameterType, SearchSpace
from batchscale.spec.trainer import TRIAL_PLACEHOLDERS, ReportSource, TrainerSpec, check_trainer, render
from batchscale.study.trial import TrialTask
from batchscale.trainers.readers import compile_pattern
from batchscale.trial import PROTOCOL, VARIABLE

SAVE_EVERY_S = 300.0
"""The seconds between the saves of a script that can save at any time."""

WAIT_S = 24 * 3600.0
"""The longest that a paused script waits before it saves and exits by itself."""

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "PJRT_NPROC")


@dataclass(frozen=True)
class AttemptFiles:
    """The paths of an attempt's files."""

    folder: Path
    checkpoint: Path

    @property
    def document(self) -> Path:
        """The trial to train."""
        return self.folder / "trial.json"

    @property
    def control(self) -> Path:
        """Decisions made after the start."""
        return self.folder / "control.json"

    @property
    def reports(self) -> Path:
        """The reports of the script."""
        return self.folder / "reports.jsonl"

    @property
    def printed(self) -> Path:
        """The printed lines that hold measurements."""
        return self.folder / "printed.txt"


def make_document(
    study: Study, task: TrialTask, goal: Goal | None, files: AttemptFiles, **facts: Any
) -> dict[str, Any]:
    """Return the trial's document, which holds everything a script needs (docs/trainers.md)."""
    if study.half_lives:
        chosen_by = {"metric": study.goal.metric, "maximize": study.goal.maximize}
        facts["averaging"] = {"half_lives": list(study.half_lives), **chosen_by}
    if study.branches:
        plan = {"shape": study.branches.shape.value, "end_factor": study.branches.end_factor}
        pairs = study.branches.pairs(study.evaluation_steps)
        facts["branches"] = {"pairs": pairs, "measured": max(0, task.from_step), **plan}
    return {
        "protocol": PROTOCOL,
        "workload": str(study.workload),
        "trial_id": task.trial_id,
        "batch_size": study.batch_size,
        "tokens_per_example": study.tokens_per_example,
        "seed": task.seed,
        "metaparameters": {n: as_number(study, n, v) for n, v in sorted(task.parameters.items())},
        "max_steps": study.train_steps,
        "until_step": task.until_step,
        "measure_at": list(study.evaluation_steps),
        "goal": goal and {"metric": goal.metric, "value": goal.value, "maximize": goal.maximize},
        "folder": str(files.folder),
        "reports": str(files.reports),
        "control": str(files.control),
        "checkpoint": str(files.checkpoint),
        "save_every_s": SAVE_EVERY_S,
        "wait_s": WAIT_S,
        **facts,
    }


def fill_values(document: Mapping[str, Any], document_path: Path) -> dict[str, str]:
    """Return the value of each placeholder, as text that parses to the same number."""
    values = {name: repr(value) for name, value in document["metaparameters"].items()}
    for name in ("batch_size", "seed", "trial_id", "max_steps", "until_step", "device", "folder", "checkpoint"):
        values[name] = "" if document.get(name) is None else str(document[name])
    return values | {"trial_file": str(document_path)}


def render_command(trainer: TrainerSpec, values: Mapping[str, str]) -> list[str]:
    """Return the words of the command."""
    return [render(word, values, f"trainer.command[{number}]") for number, word in enumerate(trainer.command)]


def make_environment(
    trainer: TrainerSpec, values: Mapping[str, str], outside: Mapping[str, str], workers: int
) -> dict[str, str]:
    """Return the environment of a script: the user's, its share of the cores, the trainer's ``env``, our variable."""
    environment = dict(outside)
    if not trainer.devices:
        threads = str(max(1, count_cores() // max(1, workers)))
        environment = {**dict.fromkeys(_THREADS, threads), **environment}
    environment["PYTHONUNBUFFERED"] = "1"
    environment |= {name: render(text, values, f"trainer.env.{name}") for name, text in trainer.env.items()}
    return environment | {VARIABLE: values["trial_file"]}


def require_program(trainer: TrainerSpec, outside: Mapping[str, str] | None = None) -> None:
    """Raise SpecError if the command's program, the script that it runs, or a variable that it needs does not exist."""
    outside = os.environ if outside is None else outside
    path = outside.get("PATH")
    unset = [name for name in trainer.pass_env if name not in outside]
    if unset:
        raise SpecError(
            "trainer.pass_env: each name must be a variable that is set where batchscale is started. Found "
            f"{one_line(repr(unset[0]))}, which is not set. Export it, or remove it from the list."
        )
    program = trainer.command[0]
    located = program if "/" not in program else str(trainer.folder / program)
    if shutil.which(located, path=path) is None:
        raise SpecError(
            f"trainer.command: the first word must be a program on PATH or a path from the experiment file's folder. "
            f"Found {one_line(repr(program))}, which is no program here."
        )
    for word in script_words(trainer.command):
        if not (trainer.folder / word).is_file():
            raise SpecError(
                f"trainer.command: a script must be a path from the experiment file's folder {trainer.folder}. Found "
                f"{one_line(repr(word))}, which does not exist."
            )


def script_words(command: Sequence[str]) -> list[str]:
    """Return the words that name the script itself: the first argument of an interpreter."""
    interpreter = Path(command[0]).name.startswith(("python", "bash", "sh", "ruby", "perl", "julia", "Rscript", "node"))
    if interpreter and len(command) > 1 and not command[1].startswith("-") and "{" not in command[1]:
        return [command[1]]
    return []


def as_number(study: Study, name: str, value: float) -> float | int:
    """Return a metaparameter as its script gets it: an int if its type is INTEGER."""
    if name in study.space and study.space[name].type is ParameterType.INTEGER:
        return int(value)
    return float(value)


def describe_trainer(experiment: Experiment) -> WorkloadInfo:
    """Return the description of a workload that a script trains, which comes from the experiment file alone.

    Raises:
        SpecError: the trainer's table names a placeholder, a program or a metric that does not exist.
    """
    trainer, goal = experiment.trainer, experiment.goal
    assert trainer is not None
    spaces = (experiment.search.space, *experiment.search.per_batch_size.values())
    names = {*experiment.search.fixed, *(name for space in spaces for name in space.names)}
    clash = sorted(names & set(TRIAL_PLACEHOLDERS))
    if clash:
        raise SpecError(
            f"search: a metaparameter must not be named like a value that every trial has. Found '{clash[0]}'; choose "
            "another name."
        )
    check_trainer(trainer, names)
    if trainer.reports.source is ReportSource.PATTERN:
        metrics_in_pattern = compile_pattern(trainer.reports.text)[1]
        if goal.metric not in metrics_in_pattern:
            raise SpecError(
                f"trainer.reports.pattern must have the goal's metric, {{{goal.metric}}}. Found "
                f"{', '.join(metrics_in_pattern)}."
            )
    require_program(trainer)
    metrics = dict.fromkeys(experiment.metrics or (), False) | {goal.metric_name: goal.maximize}
    return WorkloadInfo(
        name=experiment.workload.name,
        metrics=metrics,
        num_train_examples=trainer.num_train_examples,
        tokens_per_example=experiment.tokens_per_example,
        defaults=dict.fromkeys(sorted(names)),
        default_space=lambda _steps: SearchSpace(),
        splits=SPLITS,
    )


def make_middle_task(study: Study, until_step: int, from_step: int = -1) -> TrialTask:
    """Return a task of trial 1 at the middle of the search space."""
    values = {config.name: to_value(config, 0.5) for config in study.space}
    return TrialTask(1, {**study.fixed, **values}, study.seed, until_step, from_step)


def show_command(plan: Plan) -> list[str]:
    """Return the words of a trial's command, at the middle of the search space, with secrets hidden."""
    trainer, study = plan.experiment.trainer, plan.studies[0]
    assert trainer is not None
    task = make_middle_task(study, study.train_steps)
    folder = trainer.folder / "…"
    files = AttemptFiles(folder, folder / "state")
    document = make_document(study, task, None, files, device=trainer.devices[0] if trainer.devices else None)
    shown = replace(trainer, command=tuple(redact_words(trainer.command)))
    return render_command(shown, fill_values(document, files.document))
