"""What is asked of SLURM, and its answers: ``sbatch``, ``squeue``, ``scancel``, ``scontrol``, as lists of words.

Without its accounting SLURM forgets a job a few minutes after its end, so nothing here needs what it has forgotten.
"""

import os
import subprocess
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from batchscale.errors import RunError, one_line

COMMAND_S = 60.0
"""How long a command may take: a busy controller answers late."""

_KEPT_VARIABLES = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
_FIELDS = ("ArrayJobID", "ArrayTaskID", "State", "Reason", "exit_code", "NodeList", "RestartCnt")

WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
RUNNING = frozenset({"RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})
ENDING = frozenset({"COMPLETING"})
TAKEN = frozenset({"CANCELLED", "PREEMPTED", "NODE_FAIL", "TIMEOUT", "BOOT_FAIL", "DEADLINE", "REVOKED", *WAITING})
"""Ends that SLURM, or somebody by its commands, brought about."""


class SlurmError(RunError):
    """SLURM cannot be asked, or refuses, with its own words."""


@dataclass(frozen=True)
class TaskKey:
    """A task of one of our job arrays; it may be started several times."""

    job: str
    place: int

    def __str__(self) -> str:
        return f"{self.job}_{self.place}"


@dataclass(frozen=True)
class QueuedTask:
    """A task as SLURM sees it. ``status`` is what the process ended with, as the system tells it to a parent."""

    key: TaskKey
    state: str
    reason: str = ""
    status: int = 0
    node: str = ""
    restarts: int = 0


class Scheduler(Protocol):
    """What the runner needs of SLURM. All raise SlurmError where it does not answer or refuses."""

    def submit(self, places: Sequence[int], avoid: Collection[str]) -> str:
        """Submit an array of these tasks, on none of these nodes; the job's number."""

    def look(self) -> list[QueuedTask]:
        """Our tasks that SLURM still knows."""

    def cancel(self, key: TaskKey | None = None) -> None:
        """End a task, or all."""

    def requeue(self, key: TaskKey) -> None:
        """Put a task in the queue again."""


class SlurmCommands:
    """The SLURM of this machine; ``name`` is the name of all our jobs, and of no others."""

    def __init__(self, name: str, words: Sequence[str] = (), script: str = "") -> None:
        self._name = name
        self._words = words
        self._script = script

    def submit(self, places: Sequence[int], avoid: Collection[str]) -> str:
        """Submit an array of these tasks."""
        words = ["sbatch", "--parsable", f"--job-name={self._name}", f"--array={','.join(map(str, places))}"]
        words += [f"--exclude={','.join(sorted(avoid))}"] if avoid else []
        answer = _run([*words, *self._words], submission_environment(os.environ), self._script)
        return answer.strip().splitlines()[-1].partition(";")[0]

    def look(self) -> list[QueuedTask]:
        """Our tasks, and those that ended a short while ago."""
        form = ",".join(f"{field}:|" for field in _FIELDS)
        words = ["squeue", "--noheader", "--array", "--states=all", f"--name={self._name}", f"--Format={form}"]
        return [parse_task(line) for line in _run(words, os.environ).splitlines() if line.strip()]

    def cancel(self, key: TaskKey | None = None) -> None:
        """End a task, or all."""
        _run(["scancel", "--quiet", f"--name={self._name}", *([] if key is None else [str(key)])], os.environ)

    def requeue(self, key: TaskKey) -> None:
        """Put a task in the queue again."""
        _run(["scontrol", "requeue", str(key)], os.environ)


def parse_task(line: str) -> QueuedTask:
    """A line of ``squeue``.

    >>> parse_task("12|3|FAILED|NonZeroExitCode|768|n1|0|").key
    TaskKey(job='12', place=3)
    """
    try:
        job, place, state, reason, status, node, restarts = line.strip().removesuffix("|").split("|")
        return QueuedTask(TaskKey(job, int(place)), state, reason, int(status or 0), node, int(restarts or 0))
    except ValueError:
        raise SlurmError(f"squeue answers with {len(_FIELDS)} fields in a line. Found {one_line(line)}.") from None


def submission_environment(outside: Mapping[str, str]) -> dict[str, str]:
    """The environment of a submission: what a job that the driver may run in was given is not for its workers."""
    return {name: value for name, value in outside.items() if not name.startswith("SLURM_") or name in _KEPT_VARIABLES}


def _run(words: Sequence[str], environment: Mapping[str, str], stdin: str = "") -> str:
    try:
        answer = subprocess.run(  # a session of its own: Ctrl-C is for the driver alone
            words,
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=COMMAND_S,
            env=dict(environment),
            start_new_session=True,
            check=False,
        )
    except FileNotFoundError:
        raise SlurmError(
            f"--runner slurm needs SLURM's commands on this machine. Found no '{words[0]}': run it on a login node."
        ) from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"SLURM must answer. '{words[0]}' took longer than {COMMAND_S:g} s.") from None
    if answer.returncode != 0:
        said = " ".join(answer.stderr.split()) or f"exit code {answer.returncode}"
        raise SlurmError(f"SLURM refused '{words[0]}': {one_line(said, 500)}")
    return answer.stdout
