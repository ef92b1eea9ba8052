"""A running script, seen from the worker: its supervisor, its output, its end.

Owns pipes and process ids. What the script reports is in ``reports``.
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
ENOUGH = 2000
"""So much of a log is enough to know how it ended."""

LOG_FILE = "log.txt"
LOCK_FILE = "lock"


@dataclass(frozen=True)
class Launch:
    """What is started: ``pattern`` selects printed lines that are copied to ``printed``."""

    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    log: Path
    lock: Path
    lock_s: float
    grace_s: float = 10.0
    printed: Path | None = None
    pattern: str | None = None


class ScriptProcess:
    """One attempt's processes. Closing it, or the death of this process, ends all of them."""

    def __init__(self, launch: Launch) -> None:
        self.log = launch.log
        self.frozen = False
        order = {
            "command": list(launch.command),
            "folder": str(launch.folder),
            "log": str(launch.log),
            "max_log_bytes": MAX_LOG_BYTES,
            "printed": str(launch.printed),
            "pattern": launch.pattern,
            "lock": str(launch.lock),
            "lock_s": launch.lock_s,
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
            )
        assert self._supervisor.stdout is not None
        os.set_blocking(self._supervisor.stdout.fileno(), False)
        self._heard = b""
        self._script: int | None = None
        self._code: int | None = None

    def poll(self) -> int | None:
        """The exit code of the script, negative for a signal; None while it runs."""
        if self._code is None:
            ended = self._supervisor.poll() is not None
            self._listen()
            if self._code is None and ended:  # the supervisor itself was killed
                self._code = -signal.SIGKILL if self._supervisor.returncode < 0 else 126
                self._kill_group()
            if self._code is not None:
                self._close_pipes()
        return self._code

    def send(self, order: bytes) -> None:
        """Tell the supervisor; nothing if it is gone."""
        assert self._supervisor.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            self._supervisor.stdin.write(order)
        if order in (Order.FREEZE, Order.THAW, Order.TERMINATE):
            self.frozen = order == Order.FREEZE

    def wait(self, seconds: float) -> int | None:
        """The exit code, if the script ends within this time."""
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
        """The memory that the script and what it started hold now; 0 where that cannot be known."""
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
        """The last lines of the script's output."""
        return tuple(read_lines(self.log)[-LAST_LINES:])

    def _listen(self) -> None:
        assert self._supervisor.stdout is not None
        while not self._supervisor.stdout.closed:
            data = self._supervisor.stdout.read(4096)
            if not data:
                break
            self._heard += data
        *lines, self._heard = self._heard.split(b"\n")
        for line in lines:
            word, _, number = line.decode(errors="replace").partition(" ")
            if word == "started":
                self._script = int(number)
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
    """The end of a log as lines that can be shown anywhere; of the one before it too, if it has only just begun."""
    text = ""
    for path in (log, log.with_name(log.name + ".old")):
        text = read_tail(path) + text
        if len(text) >= ENOUGH:
            break
    text = text.replace("\r", "\n")
    printable = ("".join(c if c.isprintable() or c == "\t" else "�" for c in line) for line in text.split("\n"))
    return [line[:500].rstrip() for line in printable if line.strip()]
