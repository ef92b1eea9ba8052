"""The local runner: worker processes on this machine, each with single-threaded compute or accelerators of its own.

Owns processes, their pipes and logs. A worker that dies is replaced; its jobs come back as lost, with the signal and
the last lines it wrote. Nothing in a worker is ever needed to resume, so ending one is always a plain kill.
"""

import contextlib
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import final

from batchscale.errors import RunError
from batchscale.machine import count_oom_kills, name_host
from batchscale.protocol import Failure
from batchscale.runners.death import describe_death
from batchscale.runners.environment import worker_environment
from batchscale.runners.holders import Holders
from batchscale.runners.messages import Answered, Begin, Kept, Raised, Ready, Retire, Started, Stop
from batchscale.runners.runner import Doing, Event, Job, LossReason, Lost, Runner, Setup, WorkerInfo

MAX_DEATHS_AT_START = 3


@dataclass(frozen=True)
class LocalSettings:
    """How many workers, and when one is replaced by a fresh process: after so many trials, or above so much memory."""

    workers: int
    log_dir: Path
    recycle_after_trials: int = 2000
    recycle_above_bytes: int | None = None


@dataclass
class _Worker:
    info: WorkerInfo
    place: int
    process: subprocess.Popen[bytes]
    pipe: Connection
    log: Path
    jobs: deque[Job] = field(default_factory=deque)
    started: int | None = None
    ready: bool = False
    trials: int = 0
    retiring: bool = False
    kept: bool = False


