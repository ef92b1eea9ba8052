"""The local runner: worker processes on this machine, each with single-threaded compute or accelerators of its own.

Owns processes, their pipes and logs. A worker that dies is replaced; its jobs fail with the signal and the last lines
of its log. Nothing in a worker is ever needed to resume, so ending one is always a plain kill.
"""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import IO, final

from batchscale.errors import RunError
from batchscale.machine import count_oom_kills, name_host
from batchscale.study.failure import Failure
from batchscale.workers.environment import worker_variables
from batchscale.workers.fork_server import TRAINING_ENGINE, ForkedWorker, ForkServer
from batchscale.workers.handle import MAX_DEATHS_AT_START, WorkerHandle, describe_exit, is_out_of_memory
from batchscale.workers.messages import Begin, Instruction, Ready, Refused, Reply
from batchscale.workers.process_runner import NOTICE_LOG, ProcessRunner
from batchscale.workers.runner import Event, LossReason, Setup, WorkerInfo


@dataclass(frozen=True)
class LocalSettings:
    """The number of workers, the folder of their logs, and the memory above which one is replaced.

    Workers of the training engine are forked by the ``fork_server``, if there is one.
    """

    workers: int
    log_dir: Path
    recycle_above_bytes: int | None = None
    fork_server: ForkServer | None = None


@final
@dataclass(eq=False)
class LocalWorker(WorkerHandle):
    """A process on this machine, with our end of its pipe. ``place`` numbers those that run at the same time."""

    place: int
    process: subprocess.Popen[bytes] | ForkedWorker
    pipe: Connection
    log: Path

    def send(self, message: Instruction) -> None:
        """Send a message; if the process is dead, the next `wait` detects it."""
        with contextlib.suppress(OSError):
            self.pipe.send(message)


@final
class LocalRunner(ProcessRunner[LocalWorker]):
    """Worker processes on this machine; fewer of them after one ran out of memory, which they share."""

    def __init__(self, setup: Setup, settings: LocalSettings) -> None:
        super().__init__()
        self._setup = setup
        self._settings = settings
        self._limit = settings.workers
        self._next_number = 0
        self._deaths_at_start = 0
        settings.log_dir.mkdir(parents=True, exist_ok=True)
        self._notice_log = settings.log_dir / NOTICE_LOG
        self._oom_kills = count_oom_kills()
        try:
            for _ in range(settings.workers):
                self._start()
        except BaseException:
            self.close()
            raise

    def wait(self, timeout_s: float) -> list[Event]:
        """Return the events of the workers; replace dead ones."""
        if self._closed:
            return []
        events, self._events = self._events, []
        pipes = {worker.pipe: worker for worker in self._workers.values()}
        for pipe in wait(list(pipes), 0 if events else timeout_s):
            worker = pipes[pipe]  # type: ignore[index]  # only our own connections are in the list
            try:
                while worker.pipe.poll():
                    events += self._handle_reply(worker, worker.pipe.recv())
            except (EOFError, OSError):
                events += self._replace(worker)
        self._replace_drained()
        return events

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

    def _start(self) -> None:
        info = WorkerInfo(f"local-{self._next_number}", name_host(), self._setup.num_devices)
        self._next_number += 1
        used_places = {worker.place for worker in self._workers.values()}
        place = min(set(range(self._settings.workers)) - used_places)
        log = self._settings.log_dir / f"worker-{place}.log"
        if log.exists():
            log.replace(log.with_name(f"{log.name}.old"))  # of the worker that this one replaces
        ours, theirs = socket.socketpair()
        with theirs, log.open("wb") as output:
            process = self._start_process(place, theirs, output)
        worker = LocalWorker(info, place, process, Connection(ours.detach()), log)
        self._workers[info.worker_id] = worker
        worker.send(Begin(self._setup, info.worker_id))

    def _start_process(
        self, place: int, pipe: socket.socket, output: IO[bytes]
    ) -> subprocess.Popen[bytes] | ForkedWorker:
        variables = worker_variables(place, self._setup.num_devices)
        server = self._settings.fork_server if self._setup.engine == TRAINING_ENGINE else None
        forked = None if server is None else server.start(variables, pipe, output)
        return forked or subprocess.Popen(
            [sys.executable, "-m", "batchscale.workers.worker", str(pipe.fileno())],
            pass_fds=[pipe.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**os.environ, **variables},
            start_new_session=True,  # Ctrl-C in the terminal reaches the driver alone
        )

    def _handle_reply(self, worker: LocalWorker, reply: Reply) -> list[Event]:
        events = worker.handle_reply(reply)
        if isinstance(reply, Ready):
            self._deaths_at_start = 0
        elif isinstance(reply, Refused):
            raise RunError(reply.reason)  # all workers are on this machine: none can train
        self._recycle(worker, reply, self._settings.recycle_above_bytes)
        if is_out_of_memory(reply) and self._lower_limit():
            worker.drain()
        return events

    def _replace(self, worker: LocalWorker) -> list[Event]:
        """Remove a dead or drained worker and start another; its unanswered jobs fail."""
        del self._workers[worker.info.worker_id]
        worker.pipe.close()
        worker.process.kill()
        code = worker.process.wait()
        loss, reason = LossReason.DIED, describe_exit(code, worker.log)
        oom_kills = count_oom_kills()
        if oom_kills > self._oom_kills and code == -signal.SIGKILL:
            loss = LossReason.OUT_OF_MEMORY
            reason = reason.followed_by(" The system reported that it was out of memory.")
            self._lower_limit()
        self._oom_kills = oom_kills
        if not worker.draining and not self._stopping:
            self._notify(f"Worker {worker.info.worker_id} was replaced. {str(reason).splitlines()[0]}")
        if not worker.ready:
            self._count_death_at_start(reason)
        if not self._stopping and len(self._workers) < self._limit:
            self._start()
        return worker.fail_jobs(loss, reason)

    def _count_death_at_start(self, reason: Failure) -> None:
        self._deaths_at_start += 1
        if self._deaths_at_start >= MAX_DEATHS_AT_START * self._settings.workers:
            raise RunError(f"Workers must start, but {self._deaths_at_start} in a row died at once. {reason}")
        time.sleep(0.05)

    def _lower_limit(self) -> bool:
        if self._limit == 1:
            return False
        self._limit -= 1
        self._notify(f"Out of memory: from now on {self._limit} worker(s) train at once.")
        return True

    def _replace_drained(self) -> None:
        for worker in list(self._workers.values()):
            if worker.draining and worker.at_rest:
                self._replace(worker)
