"""Processes that outlive the server: started, recognised by a later server, counted and stopped."""

import contextlib
import fcntl
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from batchscale.errors import RunError
from batchscale.log_tail import read_tail
from batchscale.web.command_sequence import CommandSequence, CommandStep, SequenceStatus, read_status
from batchscale.web.process_record import StartedProcess, read_record, write_record
from batchscale.web.records_folders import folder_id
from batchscale.web.refusals import RefusedError

LOG_BYTES = 8000


class ProcessStore:
    """The processes whose records lie in one folder: at most one at a time for each path. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._children: dict[Path, subprocess.Popen[bytes]] = {}

    def find(self, path: Path) -> StartedProcess | None:
        """Return the latest process that was started for a path."""
        return read_record(self.file(path, "json"))

    def is_alive(self, path: Path) -> bool:
        """True if the process of a path is running or about to start."""
        return self._is_alive(path, self.find(path))

    @property
    def count(self) -> int:
        """The number of processes that are alive."""
        started = [read_record(file) for file in self.folder.glob("*.json")]
        alive = sum(process is not None and process.record.is_alive for process in started)
        for path, child in list(self._children.items()):
            if child.poll() is not None:  # collected after counting, so that a process that was seen to end is gone
                self._children.pop(path, None)
        return alive

    def status(self, path: Path) -> SequenceStatus | None:
        """Return the progress of the latest commands of a path, or how they ended."""
        return read_status(self.file(path, "standing"))

    def last_output(self, path: Path) -> str:
        """Return the end of the log of the latest process."""
        return read_tail(self.file(path, "log"), LOG_BYTES)

    @contextlib.contextmanager
    def starting(self) -> Iterator[None]:
        """Hold the lock of the folder: one start at a time, over all threads and servers."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.folder / "start.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def start(self, path: Path, kind: str, steps: Sequence[CommandStep]) -> None:
        """Start commands in the folder of a path, one after the other.

        Raises:
            RefusedError: another process of the path is alive.
            RunError: the process cannot be started.
        """
        with self.starting():
            if self.is_alive(path):
                raise RefusedError(409, "Only one job may run at a time. Wait for it or stop it.")
            self.launch(path, {"kind": kind}, steps, path, has_status=True)

    def launch(
        self, path: Path, details: dict[str, Any], steps: Sequence[CommandStep], folder: Path, *, has_status: bool
    ) -> None:
        """Write the record and start the process, within ``starting``.

        Args:
            path: Whose process it is.
            details: Stored in the record.
            steps: The commands.
            folder: The working directory.
            has_status: True to run the commands one by one and write their status; False to become the only command.

        Raises:
            RunError: the process cannot be started.
        """
        plan, log, status, record = (self.file(path, suffix) for suffix in ("plan", "log", "standing", "json"))
        try:
            status.unlink(missing_ok=True)
            CommandSequence(tuple(steps), str(record), str(status) if has_status else None).write(plan)
            write_record(record, details)
            if path in self._children:
                self._children[path].poll()  # collect the one before
            with log.open("wb") as output:
                self._children[path] = subprocess.Popen(
                    [sys.executable, "-m", "batchscale.web.command_sequence", str(plan)], stdin=subprocess.DEVNULL,
                    stdout=output, stderr=subprocess.STDOUT, start_new_session=True, cwd=folder,
                )  # fmt: skip
        except OSError as error:
            raise RunError(f"The process could not be started: {error}.") from None

    def stop(self, path: Path, is_proven: Callable[[int], bool] = lambda _: True) -> None:
        """Send SIGINT to the process of a path, as Ctrl-C does.

        Args:
            path: Whose process it is.
            is_proven: A further condition on its number, checked before and after the process is opened.

        Raises:
            RefusedError: nothing is running, or the process is not proven to be the one started here.
        """
        pid = self.proven_pid(path)
        if pid is None or not is_proven(pid):
            raise RefusedError(409, "Nothing that was started here is running.")
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            raise RefusedError(409, "The process has just ended.") from None
        try:
            if self.proven_pid(path) != pid or not is_proven(pid):  # the number may be of another process by now
                raise RefusedError(409, "The process has just ended.")
            signal.pidfd_send_signal(handle, signal.SIGINT)
        finally:
            os.close(handle)

    def proven_pid(self, path: Path) -> int | None:
        """Return the number of the live process that was started for a path; None if it has not registered."""
        started = self.find(path)
        return started.record.pid if started is not None and started.record.is_alive else None

    def file(self, path: Path, suffix: str) -> Path:
        """Return a file of the process of a path: its record, log, plan or status."""
        return self.folder / f"{folder_id(path)}.{suffix}"

    def _is_alive(self, path: Path, started: StartedProcess | None) -> bool:
        if started is None:
            return False
        child = self._children.get(path)
        is_registering = started.record.pid is None and child is not None and child.poll() is None
        return is_registering or started.record.is_alive
