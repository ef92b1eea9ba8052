"""The client of SLURM: its commands ``sbatch``, ``squeue``, ``scancel``, ``scontrol``, and a thread that calls them.

Without its accounting SLURM drops a job a few minutes after its end, so nothing here needs what it has dropped.
"""

import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from batchscale.errors import RunError, one_line

COMMAND_S = 60.0
"""The longest that a command may take: a busy controller answers late."""

CLOSE_S = 10.0
"""The longest wait for the end of a command when the client is closed."""

_INHERITED_VARIABLES = ("SLURM_CONF", "SLURM_CLUSTERS", "SLURM_JWT")
_FIELDS = ("ArrayJobID", "ArrayTaskID", "State", "Reason", "exit_code", "NodeList", "RestartCnt")

WAITING = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD"})
RUNNING = frozenset({"RUNNING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})
ENDING = frozenset({"COMPLETING"})
PREEMPTED = frozenset({"CANCELLED", "PREEMPTED", "NODE_FAIL", "TIMEOUT", "BOOT_FAIL", "DEADLINE", "REVOKED", *WAITING})
"""Ends that SLURM, or somebody by its commands, caused."""


class SlurmError(RunError):
    """SLURM does not answer, or refuses, with its message."""


@dataclass(frozen=True)
class TaskKey:
    """A task of one of our job arrays; it may be started several times."""

    job: str
    place: int

    def __str__(self) -> str:
        return f"{self.job}_{self.place}"


@dataclass(frozen=True)
class QueuedTask:
    """A task in SLURM's queue. ``status`` is the wait status of its process."""

    key: TaskKey
    state: str
    reason: str = ""
    status: int = 0
    node: str = ""
    restarts: int = 0


class JobQueue(Protocol):
    """The operations of SLURM that the runner needs. All raise SlurmError if it does not answer or refuses."""

    def submit(self, places: Sequence[int], exclude: Collection[str]) -> str:
        """Submit an array of these tasks, on none of these nodes, and return the job's number."""

    def list_tasks(self) -> list[QueuedTask]:
        """Return our tasks that SLURM still lists."""

    def cancel(self, key: TaskKey | None = None) -> None:
        """End a task, or all."""

    def requeue(self, key: TaskKey) -> None:
        """Put a task in the queue again."""


class SlurmCommands:
    """The SLURM of this machine; ``name`` is the name of all our jobs, and of no others."""

    def __init__(self, name: str, options: Sequence[str] = (), script: str = "") -> None:
        self._name = name
        self._options = options
        self._script = script

    def submit(self, places: Sequence[int], exclude: Collection[str]) -> str:
        """Submit an array of these tasks."""
        command = ["sbatch", "--parsable", f"--job-name={self._name}", f"--array={','.join(map(str, places))}"]
        command += [f"--exclude={','.join(sorted(exclude))}"] if exclude else []
        output = _run([*command, *self._options], submission_environment(os.environ), self._script)
        return output.strip().splitlines()[-1].partition(";")[0]

    def list_tasks(self) -> list[QueuedTask]:
        """Return our tasks, and those that ended a short while ago."""
        fields = ",".join(f"{field}:|" for field in _FIELDS)
        command = ["squeue", "--noheader", "--array", "--states=all", f"--name={self._name}", f"--Format={fields}"]
        return [parse_task(line) for line in _run(command, os.environ).splitlines() if line.strip()]

    def cancel(self, key: TaskKey | None = None) -> None:
        """End a task, or all."""
        _run(["scancel", "--quiet", f"--name={self._name}", *([] if key is None else [str(key)])], os.environ)

    def requeue(self, key: TaskKey) -> None:
        """Put a task in the queue again."""
        _run(["scontrol", "requeue", str(key)], os.environ)


def parse_task(line: str) -> QueuedTask:
    """Parse a line of ``squeue``.

    >>> parse_task("12|3|FAILED|NonZeroExitCode|768|n1|0|").key
    TaskKey(job='12', place=3)
    """
    try:
        job, place, state, reason, status, node, restarts = line.strip().removesuffix("|").split("|")
        return QueuedTask(TaskKey(job, int(place)), state, reason, int(status or 0), node, int(restarts or 0))
    except ValueError:
        raise SlurmError(f"squeue answers with {len(_FIELDS)} fields in a line. Found {one_line(line)}.") from None


def submission_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a submission, without the variables of a job that the driver may run in."""
    return {
        name: value
        for name, value in environment.items()
        if not name.startswith("SLURM_") or name in _INHERITED_VARIABLES
    }


def _run(command: Sequence[str], environment: Mapping[str, str], stdin: str = "") -> str:
    try:
        process = subprocess.run(  # a session of its own: Ctrl-C is for the driver alone
            command,
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
            f"--runner slurm needs SLURM's commands on this machine. Found no '{command[0]}': run it on a login node."
        ) from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"SLURM must answer. '{command[0]}' took longer than {COMMAND_S:g} s.") from None
    if process.returncode != 0:
        message = " ".join(process.stderr.split()) or f"exit code {process.returncode}"
        raise SlurmError(f"SLURM refused '{command[0]}': {one_line(message, 500)}")
    return process.stdout


@dataclass(frozen=True)
class QueueView:
    """Our tasks at ``asked_at``, just before SLURM was asked; ``num_requests`` were carried out before that."""

    tasks: tuple[QueuedTask, ...]
    asked_at: float
    num_requests: int

    @cached_property
    def by_key(self) -> dict[TaskKey, QueuedTask]:
        """The tasks by key."""
        return {task.key: task for task in self.tasks}


class SlurmClient:
    """The one user of SLURM during a run: a thread of its own, so that a slow controller blocks nothing.

    Requests are carried out in order; in between the client updates its view of the queue. A request that fails is
    reported in ``problem`` until SLURM answers again, and repeated by the caller.
    """

    def __init__(self, scheduler: JobQueue, view_every_s: float) -> None:
        self._scheduler = scheduler
        self._view_every_s = view_every_s
        self._requests: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        self._num_done = 0
        self._dropping = False
        self.num_requests = 0
        self.view: QueueView | None = None
        self.problem = ""
        self._thread = threading.Thread(target=self._work, name="slurm", daemon=True)
        self._thread.start()

    def submit(self, places: Sequence[int], exclude: frozenset[str]) -> None:
        """Request the submission of an array of these tasks."""
        tasks = tuple(places)
        self._request(lambda: self._scheduler.submit(tasks, exclude))

    def cancel(self, key: TaskKey | None = None) -> None:
        """Request the end of a task, or of all."""
        self._request(lambda: self._scheduler.cancel(key))

    def requeue(self, key: TaskKey) -> None:
        """Request that a task is put in the queue again."""
        self._request(lambda: self._scheduler.requeue(key))

    def close(self) -> None:
        """Drop all requests and wait for the one that runs, so that nothing is submitted after this."""
        self.drop_requests()
        self._requests.put(None)
        self._thread.join(CLOSE_S)

    def drop_requests(self) -> None:
        """Carry out no request any more."""
        self._dropping = True

    def _request(self, request: Callable[[], object]) -> None:
        self.num_requests += 1
        self._requests.put(request)

    def _work(self) -> None:
        viewed_at = -self._view_every_s
        while True:
            pause_s = max(0.0, viewed_at + self._view_every_s - time.monotonic())
            try:
                request = self._requests.get(timeout=pause_s) if pause_s else self._requests.get_nowait()
            except queue.Empty:
                viewed_at = time.monotonic()
                self._attempt(self._update_view)
                continue
            if request is None:
                return
            if not self._dropping:
                self._attempt(request)
            self._num_done += 1
            viewed_at = -self._view_every_s  # its effect is viewed next

    def _attempt(self, action: Callable[[], object]) -> None:
        try:
            action()
            self.problem = ""
        except SlurmError as error:
            self.problem = str(error)

    def _update_view(self) -> None:
        asked_at, num_done = time.monotonic(), self._num_done
        self.view = QueueView(tuple(self._scheduler.list_tasks()), asked_at, num_done)
