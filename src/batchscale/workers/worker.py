"""A worker process: ``python -m batchscale.workers.worker FD``, started by the local runner with one end of a pipe.

It lives exactly as long as the driver's end of the pipe: when that closes, for whatever reason, the process exits at
once. Signals that a terminal or a scheduler sends to the whole process group are left to the driver. A worker on
another machine is the same with another line to the driver.
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
from typing import Protocol

import psutil

from batchscale.errors import BatchscaleError, RunError, TrialFailedError
from batchscale.machine import DISK_FULL, name_host
from batchscale.study.failure import Failure, find_failure
from batchscale.workers.engine_host import EngineHost
from batchscale.workers.messages import (
    Answered,
    Begin,
    Drain,
    Forget,
    Instruction,
    Kept,
    Leave,
    Raised,
    Ready,
    Refused,
    Reply,
    Shelve,
    Started,
    Stop,
)
from batchscale.workers.remote_setup import arrive
from batchscale.workers.runner import Job, LossReason
from batchscale.workers.state_marker import find_marker_problem

MAX_REASON = 2000
_FULL_WORDS = tuple(os.strerror(number) for number in DISK_FULL)
_LEFT_TO_THE_DRIVER = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


def explain_error(error: BaseException) -> tuple[LossReason, Failure]:
    """What an exception of a trial means for its job, and the words for it."""
    failure = find_failure(error)
    named = failure.preceded_by(f"{type(error).__name__}: ")
    text = str(named)
    full = isinstance(error, OSError) and error.errno in DISK_FULL
    if full or any(words in text for words in _FULL_WORDS):  # before memory: the checkpoint library says both alike
        return LossReason.DISK_FULL, named.cut(MAX_REASON)
    if isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "Out of memory" in text:
        return LossReason.OUT_OF_MEMORY, named.cut(MAX_REASON)
    if isinstance(error, TrialFailedError):
        return LossReason.ERROR, failure.cut(MAX_REASON)
    if isinstance(error, BatchscaleError):
        return LossReason.REFUSED, failure
    last = traceback.extract_tb(error.__traceback__)[-1:]
    where = "".join(f" ({frame.filename}:{frame.lineno} in {frame.name})" for frame in last)
    return LossReason.ERROR, named.followed_by(where).cut(MAX_REASON)


class DriverLine(Protocol):
    """A worker's line to its driver; one thread receives, one sends."""

    def recv(self) -> Instruction:
        """The driver's next message; EOFError or OSError when the driver is gone."""

    def send(self, reply: Reply) -> None:
        """Tell the driver; OSError when it is gone."""


class Worker:
    """One end of the line: a thread listens, the main thread trains. ``node`` is what it calls its machine."""

    def __init__(self, line: DriverLine, node: str = "") -> None:
        self._line = line
        self._node = node or name_host()
        self._stop = threading.Event()
        self._leaving = threading.Event()
        self._queue: queue.SimpleQueue[Instruction] = queue.SimpleQueue()
        self._process = psutil.Process()

    def serve(self) -> None:
        """Answer until told to drain or the driver is gone; leave at once where nothing can be trained."""
        threading.Thread(target=self._listen, daemon=True).start()
        begin = self._queue.get()
        if not isinstance(begin, Begin):
            return  # told to leave before it began
        try:
            begin, blind = self._arrive(begin)
        except RunError as error:
            self._say(Refused(self._node, str(error)))
            return
        with _loading():
            host = EngineHost(begin.setup, begin.worker_id, self._stop.is_set, self._say)
        self._say(Ready(self._node, blind))
        while True:
            message = self._queue.get()
            if isinstance(message, Job):
                if not self._leaving.is_set():
                    self._run(host, message)
            elif isinstance(message, Forget):
                host.forget(message.batch_size, message.trial_ids)
            elif isinstance(message, Shelve):
                host.shelve(message.batch_size, message.steps)
            else:
                host.keep()
                self._say(Kept())
                if isinstance(message, Drain | Leave):
                    return

    def _arrive(self, begin: Begin) -> tuple[Begin, str]:
        """What holds on this machine, and why states cannot be kept at the remote path, if they cannot."""
        if begin.luggage is None:
            return begin, ""
        private = Path(tempfile.mkdtemp(prefix="batchscale-"))
        try:
            setup = arrive(begin.setup, begin.luggage, private, self._node)
            blind = find_marker_problem(setup.states_url, begin.luggage.secret) if setup.states_url else ""
            return replace(begin, setup=replace(setup, states_url=None) if blind else setup), blind
        finally:
            with contextlib.suppress(OSError):
                private.rmdir()  # where nothing had to be written

    def _listen(self) -> None:
        while True:
            try:
                message = self._line.recv()
            except (EOFError, OSError):
                os._exit(0)  # the driver is gone: nothing here is needed any more
            if isinstance(message, Leave):
                self._leaving.set()
            if isinstance(message, Stop | Leave):
                self._stop.set()
            self._queue.put(message)

    def _run(self, host: EngineHost, job: Job) -> None:
        self._say(Started(job.job_id))
        try:
            done = host.run(job)
        except (Exception, MemoryError) as error:  # noqa: BLE001 - whatever a trial raises is an outcome of its job
            traceback.print_exc()
            self._say(Raised(job.job_id, *explain_error(error)))
        else:
            self._say(Answered(done, self._process.memory_info().rss))

    def _say(self, reply: Reply) -> None:
        try:
            self._line.send(reply)
        except OSError:
            os._exit(0)


@contextlib.contextmanager
def _loading() -> Iterator[None]:
    """Inside, no garbage is looked for: what libraries make as they load stays, and is never looked through again."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


def main(handle: int) -> None:
    """Serve the pipe with this file descriptor."""
    for number in _LEFT_TO_THE_DRIVER:
        signal.signal(number, signal.SIG_IGN)
    Worker(Connection(handle)).serve()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # no waiting for threads of libraries


if __name__ == "__main__":
    main(int(sys.argv[1]))
