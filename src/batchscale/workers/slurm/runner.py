"""The SLURM runner: keeps an array of worker jobs in the queue and talks with those that run, through a shared folder.

Only SLURM's word, or a worker's own last letter, ends a worker: silence alone does not, so that no trial is ever at two
workers. A worker that is silent for long is cancelled first.
"""

import contextlib
import os
import shutil
import time
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import final

from batchscale.errors import RunError, one_line
from batchscale.spec.experiment import SlurmOptions
from batchscale.study.failure import Failure
from batchscale.workers.messages import Answered, Begin, Raised, Refused, Reply
from batchscale.workers.process_runner import ProcessRunner
from batchscale.workers.remote_setup import make_absolute, make_remote_setup
from batchscale.workers.runner import Event, LossReason, Setup, WorkerInfo
from batchscale.workers.slurm.commands import Scheduler, SlurmCommands, SlurmError, TaskKey
from batchscale.workers.slurm.letters import Alive, Arrived, Departure, Leaving, Left, Letter
from batchscale.workers.slurm.line import Rhythm
from batchscale.workers.slurm.losses import explain_end
from batchscale.workers.slurm.member import SlurmWorker
from batchscale.workers.slurm.office import Office, QueueView
from batchscale.workers.slurm.places import ArrayPlaces
from batchscale.workers.slurm.pulse import Pulse
from batchscale.workers.slurm.script import log_of, sbatch_words, worker_script
from batchscale.workers.slurm.session import MakeScheduler, clear_sessions, end_jobs, job_name, make_session
from batchscale.workers.slurm.worker import PULSE, WORKERS, worker_words

FIND_EVERY_S = 0.5
CLOSE_S = 15.0
ENDED_S = 3.0
SLEEP_S = 0.02


@dataclass(frozen=True)
class SlurmSettings:
    """How many workers, in which folder they meet the driver, where they print, and what each asks of SLURM.

    The folder is on a file system that all nodes have. SLURM is asked how jobs stand every ``look_every_s``.
    """

    workers: int
    folder: Path
    log_dir: Path
    options: SlurmOptions = field(default_factory=SlurmOptions)
    rhythm: Rhythm = field(default_factory=Rhythm)
    look_every_s: float = 10.0


