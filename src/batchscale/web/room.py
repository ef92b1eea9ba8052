"""Room on the disk, for pages: how much is free where a folder is, and whether that is little."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from batchscale.run.disk import WATERMARK_BYTES

LITTLE = 10 * WATERMARK_BYTES


@dataclass(frozen=True)
class DiskRoom:
    """``free`` of ``total`` bytes; a run pauses when fewer than ``pauses_at`` are left."""

    free: int
    total: int
    pauses_at: int = WATERMARK_BYTES

    @property
    def is_little(self) -> bool:
        """Whether somebody should make room."""
        return bool(self.free < LITTLE)


def find_room(path: Path) -> DiskRoom | None:
    """The room where a path is; None where the file system does not say."""
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        return None
    return DiskRoom(usage.free, usage.total) if usage.total else None
