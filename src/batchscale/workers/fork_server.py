"""A process that loads the training engine once and forks workers, which then start at once and share its memory.

This is the driver's end; `forking` is the process itself. It is started while the driver still loads its own libraries,
reads the experiment file and checks it; for the same reason nothing heavy is imported here. Nothing in it is ever
needed: without it workers are started one by one.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import IO, final

import psutil

from batchscale.machine import count_accelerators
from batchscale.workers.environment import PLACE_VARIABLE, worker_variables

TRAINING_ENGINE = "batchscale.workers.training_engine:make_engine"
"""The engine of batchscale's own trials."""

MAX_MESSAGE_BYTES = 2**18
NEVER_STARTED = 1
"""The exit code of a worker that the server did not fork before it ended."""

_MAY_DIFFER = (PLACE_VARIABLE, "XLA_FLAGS")  # read when a worker first uses JAX, which is after the fork


def can_fork() -> bool:
    """True if loaded workers can be forked here: on Linux, and without accelerators, whose libraries start threads."""
    return sys.platform == "linux" and not count_accelerators()


def _loaded(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that take effect while libraries are loaded."""
    return {name: value for name, value in variables.items() if name not in _MAY_DIFFER}


@final
class ForkServer:
    """The driver's end of a server, whose end leaves its workers alone."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pids: dict[int, int] = {}  # by the number of the request
        self._processes: dict[int, psutil.Process] = {}  # of those that had not ended when their number came
        self._codes: dict[int, int] = {}
        self._num_requests = 0
        self._is_gone = False
        self._variables = worker_variables(0)
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "batchscale.workers.forking", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **self._variables},
                start_new_session=True,  # Ctrl-C in the terminal reaches the driver alone
            )

    @property
    def pid(self) -> int:
        """The process id of the server."""
        return self._process.pid

    def start(self, variables: Mapping[str, str], pipe: socket.socket, output: IO[bytes]) -> "ForkedWorker | None":
        """Start a worker with these variables of its environment; None if the server cannot.

        The worker may come later, when the server has loaded everything.
        """
        if self._is_gone or _loaded(variables) != _loaded(self._variables):
            return None
        number = self._num_requests
        try:
            request = json.dumps([number, dict(variables)]).encode()
            socket.send_fds(self._socket, [request], [pipe.fileno(), output.fileno()])
        except OSError:
            return None
        self._num_requests += 1
        return ForkedWorker(self, number)

    def find_pid(self, number: int) -> int | None:
        """Return the process id of a worker; None if it is not forked yet."""
        with self._lock:
            self._receive()
            return self._pids.get(number)

    def find_exit_code(self, number: int) -> int | None:
        """Return the exit code of a worker, or minus the signal that killed it; None if it has not ended."""
        pid = self.find_pid(number)
        if number in self._codes or not self._is_gone:
            return self._codes.get(number)
        if pid is None:
            return NEVER_STARTED
        try:  # the server would have reported the code; without it only the end is seen
            process = self._processes.get(number)
            is_over = process is None or not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            is_over = True
        return -signal.SIGKILL if is_over else None

    def kill(self, number: int) -> None:
        """Kill a worker, and never another process that has got its id; before it is forked, kill the server."""
        if self.find_pid(number) is None:
            self._process.kill()
        elif number in self._processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                self._processes[number].kill()

    def close(self) -> None:
        """Kill the server and wait for its end."""
        self._process.kill()
        self._process.wait()
        with self._lock:
            self._receive()
            self._is_gone = True
            self._socket.close()

    def _receive(self) -> None:
        while not self._is_gone:
            try:
                data = self._socket.recv(MAX_MESSAGE_BYTES, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._is_gone = True
                return
            number, pid, code = json.loads(data)
            self._pids[number] = pid
            if code is not None:
                self._codes[number] = code
            else:
                with contextlib.suppress(psutil.NoSuchProcess):
                    self._processes[number] = psutil.Process(pid)


@final
class ForkedWorker:
    """A worker of a fork server, with the methods of a process that the driver has started itself."""

    def __init__(self, server: ForkServer, number: int) -> None:
        self._server = server
        self._number = number

    @property
    def pid(self) -> int:
        """The process id, when the worker was forked."""
        while (pid := self._server.find_pid(self._number)) is None:
            if self.poll() is not None:
                raise ProcessLookupError("the fork server ended before it started this worker")
            time.sleep(0.01)
        return pid

    def poll(self) -> int | None:
        """Return the exit code; None if the worker has not ended."""
        return self._server.find_exit_code(self._number)

    def kill(self) -> None:
        """Kill the worker; one that is not forked yet is never forked, because its server is killed."""
        if self.poll() is None:
            self._server.kill(self._number)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end of the worker and return its exit code."""
        end = None if timeout is None else time.monotonic() + timeout
        pause_s = 0.0005
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired("a forked worker", timeout or 0.0)
            time.sleep(pause_s)
            pause_s = min(0.05, 2 * pause_s)
        return code