@final
class SlurmRunner(ProcessRunner[SlurmWorker]):
    """Worker jobs of SLURM. Out of memory makes them no fewer: each has the memory that its own job asked for."""

    def __init__(self, setup: Setup, settings: SlurmSettings, make_scheduler: MakeScheduler | None = None) -> None:
        super().__init__()
        self._setup = make_absolute(setup)
        self._luggage = make_remote_setup(setup.experiment)
        self._settings = settings
        self._next_number = 0
        self._find_at = 0.0
        self._departed: list[SlurmWorker] = []
        self._known: set[TaskKey] = set()
        self._over: set[tuple[TaskKey, int]] = set()
        self._trained = False
        make = make_scheduler or partial(_make_commands, settings, setup.num_devices)
        settings.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        settings.log_dir.mkdir(parents=True, exist_ok=True)
        if clear_sessions(settings.folder, make, settings.rhythm.leave_s):
            self._notices.append("What was left of an earlier run on SLURM was ended.")
        for log in settings.log_dir.glob("slurm-*.log"):
            log.unlink(missing_ok=True)
        self._session = make_session(settings.folder)
        self._pulse = Pulse(self._session / PULSE, settings.rhythm.beat_s)
        self._scheduler: Scheduler = make(job_name(self._session), self._session)
        try:
            self._scheduler.submit(range(settings.workers), ())
        except BaseException:
            self._pulse.end()
            shutil.rmtree(self._session, ignore_errors=True)
            raise
        self._office = Office(self._scheduler, settings.look_every_s)
        self._places = ArrayPlaces(self._office, settings.workers)

    @property
    def notices(self) -> tuple[str, ...]:
        """What happened to workers, and what they wait for."""
        waiting = self._places.waiting
        return (*self._notices, waiting) if waiting and not self._stopping else tuple(self._notices)

    def wait(self, timeout_s: float) -> list[Event]:
        """What workers have said, and what became of those that are gone."""
        until = time.monotonic() + timeout_s
        while not self._closed:
            self._find()
            for member in list(self._workers.values()):
                member.flush()
                self._listen(member)
            self._judge()
            left_s = until - time.monotonic()
            if self._events or left_s <= 0:
                break
            time.sleep(min(SLEEP_S, left_s))
        events, self._events = self._events, []
        return [] if self._closed else events

    def kill(self) -> None:
        """End all jobs, from any thread; none is submitted from now on."""
        self._stopping = True
        self._pulse.end()
        self._office.drop()
        with contextlib.suppress(SlurmError):  # then they leave by themselves: there is no pulse any more
            self._scheduler.cancel()

    def close(self) -> None:
        """End all jobs and wait for their end; what SLURM cannot be asked about now is for the next run to clear."""
        if self._closed:
            return
        self._closed = self._stopping = True
        self._pulse.end()
        self._office.close()
        if end_jobs(self._scheduler, CLOSE_S, ENDED_S):
            shutil.rmtree(self._session, ignore_errors=True)
        self._workers.clear()

    # --- workers come ----------------------------------------------------------------------------------------

    def _find(self) -> None:
        """Take in workers that have arrived since the last look."""
        now = time.monotonic()
        if now < self._find_at or self._stopping:
            return
        self._find_at = now + FIND_EVERY_S
        folder = self._session / WORKERS
        with contextlib.suppress(OSError):
            os.utime(folder)  # a network file system answers with what the server has, not with what it remembers
            names = {entry.name for entry in os.scandir(folder)}
            names -= {member.folder.name for member in (*self._workers.values(), *self._departed)}
            for name in sorted(names):
                self._begin(folder / name)

    def _begin(self, folder: Path) -> None:
        info = WorkerInfo(f"slurm-{self._next_number}", "", self._setup.num_devices)
        self._next_number += 1
        self._workers[info.worker_id] = member = SlurmWorker(info, folder)
        member.tell(Begin(self._setup, info.worker_id, self._luggage))

    # --- workers speak ---------------------------------------------------------------------------------------

    def _listen(self, member: SlurmWorker, at_once: bool = False) -> None:
        for letter in member.letters(at_once):
            self._hear(member, letter)

    def _hear(self, member: SlurmWorker, letter: Letter) -> None:
        if isinstance(letter, Arrived):
            self._welcome(member, letter)
        elif isinstance(letter, Leaving):
            member.leaving = letter.why
        elif isinstance(letter, Left):
            self._part(member)
        elif not isinstance(letter, Alive):
            self._take_in(member, letter)

    def _welcome(self, member: SlurmWorker, letter: Arrived) -> None:
        member.arrived = letter
        member.info = replace(member.info, host=letter.node)
        key = TaskKey(letter.job, letter.place)
        self._known.add(key)
        for other in list(self._workers.values()):  # SLURM runs a task once at a time: an earlier process is gone
            if other is not member and other.key == key:
                self._listen(other, at_once=True)
                self._lose(other, LossReason.PREEMPTED, Failure("SLURM started its job anew."))
        for other in [one for one in self._departed if one.key == key]:
            self._departed.remove(other)
            other.remove()

    def _turn_away(self, letter: Refused) -> None:
        """A node that cannot train: the end where no other has trained, else it is avoided from now on."""
        if not self._trained:
            raise RunError(letter.reason)
        self._places.avoid |= {letter.host}
        self._notices.append(f"{letter.reason} It is not used any more.")

    def _take_in(self, member: SlurmWorker, reply: Reply) -> None:
        if isinstance(reply, Refused):
            self._turn_away(reply)
        elif isinstance(reply, Answered):
            self._trained = True
            self._places.patience.reset()
        elif isinstance(reply, Raised) and reply.loss is LossReason.REFUSED:
            reply = replace(reply, reason=reply.reason.preceded_by(f"Node {member.info.host}: "))
        self._events += member.hear(reply)
        if member.needs_restart(reply, None if member.arrived is None else member.arrived.memory_bytes):
            member.drain()

    # --- workers go ------------------------------------------------------------------------------------------

    def _part(self, member: SlurmWorker) -> None:
        """A worker has said its last word."""
        reason = Failure(f"A worker on {member.info.host} left: {member.leaving or 'it starts afresh'}.")
        self._lose(member, LossReason.PREEMPTED, reason, keep_folder=True)
        if member.leaving == Departure.TIME_LIMIT and member.key is not None and not self._stopping:
            self._office.requeue(member.key)
        self._departed.append(member)  # its folder stays: without it, it would end before SLURM ends it

    def _judge(self) -> None:
        """Act on what SLURM says of our tasks."""
        view = self._places.look()
        if view is None:
            return
        for member in list(self._workers.values()):
            self._examine(member, view)
        for member in list(self._departed):
            if member.key is None or not self._places.still_runs(member.key, member.restarts, view)[0]:
                self._departed.remove(member)
                member.remove()
        if self._stopping:
            return
        for task in self._places.count_unseen(view, self._known, self._over):
            self._places.patience.count(*explain_end(task, self._log(task.key)))
        self._places.refill(view, self._settings.look_every_s)

    def _examine(self, member: SlurmWorker, view: QueueView) -> None:
        if view.asked_at < member.found_at:
            return
        silent_s = time.monotonic() - member.heard_at
        if member.key is None:
            if silent_s > self._settings.rhythm.silent_s:
                self._lose(member, LossReason.DIED, Failure("A worker never said who it is."))
            return
        runs, task = self._places.still_runs(member.key, member.restarts, view)
        if not runs:
            self._listen(member, at_once=True)  # whatever it said has been said by now
            if member.info.worker_id in self._workers:
                loss, reason = explain_end(task, self._log(member.key))
                self._lose(member, loss, reason)
                if not self._stopping:
                    self._notices.append(f"A worker on {member.info.host} was replaced. {one_line(reason, 200)}")
                if not member.trials:
                    self._places.patience.count(loss, reason)
        elif silent_s > self._settings.rhythm.silent_s and not member.cancelled:
            member.cancelled = True
            self._notices.append(f"A worker on {member.info.host} was silent for {silent_s:.0f} s and is cancelled.")
            self._office.cancel(member.key)

    def _lose(self, member: SlurmWorker, loss: LossReason, reason: Failure, keep_folder: bool = False) -> None:
        """Clear a worker away; its unanswered jobs are lost. Without its folder it would leave if it still lived."""
        del self._workers[member.info.worker_id]
        if member.key is not None:
            self._over.add((member.key, member.restarts))
        self._events += member.lose(loss, reason)
        if not keep_folder:
            member.remove()

    def _log(self, key: TaskKey) -> Path:
        return log_of(self._settings.log_dir, key.job, key.place)


def _make_commands(settings: SlurmSettings, num_devices: int, name: str, session: Path) -> SlurmCommands:
    script = worker_script(worker_words(session.resolve(), num_devices, settings.rhythm))
    return SlurmCommands(name, sbatch_words(settings.options, settings.log_dir.resolve()), script)
