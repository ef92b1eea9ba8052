"""What a trial's script is started with: its command, its environment and its document, from a task."""

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchscale.errors import SpecError, one_line
from batchscale.machine import count_cores
from batchscale.spec.goal import Goal
from batchscale.spec.plan import Study
from batchscale.spec.space import ParameterType
from batchscale.spec.trainer import TrainerSpec, render
from batchscale.study.trial import TrialTask
from batchscale.trial import PROTOCOL, VARIABLE

SAVE_EVERY_S = 300.0
"""How often a script that can save at any time does so by itself."""

WAIT_S = 24 * 3600.0
"""The longest that a paused script waits before it saves and leaves by itself."""

_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "PJRT_NPROC")


@dataclass(frozen=True)
class AttemptFiles:
    """Where an attempt's files are."""

    folder: Path
    checkpoint: Path

    @property
    def document(self) -> Path:
        """What to train."""
        return self.folder / "trial.json"

    @property
    def control(self) -> Path:
        """What was decided since."""
        return self.folder / "control.json"

    @property
    def reports(self) -> Path:
        """What the script says."""
        return self.folder / "reports.jsonl"

    @property
    def printed(self) -> Path:
        """The printed lines that hold measurements."""
        return self.folder / "printed.txt"


def make_document(
    study: Study, task: TrialTask, goal: Goal | None, files: AttemptFiles, **facts: Any
) -> dict[str, Any]:
    """The trial's document: all that a script must know (docs/trainers.md)."""
    return {
        "protocol": PROTOCOL,
        "workload": str(study.workload),
        "trial_id": task.trial_id,
        "batch_size": study.batch_size,
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
    """What each placeholder stands for, as text that reads back as the same number."""
    values = {name: repr(value) for name, value in document["metaparameters"].items()}
    for name in ("batch_size", "seed", "trial_id", "max_steps", "until_step", "device", "folder", "checkpoint"):
        values[name] = "" if document.get(name) is None else str(document[name])
    return values | {"trial_file": str(document_path)}


def render_command(trainer: TrainerSpec, values: Mapping[str, str]) -> list[str]:
    """The words of the command."""
    return [render(word, values, f"trainer.command[{place}]") for place, word in enumerate(trainer.command)]


def make_environment(
    trainer: TrainerSpec, values: Mapping[str, str], outside: Mapping[str, str], workers: int
) -> dict[str, str]:
    """The environment of a script: the user's own, its share of the cores, the trainer's ``env``, and our variable."""
    environment = dict(outside)
    if not trainer.devices:
        threads = str(max(1, count_cores() // max(1, workers)))
        environment = {**dict.fromkeys(_THREADS, threads), **environment}
    environment["PYTHONUNBUFFERED"] = "1"
    environment |= {name: render(text, values, f"trainer.env.{name}") for name, text in trainer.env.items()}
    return environment | {VARIABLE: values["trial_file"]}


def require_program(trainer: TrainerSpec, outside: Mapping[str, str] | None = None) -> None:
    """Raises SpecError if the command's program, or a script that it is plainly given, is not there."""
    path = (os.environ if outside is None else outside).get("PATH")
    program = trainer.command[0]
    place = program if "/" not in program else str(trainer.folder / program)
    if shutil.which(place, path=path) is None:
        raise SpecError(
            f"trainer.command: the first word is a program on PATH or a path from the experiment file's folder. Found "
            f"{one_line(repr(program))}, which is no program here."
        )
    for word in script_words(trainer.command):
        if not (trainer.folder / word).is_file():
            raise SpecError(
                f"trainer.command: a script is a path from the experiment file's folder {trainer.folder}. Found "
                f"{one_line(repr(word))}, and no such file."
            )


def script_words(command: Sequence[str]) -> list[str]:
    """The words that name the script itself: what an interpreter is given first."""
    interpreter = Path(command[0]).name.startswith(("python", "bash", "sh", "ruby", "perl", "julia", "Rscript", "node"))
    if interpreter and len(command) > 1 and not command[1].startswith("-") and "{" not in command[1]:
        return [command[1]]
    return []


def as_number(study: Study, name: str, value: float) -> float | int:
    """A metaparameter as its script gets it: whole where it is an INTEGER."""
    if name in study.space and study.space[name].type is ParameterType.INTEGER:
        return int(value)
    return float(value)
