"""The driver's heartbeat: a file whose size changes every few seconds. A worker that sees it stand still leaves.

Only its size counts, timed by the reader's own clock: clocks of machines differ, and times of files are coarse. If the
file was removed, the heartbeat has ended.
"""

import contextlib
import threading
import time
from dataclasses import dataclass
from pathlib import Path

MAX_BYTES = 2000
"""The file stays within the first block of its disk, which is allocated: a full disk does not stop the heartbeat."""


@dataclass(frozen=True)
class HeartbeatSettings:
    """The interval of heartbeats between driver and workers, and when a missing one has consequences.

    A worker leaves ``leave_s`` after the driver's last heartbeat; the driver cancels a worker ``cancel_s`` after its
    last message.
    """

    interval_s: float = 5.0
    leave_s: float = 60.0
    cancel_s: float = 180.0


class Heartbeat:
    """Writes the heartbeat in a thread of its own until it is ended."""

    def __init__(self, path: Path, interval_s: float) -> None:
        self._path = path
        self._interval_s = interval_s
        self._ended = threading.Event()
        path.touch(mode=0o600)
        path.write_bytes(b".")
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def end(self) -> None:
        """Remove the file: workers leave at once."""
        self._ended.set()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._ended.wait(self._interval_s):
            with contextlib.suppress(OSError), self._path.open("r+b") as file:  # a disk that is away is seen by all
                if file.seek(0, 2) >= MAX_BYTES:
                    file.truncate(1)
                else:
                    file.write(b".")


class HeartbeatMonitor:
    """Checks whether a heartbeat continues."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._size = -1
        self._changed_at = time.monotonic()

    def is_alive(self) -> bool:
        """Return True if the file has changed within the timeout; False at once if it was removed."""
        now = time.monotonic()
        try:
            with self._path.open("rb") as file:  # opened each time: then a network file system asks the server
                size = file.seek(0, 2)
        except FileNotFoundError:
            return False
        except OSError:
            size = self._size  # not readable at the moment
        if size != self._size:
            self._size, self._changed_at = size, now
        return now - self._changed_at < self._timeout_s
