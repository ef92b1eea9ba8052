"""Free disk space: estimated before a run starts, monitored while it runs.

A run pauses before the disk is full, and continues when there is space again.
"""

import errno
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from batchscale.errors import RunError
from batchscale.formatting import size
from batchscale.spec.plan import Plan

WATERMARK_BYTES = 100 * 10**6
ROW_BYTES = 160
"""A measurement of seven metrics with all their digits."""

TRIAL_BYTES = 3 * 4096
"""A trial's folder and its two files, as a file system counts them."""

CHECK_EVERY_S = 2.0

OF_ONE_STUDY = frozenset(
    (errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT, errno.EACCES, errno.EPERM)
)
"""Errors of single files or folders, such as a folder where a file should be: other studies can continue."""


def free_bytes(path: Path) -> int:
    """Return the free space on the disk of the path."""
    return shutil.disk_usage(path).free


def records_bytes(plan: Plan) -> int:
    """Estimate the size of the records of a plan, for one search at every batch size."""
    return sum(study.trials * (TRIAL_BYTES + ROW_BYTES * len(study.evaluation_steps)) for study in plan.studies)


def require_room(root: Path, plan: Plan) -> None:
    """Refuse to start a run whose records do not fit on the disk; checkpoints come on top while it runs.

    Raises:
        RunError: the records do not fit.
    """
    folder = next(path for path in (root, *root.absolute().parents) if path.exists())
    needed = records_bytes(plan)
    usage = shutil.disk_usage(folder)
    if usage.total and usage.free < needed + WATERMARK_BYTES:  # some file systems report 0
        raise RunError(
            f"{root}: the records of this experiment take about {size(needed)}, and {size(WATERMARK_BYTES)} must "
            f"stay free. Found {size(usage.free)}. Free some space, or give a folder on another disk with --out."
        )


class DiskGuard:
    """Checks the free space every few seconds."""

    def __init__(
        self, path: Path, watermark: int = WATERMARK_BYTES, measure: Callable[[Path], int] = free_bytes
    ) -> None:
        self._path = path
        self._watermark = watermark
        self._measure = measure
        self._checked_at = -CHECK_EVERY_S
        self._complaint: str | None = None

    def complaint(self) -> str | None:
        """Return why no new training may start now; None if it may."""
        now = time.monotonic()
        if now - self._checked_at >= CHECK_EVERY_S:
            self._checked_at = now
            free = self._measure(self._path)
            self._complaint = None
            if free < self._watermark:
                self._complaint = (
                    f"{self._path}: {size(free)} are free and {size(self._watermark)} must be. Free some space; the "
                    "run continues by itself."
                )
        return self._complaint
