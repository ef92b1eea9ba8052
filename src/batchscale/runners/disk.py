"""The free-space watermark: a run pauses before the disk is full, and goes on when there is room again."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

WATERMARK_BYTES = 100 * 2**20
CHECK_EVERY_S = 2.0


def free_bytes(path: Path) -> int:
    """The space that is left where the path is."""
    return shutil.disk_usage(path).free


class DiskGuard:
    """Looks at the free space now and then."""

    def __init__(
        self, path: Path, watermark: int = WATERMARK_BYTES, measure: Callable[[Path], int] = free_bytes
    ) -> None:
        self._path = path
        self._watermark = watermark
        self._measure = measure
        self._checked_at = -CHECK_EVERY_S
        self._complaint: str | None = None

    def complaint(self) -> str | None:
        """Why no new training should start now, or None."""
        now = time.monotonic()
        if now - self._checked_at >= CHECK_EVERY_S:
            self._checked_at = now
            free = self._measure(self._path)
            self._complaint = None
            if free < self._watermark:
                self._complaint = (
                    f"{self._path}: {free / 2**20:.0f} MB are free and {self._watermark / 2**20:.0f} MB must be. "
                    "Free some space; the run goes on by itself."
                )
        return self._complaint
