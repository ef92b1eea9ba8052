"""Room on the disk: estimated before a run starts, watched while it goes on.

A run pauses before the disk is full, and goes on when there is room again.
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
"""Refusals that are about single files or folders, such as a folder where a file should be: other studies can go on."""


def free_bytes(path: Path) -> int:
    """The space that is left where the path is."""
    return shutil.disk_usage(path).free


def records_bytes(plan: Plan) -> int:
    """About what the records of a plan take, for one search at every batch size."""
    return sum(study.trials * (TRIAL_BYTES + ROW_BYTES * len(study.evaluation_steps)) for study in plan.studies)


def require_room(root: Path, plan: Plan) -> None:
    """Refuse to start a run whose records the disk cannot hold; checkpoints come on top while it goes on.

    Raises:
        RunError: says how much is needed and how much is free.
    """
    there = next(path for path in (root, *root.absolute().parents) if path.exists())
    needed = records_bytes(plan)
    usage = shutil.disk_usage(there)
    if usage.total and usage.free < needed + WATERMARK_BYTES:  # some file systems do not say
        raise RunError(
            f"{root}: the records of this experiment take about {size(needed)}, and {size(WATERMARK_BYTES)} stay free. "
            f"Found {size(usage.free)}. Free some space, or give a folder on another disk with --out."
        )


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
                    f"{self._path}: {size(free)} are free and {size(self._watermark)} must be. Free some space; the "
                    "run goes on by itself."
                )
        return self._complaint
