"""A worker process: ``python -m batchscale.workers.worker FD``, started by the local runner with one end of a pipe.

It lives exactly as long as the driver's end of the pipe: when that closes, for whatever reason, the process exits at
once. Signals that a terminal or a scheduler sends to the whole process group are left to the driver. A worker on
another machine is the same with another connection to the driver.
"""

import contextlib
import gc
import os
import queue
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NoReturn, Protocol

import psutil

from batchscale.errors import BatchscaleError, RunError, TrialFailedError, TrialSilentError
from batchscale.machine import DISK_FULL, name_host
from batchscale.study.failure import Failure, find_failure
from batchscale.workers.engine_host import EngineHost
from batchscale.workers.messages import (
    Answered,
    Begin,
    Discard,
    Drain,
    Finish,
    Instruction,
    Leave,
    Raised,
    Ready,
    Refused,
    Reply,
    Saved,
    Started,
    Stop,
)
from batchscale.workers.remote_setup import find_states_problem, verify_environment
from batchscale.workers.runner import Job, LossReason

MAX_REASON = 2000
_DISK_FULL_MESSAGES = tuple(os.strerror(number) for number in DISK_FULL)
_LEFT_TO_THE_DRIVER = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


def explain_error(error: BaseException) -> tuple[LossReason, Failure]:
    """Classify an exception of a trial, and describe it for people."""
    failure = find_failure(error)
    named = failure.preceded_by(f"{type(error).__name__}: ")
    text = str(named)
    is_disk_full = isinstance(error, OSError) and error.errno in DISK_FULL
    # before memory: the checkpoint library reports both alike
    if is_disk_full or any(message in text for message in _DISK_FULL_MESSAGES):
        return LossReason.DISK_FULL, named.cut(MAX_REASON)
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "Out of memory" in text:
        return LossReason.OUT_OF_MEMORY, named.cut(MAX_REASON)
    if isinstance(error, TrialFailedError):
        loss = LossReason.TIMED_OUT if isinstance(error, TrialSilentError) else LossReason.ERROR
        return loss, failure.cut(MAX_REASON)
    if isinstance(error, BatchscaleError):
        return LossReason.REFUSED, failure
    last = traceback.extract_tb(error.__traceback__)[-1:]
    location = "".join(f" ({frame.filename}:{frame.lineno} in {frame.name})" for frame in last)
    return LossReason.ERROR, named.followed_by(location).cut(MAX_REASON)


class DriverConnection(Protocol):
    """A worker's connection to its driver; one thread receives, one sends."""

    def recv(self) -> Instruction:
        """Return the driver's next message; EOFError or OSError when the driver is gone."""

    def send(self, reply: Reply) -> None:
        """Send a reply; OSError when the driver is gone."""


class Worker:
    """Serves a driver: a thread receives messages, the main thread trains. ``node`` names its machine in messages."""

    def __init__(self, connection: DriverConnection, node: str = "") -> None:
        self._connection = connection
        self._node = node or name_host()
        self._stop = threading.Event()
        self._leaving = threading.Event()
        self._queue: queue.SimpleQueue[Instruction] = queue.SimpleQueue()
        self._process = psutil.Process()

    def serve(self) -> None:
        """Run jobs until it is drained or the driver is gone; return at once if nothing can be trained here."""
        threading.Thread(target=self._listen, daemon=True).start()
        begin = self._queue.get()
        if not isinstance(begin, Begin):
            return  # preempted before it began
        try:
            begin, states_problem = self._verify(begin)
        except RunError as error:
            self._send(Refused(self._node, str(error)))
            return
        with _no_garbage_collection():
            host = EngineHost(begin.setup, begin.worker_id, self._stop.is_set, self._send)
        self._send(Ready(self._node, states_problem))
        while True:
            message = self._queue.get()
            if isinstance(message, Job):
                if not self._leaving.is_set():
                    self._run(host, message)
            elif isinstance(message, Discard):
                host.discard(message.batch_size, message.trial_ids)
            elif isinstance(message, Finish):
                host.finish(message.batch_size, message.steps)
            else:
                host.save()
                self._send(Saved())
                if isinstance(message, Drain | Leave):
                    return

    def _verify(self, begin: Begin) -> tuple[Begin, str]:
        """Return the first message as it holds on this machine, and why states cannot be stored at the remote path."""
        if begin.remote is None:
            return begin, ""
        private = Path(tempfile.mkdtemp(prefix="batchscale-"))
        try:
            setup = verify_environment(begin.setup, begin.remote, private, self._node)
            problem = find_states_problem(setup.states_url, begin.remote.secret) if setup.states_url else ""
            return replace(begin, setup=replace(setup, states_url=None) if problem else setup), problem
        finally:
            with contextlib.suppress(OSError):
                private.rmdir()  # if it is empty

    def _listen(self) -> None:
        while True:
            try:
                message = self._connection.recv()
            except (EOFError, OSError):
                os._exit(0)  # the driver is gone: nothing here is needed any more
            if isinstance(message, Leave):
                self._leaving.set()
            if isinstance(message, Stop | Leave):
                self._stop.set()
            self._queue.put(message)

    def _run(self, host: EngineHost, job: Job) -> None:
        self._send(Started(job.job_id))
        try:
            result = host.run(job)
        except (Exception, MemoryError) as error:  # noqa: BLE001 - whatever a trial raises is an outcome of its job
            traceback.print_exc()
            self._send(Raised(job.job_id, *explain_error(error)))
        else:
            self._send(Answered(result, self._process.memory_info().rss))

    def _send(self, reply: Reply) -> None:
        try:
            self._connection.send(reply)
        except OSError:
            os._exit(0)


@contextlib.contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Inside, no garbage is collected: objects that libraries make as they load stay, and are never scanned again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def ignore_signals() -> None:
    """Leave the signals of a terminal or a scheduler to the driver."""
    for number in _LEFT_TO_THE_DRIVER:
        signal.signal(number, signal.SIG_IGN)


def main(handle: int) -> NoReturn:
    """Serve the pipe with this file descriptor."""
    ignore_signals()
    Worker(Connection(handle)).serve()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # no waiting for threads of libraries


if __name__ == "__main__":
    main(int(sys.argv[1]))
