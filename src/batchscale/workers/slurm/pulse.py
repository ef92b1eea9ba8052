"""The driver's pulse: a file whose size changes every few seconds. Whoever sees it stand still is on its own.

Its size is all that counts, measured by the watcher's own clock: clocks of machines differ, and times of files are
coarse. A pulse whose file was taken away has ended.
"""

import contextlib
import threading
import time
from pathlib import Path

MAX_BYTES = 2000
"""The file stays within the first block of its disk, which it has: a full disk does not stop the pulse."""


class Pulse:
    """Beats in a thread of its own until it is ended."""

    def __init__(self, path: Path, every_s: float) -> None:
        self._path = path
        self._every_s = every_s
        self._ended = threading.Event()
        path.touch(mode=0o600)
        path.write_bytes(b".")
        threading.Thread(target=self._beat, name="pulse", daemon=True).start()

    def end(self) -> None:
        """Take the file away: whoever watches leaves at once."""
        self._ended.set()
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _beat(self) -> None:
        while not self._ended.wait(self._every_s):
            with contextlib.suppress(OSError), self._path.open("r+b") as file:  # a disk that is away is seen by all
                if file.seek(0, 2) >= MAX_BYTES:
                    file.truncate(1)
                else:
                    file.write(b".")


class PulseWatch:
    """Sees whether a pulse goes on."""

    def __init__(self, path: Path, patience_s: float) -> None:
        self._path = path
        self._patience_s = patience_s
        self._size = -1
        self._moved_at = time.monotonic()

    def is_alive(self) -> bool:
        """Whether it has moved in the last seconds; False at once if it has ended."""
        now = time.monotonic()
        try:
            with self._path.open("rb") as file:  # opened each time: then a network file system looks at the server
                size = file.seek(0, 2)
        except FileNotFoundError:
            return False
        except OSError:
            size = self._size  # not to be read just now
        if size != self._size:
            self._size, self._moved_at = size, now
        return now - self._moved_at < self._patience_s
