"""A running script, as the worker controls it: its supervisor, its output, its exit code.

Owns pipes and process ids. The script's reports are read in ``readers``.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from batchscale.log_tail import LAST_LINES, read_tail
from batchscale.trainers import supervisor
from batchscale.trainers.supervisor import Order

MAX_LOG_BYTES = 200_000
ENOUGH_CHARACTERS = 2000
"""This much of a log shows how it ended."""

LOG_FILE = "log.txt"


@dataclass(frozen=True)
class Launch:
    """A command to start; printed lines that match ``segments`` are copied to ``printed``.

    ``lock_handle`` holds the trial's lock, which the supervisor then holds too.
    """

    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    log: Path
    lock: Path
    lock_handle: int
    grace_s: float = 10.0
    printed: Path | None = None
    segments: Sequence[str] = ()


class ScriptProcess:
    """The processes of one attempt; they all end when this process ends."""

    def __init__(self, launch: Launch) -> None:
        self.log = launch.log
        self.frozen = self.released = False
        order = {
            "command": list(launch.command),
            "folder": str(launch.folder),
            "log": str(launch.log),
            "max_log_bytes": MAX_LOG_BYTES,
            "printed": str(launch.printed),
            "segments": list(launch.segments),
            "lock": str(launch.lock),
            "lock_handle": launch.lock_handle,
            "grace_s": launch.grace_s,
        }
        with launch.log.open("ab") as output:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", supervisor.__file__, json.dumps(order)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                env=dict(launch.environment),
                start_new_session=True,
                bufsize=0,
                pass_fds=[launch.lock_handle],
            )
        assert self._supervisor.stdout is not None
        os.set_blocking(self._supervisor.stdout.fileno(), False)
        self._received = b""
        self._script: int | None = None
        self._code: int | None = None

    def poll(self) -> int | None:
        """Return the exit code of the script, negative for a signal; None while it runs."""
        if self._code is None:
            ended = self._supervisor.poll() is not None
            self._receive()
            if self._code is None and ended:  # the supervisor itself was killed
                self._code = -signal.SIGKILL if self._supervisor.returncode < 0 else 126
                self._kill_group()
            if self._code is not None:
                self._close_pipes()
        return self._code

    def send(self, order: bytes) -> None:
        """Send an order to the supervisor, if it is still running."""
        assert self._supervisor.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._supervisor.stdin.write(order)
        if order in (Order.FREEZE, Order.THAW, Order.TERMINATE):
            self.frozen = order == Order.FREEZE

    def wait(self, seconds: float) -> int | None:
        """Return the exit code if the script ends within this time, otherwise None."""
        until = time.monotonic() + seconds
        while self.poll() is None and time.monotonic() < until:
            time.sleep(0.005)
        return self.poll()

    def kill(self) -> None:
        """End all processes of the script now, and wait for it."""
        if self.poll() is None:
            self.send(Order.KILL)
            if self.wait(5.0) is None:
                self._supervisor.kill()
                self._kill_group()
        self._supervisor.wait()
        self.poll()

    def memory_bytes(self) -> int:
        """Return the memory of the script and its child processes; 0 if it cannot be measured."""
        total = 0
        if self._script is None:
            return total
        with contextlib.suppress(psutil.Error, OSError):
            script = psutil.Process(self._script)
            for process in (script, *script.children(recursive=True)):
                with contextlib.suppress(psutil.Error, OSError):
                    total += process.memory_info().rss
        return total

    def last_lines(self) -> tuple[str, ...]:
        """Return the last lines of the script's output."""
        return tuple(read_lines(self.log)[-LAST_LINES:])

    def _receive(self) -> None:
        assert self._supervisor.stdout is not None
        while not self._supervisor.stdout.closed:
            data = self._supervisor.stdout.read(4096)
            if not data:
                break
            self._received += data
        *lines, self._received = self._received.split(b"\n")
        for line in lines:
            word, _, number = line.decode(errors="replace").partition(" ")
            if word == "started":
                self._script = int(number)
            elif word == "released":
                self.released = True
            elif word == "exit":
                self._code = int(number)

    def _kill_group(self) -> None:
        if self._script is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._script, signal.SIGKILL)

    def _close_pipes(self) -> None:
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        self._supervisor.wait()


def read_lines(log: Path) -> list[str]:
    """Return the end of a log as printable lines, with the log before it if this one is short."""
    text = ""
    for path in (log, log.with_name(log.name + ".old")):
        text = read_tail(path) + text
        if len(text) >= ENOUGH_CHARACTERS:
            break
    text = text.replace("\r", "\n")
    printable = ("".join(c if c.isprintable() or c == "\t" else "�" for c in line) for line in text.split("\n"))
    return [line[:500].rstrip() for line in printable if line.strip()]