@final
class LocalRunner(Runner):
    """Worker processes on this machine."""

    def __init__(self, setup: Setup, settings: LocalSettings) -> None:
        self._setup = setup
        self._settings = settings
        self._limit = settings.workers
        self._next_number = 0
        self._deaths_at_start = 0
        self._stopping = False
        self._closed = False
        self._notices: list[str] = []
        self._workers: dict[str, _Worker] = {}
        self._holders = Holders()
        self._not_started: list[Event] = []
        settings.log_dir.mkdir(parents=True, exist_ok=True)
        self._oom_kills = count_oom_kills()
        try:
            for _ in range(settings.workers):
                self._start()
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> tuple[WorkerInfo, ...]:
        """The workers that are not retiring; fewer after one ran out of memory."""
        if self._stopping or self._closed:
            return ()
        return tuple(w.info for w in self._workers.values() if not w.retiring)

    @property
    def notices(self) -> tuple[str, ...]:
        """What happened to workers."""
        return tuple(self._notices)

    @property
    def process_ids(self) -> tuple[int, ...]:
        """The operating system's ids of the worker processes."""
        return tuple(worker.process.pid for worker in self._workers.values())

    def waiting(self, worker_id: str) -> int:
        """How many jobs a worker has."""
        worker = self._workers.get(worker_id)
        return 0 if worker is None else len(worker.jobs)

    def submit(self, worker_id: str, job: Job) -> None:
        """Send a worker a job; if it has died or is gone, the next `wait` says that the job was not started."""
        if self._closed:
            raise RunError("A closed runner takes no jobs.")
        worker = self._workers.get(worker_id)
        if worker is None:
            self._not_started.append(
                Lost(job.job_id, worker_id, LossReason.NOT_STARTED, Failure("The worker is gone."))
            )
            return
        worker.jobs.append(job)
        self._holders.note(worker_id, job)
        self._send(worker, job)

    def wait(self, timeout_s: float) -> list[Event]:
        """What the workers have said; the dead are replaced."""
        if self._closed:
            return []
        events, self._not_started = self._not_started, []
        pipes = {worker.pipe: worker for worker in self._workers.values()}
        for pipe in wait(list(pipes), 0 if events else timeout_s):
            worker = pipes[pipe]  # type: ignore[index]  # only our own connections were given
            try:
                while worker.pipe.poll():
                    events += self._hear(worker, worker.pipe.recv())
            except (EOFError, OSError):
                events += self._replace(worker)
        self._recycle()
        return events

    def forget(self, batch_size: int, trial_ids: Sequence[int] = ()) -> None:
        """Pass it on to the workers that were given any of it."""
        for worker_id, message in self._holders.forget(batch_size, trial_ids, self._workers):
            self._send(self._workers[worker_id], message)

    def shelve(self, batch_size: int, steps: Mapping[int, int]) -> None:
        """Pass it on to the workers that were given any of it: the one that holds a trial keeps its state."""
        for worker_id, message in self._holders.shelve(batch_size, steps, self._workers):
            self._send(self._workers[worker_id], message)

    def stop(self) -> None:
        """Pass it on to every worker, once."""
        if not self._stopping:
            self._stopping = True
            for worker in self._workers.values():
                self._send(worker, Stop())

    @property
    def at_rest(self) -> bool:
        """Whether every worker that has begun has said so."""
        return all(worker.kept and not worker.jobs for worker in self._workers.values() if worker.ready)

    def kill(self) -> None:
        """Kill all workers, from any thread; none is replaced from now on."""
        self._stopping = True
        for worker in list(self._workers.values()):
            with contextlib.suppress(ProcessLookupError):
                worker.process.kill()

    def close(self) -> None:
        """Kill all workers and wait for their end."""
        self._closed = True
        self.kill()
        for worker in self._workers.values():
            worker.process.wait()
            worker.pipe.close()
        self._workers.clear()

    # --- single workers --------------------------------------------------------------------------------------

    def _start(self) -> None:
        info = WorkerInfo(f"local-{self._next_number}", name_host(), self._setup.num_devices)
        self._next_number += 1
        taken = {worker.place for worker in self._workers.values()}
        place = min(set(range(self._settings.workers)) - taken)
        log = self._settings.log_dir / f"worker-{place}.log"
        ours, theirs = socket.socketpair()
        with theirs, log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "batchscale.runners.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=worker_environment(place, self._setup.num_devices),
                start_new_session=True,  # Ctrl-C in the terminal reaches the driver alone
            )
        worker = _Worker(info, place, process, Connection(ours.detach()), log)
        self._workers[info.worker_id] = worker
        self._send(worker, Begin(self._setup, info.worker_id))

    def _send(self, worker: _Worker, message: object) -> None:
        with contextlib.suppress(OSError):  # it is dead: the next `wait` finds out and says so
            worker.pipe.send(message)

    def _hear(self, worker: _Worker, message: object) -> list[Event]:
        if isinstance(message, Ready):
            worker.ready, self._deaths_at_start = True, 0
        elif isinstance(message, Started):
            worker.started = message.job_id
        elif isinstance(message, Doing):
            return [message]
        elif isinstance(message, Kept):
            worker.kept = True
        elif isinstance(message, Answered):
            self._pop(worker, message.done.job_id)
            worker.trials += len(message.done.progress)
            limit = self._settings.recycle_above_bytes
            heavy = limit is not None and message.memory_bytes > limit
            if heavy or worker.trials >= self._settings.recycle_after_trials:
                self._retire(worker)
            return [message.done]
        elif isinstance(message, Raised):
            self._pop(worker, message.job_id)
            if message.loss is LossReason.OUT_OF_MEMORY and self._lower_limit():
                self._retire(worker)
            return [Lost(message.job_id, worker.info.worker_id, message.loss, message.reason)]
        return []

    def _retire(self, worker: _Worker) -> None:
        if not worker.retiring:
            worker.retiring = True
            self._send(worker, Retire())

    def _pop(self, worker: _Worker, job_id: int) -> None:
        worker.jobs = deque(job for job in worker.jobs if job.job_id != job_id)
        worker.started = None

    def _replace(self, worker: _Worker) -> list[Event]:
        """Clear away a dead or retired worker and start another; its unanswered jobs are lost."""
        del self._workers[worker.info.worker_id]
        worker.pipe.close()
        worker.process.kill()
        code = worker.process.wait()
        loss, reason = LossReason.DIED, describe_death(code, worker.log)
        kills = count_oom_kills()
        if kills > self._oom_kills and code == -signal.SIGKILL:
            loss = LossReason.OUT_OF_MEMORY
            reason = reason.followed_by(" The system reported that it was out of memory.")
            self._lower_limit()
        self._oom_kills = kills
        lost: list[Event] = [
            Lost(
                job.job_id,
                worker.info.worker_id,
                loss if job.job_id == worker.started else LossReason.NOT_STARTED,
                reason,
            )
            for job in worker.jobs
        ]
        if not worker.retiring and not self._stopping:
            self._notices.append(f"Worker {worker.place} was replaced. {str(reason).splitlines()[0]}")
        if not worker.ready:
            self._check_start(reason)
        if not self._stopping and len(self._workers) < self._limit:
            self._start()
        return lost

    def _check_start(self, reason: Failure) -> None:
        self._deaths_at_start += 1
        if self._deaths_at_start >= MAX_DEATHS_AT_START * self._settings.workers:
            raise RunError(f"Workers must start, but {self._deaths_at_start} in a row died at once. {reason}")
        time.sleep(0.05)

    def _lower_limit(self) -> bool:
        if self._limit == 1:
            return False
        self._limit -= 1
        self._notices.append(f"Out of memory: from now on {self._limit} worker(s) train at once.")
        return True

    def _recycle(self) -> None:
        for worker in list(self._workers.values()):
            if worker.retiring and worker.kept and not worker.jobs:
                self._replace(worker)
