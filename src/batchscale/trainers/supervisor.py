"""The supervisor of one script: started by file, standard library only, so that it is up in a few milliseconds.

It starts the script in a process group of its own, keeps its output in a bounded log, and sees to it that nothing of
the script outlives the worker: when its standard input ends, for whatever reason, all processes of the script are
killed. It is told single letters (see `Order`) and says ``started PID`` and ``exit CODE``, each on a line.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import re
import selectors
import signal
import sys
import time
from pathlib import Path
from typing import IO, Any

MAX_LINE_BYTES = 65536
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CHUNK = 65536

LOOK_EVERY_S = 0.25
"""How often it is seen whether another worker waits for the trial."""


class Order:
    """What the supervisor may be told."""

    TERMINATE = b"t"
    """Ask the script to save and leave: SIGTERM to its first process, which passes it on if it wants to."""

    KILL = b"k"
    FREEZE = b"s"
    THAW = b"c"


class Log:
    """Output in a file and its predecessor, each below a limit; trouble with it is never the script's trouble."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._file: IO[bytes] | None = None
        self._written = 0

    def write(self, data: bytes) -> None:
        """Keep the data; what was there moves to ``NAME.old`` when the file is full."""
        try:
            if self._file is None:
                self._file = self._path.open("ab", buffering=0)
                self._written = self._path.stat().st_size
            elif self._written > self._max_bytes:
                self._file.close()
                self._path.replace(self._path.with_name(self._path.name + ".old"))
                self._file, self._written = self._path.open("wb", buffering=0), 0
            self._file.write(data)
            self._written += len(data)
        except OSError:
            self._file = None


class PrintedLines:
    """The printed lines that hold a measurement, copied to a file of their own."""

    def __init__(self, path: Path, pattern: str) -> None:
        self._file = path.open("ab", buffering=0)
        self._pattern = re.compile(pattern.encode())
        self._rest = b""

    def write(self, data: bytes) -> None:
        """Take in output; progress bars end their lines with a carriage return."""
        *lines, self._rest = re.split(rb"[\r\n]+", self._rest + data)
        self._rest = self._rest[-MAX_LINE_BYTES:]
        for line in lines:
            if len(line) <= MAX_LINE_BYTES and self._pattern.search(line):
                self._file.write(line + b"\n")

    def close(self) -> None:
        """Take the last line as ended."""
        self.write(b"\n")


class Supervisor:
    """The script and everything it started."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._log = Log(Path(order["log"]), int(order["max_log_bytes"]))
        self._printed = PrintedLines(Path(order["printed"]), order["pattern"]) if order.get("pattern") else None
        self._selector = selectors.DefaultSelector()
        self._child = self._output = -1
        self._lock = Path(order["lock"])
        self._looked_at = time.monotonic()
        self._left_at = float("inf")
        self._grace_s = float(order["grace_s"])
        self._start(order)

    def _start(self, order: dict[str, Any]) -> None:
        libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        if libc is not None:
            libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # what leaves the group still belongs to us
        self._output, theirs = os.pipe()
        parent = os.getpid()
        self._child = os.fork()
        if self._child == 0:
            try:
                os.setsid()
                if libc is not None:
                    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() != parent:
                    os._exit(127)
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1):
                    signal.signal(number, signal.SIG_DFL)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(theirs, 1)
                os.dup2(theirs, 2)
                os.chdir(order["folder"])
                os.execvp(order["command"][0], order["command"])  # noqa: S606 - a list, never a shell
            except OSError as error:
                os.write(2, f"{order['command'][0]}: {error.strerror}\n".encode())
            os._exit(127)
        os.close(theirs)
        os.set_blocking(self._output, False)

    def serve(self) -> int:
        """Look after the script until it has ended; its exit code (negative: the signal)."""
        say(f"started {self._child}")
        wake, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for handle in (0, self._output, wake):
            self._selector.register(handle, selectors.EVENT_READ)
        status = self._reap()
        while status is None:
            self._heed_others()
            for key, _ in self._selector.select(timeout=LOOK_EVERY_S):
                if key.fd == 0:
                    self._obey(os.read(0, 64))
                elif key.fd == self._output:
                    self._pump()
                else:
                    os.read(wake, 64)
            status = self._reap()
        self._end_all()
        while self._pump():
            pass
        if self._printed is not None:
            self._printed.close()
        return os.waitstatus_to_exitcode(status) if hasattr(os, "waitstatus_to_exitcode") else status

    def _heed_others(self) -> None:
        """Let the script save and leave when another worker is to train the trial."""
        now = time.monotonic()
        if now > self._left_at + self._grace_s:
            self._signal_group(signal.SIGKILL)
        if now - self._looked_at >= LOOK_EVERY_S and self._left_at == float("inf"):
            self._looked_at = now
            if wanted(self._lock).exists():
                self._left_at = now
                self._obey(Order.TERMINATE)

    def _obey(self, orders: bytes) -> None:
        if not orders:  # the worker is gone
            self._signal_group(signal.SIGKILL)
            self._end_all()
            os._exit(0)
        for letter in orders:
            order = bytes([letter])
            if order == Order.TERMINATE:
                self._signal_group(signal.SIGCONT)
                os.kill(self._child, signal.SIGTERM)
            elif order == Order.KILL:
                self._signal_group(signal.SIGKILL)
            elif order == Order.FREEZE:
                self._signal_group(signal.SIGSTOP)
            elif order == Order.THAW:
                self._signal_group(signal.SIGCONT)

    def _signal_group(self, number: int) -> None:
        for send in (os.killpg, os.kill):  # at the very start there is no group yet
            try:
                send(self._child, number)
            except OSError:
                continue
            return

    def _pump(self) -> bool:
        try:
            data = os.read(self._output, _CHUNK)
        except OSError:
            return False
        if not data:
            self._selector.unregister(self._output)
            os.close(self._output)
            self._output = -1
            return False
        self._log.write(data)
        if self._printed is not None:
            self._printed.write(data)
        return True

    def _reap(self) -> "int | None":
        pid, status = os.waitpid(self._child, os.WNOHANG)
        return status if pid else None

    def _end_all(self) -> None:
        """Kill what the script left behind: its group, and what went its own way, which is our child by now."""
        self._signal_group(signal.SIGKILL)
        for _ in range(100):
            for pid in children(os.getpid()):
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    continue
            try:
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            except ChildProcessError:
                return
            time.sleep(0.01)


def children(parent: int) -> "list[int]":
    """The processes of this parent; none where the system has no /proc."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(path.parent.name))
    return found


def lock(path: Path, seconds: float) -> None:
    """Hold the trial's lock as long as this process lives; whoever holds it, with a paused script, is asked for it."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > until:
                sys.exit(f"{path}: another process is training this trial.")
            wanted(path).touch()
            time.sleep(0.02)
        else:
            wanted(path).unlink(missing_ok=True)
            return


def wanted(path: Path) -> Path:
    """The file that says that another worker waits for this lock."""
    return path.with_name(path.name + ".wanted")


def say(words: str) -> None:
    """Tell the worker; if it is gone, our standard input says so too."""
    with contextlib.suppress(OSError):
        os.write(1, f"{words}\n".encode())


def main(text: str) -> None:
    """Look after the script that the order (JSON) describes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # what is sent to everyone is the driver's business
    order = json.loads(text)
    lock(Path(order["lock"]), float(order["lock_s"]))
    say(f"exit {Supervisor(order).serve()}")


if __name__ == "__main__":
    main(sys.argv[1])
