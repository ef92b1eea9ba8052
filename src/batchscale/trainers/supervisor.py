"""The supervisor of one script: started by file, standard library only, so that it starts in a few milliseconds.

It starts the script in a process group of its own, writes its output to a bounded log, and ensures that no process of
the script outlives the worker: when its standard input ends, for whatever reason, all processes of the script are
killed. It receives single letters (see `Order`) and sends lines: ``started PID``, ``released`` when another worker asks
for the trial, and ``exit CODE``.
"""

import contextlib
import ctypes
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
MAX_TRIED, MAX_TRIED_BYTES = 5, 200
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_CHUNK = 65536

CHECK_EVERY_S = 0.25
"""The time between two checks for another worker that waits for the trial."""


class Order:
    """The orders that a worker sends to the supervisor."""

    TERMINATE = b"t"
    """Request the script to save and exit: SIGTERM to its first process, which may pass it on."""

    KILL = b"k"
    FREEZE = b"s"
    THAW = b"c"


class Log:
    """Output in a file and its predecessor, each below a limit; an error here never affects the script."""

    def __init__(self, path: Path, max_bytes: int) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._file: IO[bytes] | None = None
        self._written = 0

    def write(self, data: bytes) -> None:
        """Append the data; a full file is renamed to ``NAME.old`` first."""
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


def match_segments(segments: "list[re.Pattern[Any]]", line: Any) -> "list[Any] | None":
    """Return the groups of regular expressions that match one after the other, each at its first place; else None.

    This takes time in proportion to the line, which one expression with gaps between its parts does not.
    """
    groups: list[Any] = []
    position = 0
    for segment in segments:
        match = segment.search(line, position)
        if match is None:
            return None
        position = match.end()
        groups += match.groups()
    return groups


class PrintedLines:
    """A copy of the printed lines that hold a measurement; before the first, of the first lines that do not."""

    def __init__(self, path: Path, segments: "list[str]") -> None:
        self._file = path.open("ab", buffering=0)
        self._tried = tried_file(path)
        self._num_tried = 0
        self._segments = [re.compile(segment.encode()) for segment in segments]
        self._rest = b""

    def write(self, data: bytes) -> None:
        """Add output; progress bars end their lines with a carriage return."""
        *lines, self._rest = re.split(rb"[\r\n]+", self._rest + data)
        self._rest = self._rest[-MAX_LINE_BYTES:]
        for line in lines:
            if len(line) <= MAX_LINE_BYTES and match_segments(self._segments, line) is not None:
                self._file.write(line + b"\n")
                self._num_tried = MAX_TRIED
            elif self._num_tried < MAX_TRIED and line.strip():
                self._num_tried += 1
                with contextlib.suppress(OSError), self._tried.open("ab", buffering=0) as tried:
                    tried.write(line[:MAX_TRIED_BYTES] + b"\n")

    def close(self) -> None:
        """Handle the last line as complete."""
        self.write(b"\n")


class Supervisor:
    """The script and everything it started."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._log = Log(Path(order["log"]), int(order["max_log_bytes"]))
        self._printed = PrintedLines(Path(order["printed"]), order["segments"]) if order.get("segments") else None
        self._selector = selectors.DefaultSelector()
        self._child = self._output = -1
        self._lock = Path(order["lock"])
        self._checked_at = time.monotonic()
        self._released_at = float("inf")
        self._grace_s = float(order["grace_s"])
        self._start(order)

    def _start(self, order: dict[str, Any]) -> None:
        libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        if libc is not None:
            libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)  # processes that leave the group become our children
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
        """Supervise the script until it has ended; return its exit code (negative: the signal)."""
        send(f"started {self._child}")
        wake, waker = os.pipe()
        os.set_blocking(waker, False)
        signal.set_wakeup_fd(waker)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for handle in (0, self._output, wake):
            self._selector.register(handle, selectors.EVENT_READ)
        status = self._reap()
        while status is None:
            self._check_requests()
            for key, _ in self._selector.select(timeout=CHECK_EVERY_S):
                if key.fd == 0:
                    self._handle_orders(os.read(0, 64))
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

    def _check_requests(self) -> None:
        """Let the script save and exit if another worker waits for the trial."""
        now = time.monotonic()
        if now > self._released_at + self._grace_s:
            self._signal_group(signal.SIGKILL)
        if now - self._checked_at >= CHECK_EVERY_S and self._released_at == float("inf"):
            self._checked_at = now
            # a listing: over NFS, a file that did not exist seconds ago would not be looked up again
            if request_file(self._lock).name in os.listdir(self._lock.parent):  # noqa: PTH208 - names alone
                self._released_at = now
                send("released")
                self._handle_orders(Order.TERMINATE)

    def _handle_orders(self, orders: bytes) -> None:
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
        for kill in (os.killpg, os.kill):  # at the very start there is no group yet
            try:
                kill(self._child, number)
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
        """Kill the remaining processes of the script: its group, and those that left it, which are our children now."""
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
    """Return the child processes of a process; none if the system has no /proc."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            pids.append(int(path.parent.name))
    return pids


def tried_file(path: Path) -> Path:
    """Return the file of the first printed lines that hold no measurement."""
    return path.with_name(path.name + ".tried")


def request_file(path: Path) -> Path:
    """Return the file that exists while another worker waits for this lock."""
    return path.with_name(path.name + ".wanted")


def send(text: str) -> None:
    """Send a line to the worker; if it is gone, our standard input ends too."""
    with contextlib.suppress(OSError):
        os.write(1, f"{text}\n".encode())


def main(text: str) -> None:
    """Supervise the script that the order (JSON) describes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)  # signals to the whole group are handled by the driver
    order = json.loads(text)
    os.set_inheritable(order["lock_handle"], False)  # the trial's lock is held as long as this process lives
    send(f"exit {Supervisor(order).serve()}")


if __name__ == "__main__":
    main(sys.argv[1])
