"""States of trials that the hosts of other groups send to the chief, as files of the studies' state stores.

A file ``BATCH_SIZE/TRIAL_ID….npz`` is named as `training.state_store` names it: a later run on one host, or with other
groups, continues from it. A file that cannot be stored only costs time: the trial is trained again.
"""

import os
import re
from pathlib import Path

from batchscale.records.durable import replace_atomically

MAX_RUNNING_BYTES = 20 * 2**30
"""The limit for the states of a study's trials that are being trained."""

_NAME = re.compile(r"\d+/\d+(\.newest|\.previous)?\.npz")


class StateFiles:
    """The states of a run's trials; ``max_finished_bytes`` is the limit for those of a study's ended trials."""

    def __init__(self, folder: Path | None, max_finished_bytes: int) -> None:
        self._folder = folder
        self._max_finished_bytes = max_finished_bytes

    def put(self, name: str, data: bytes) -> None:
        """Write a file in place of an earlier one; remove it if ``data`` is empty or there is no room."""
        path = self._path(name)
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            is_finished = path.name.count(".") == 1
            limit = self._max_finished_bytes if is_finished else MAX_RUNNING_BYTES
            if not data or _size_of_others(path, is_finished) + len(data) > limit:
                path.unlink(missing_ok=True)
                return
            replace_atomically(path, data)
        except OSError:  # a full disk, or a missing permission
            return

    def get(self, name: str) -> bytes:
        """Return the content of a file; empty if there is none."""
        path = self._path(name)
        try:
            return b"" if path is None else path.read_bytes()
        except OSError:
            return b""

    def _path(self, name: str) -> Path | None:
        return self._folder / name if self._folder is not None and _NAME.fullmatch(name) else None


def _size_of_others(path: Path, is_finished: bool) -> int:
    """Return the bytes of the other states of the same kind in the folder."""
    with os.scandir(path.parent) as entries:
        return sum(
            entry.stat().st_size
            for entry in entries
            if entry.name.endswith(".npz") and entry.name != path.name and (entry.name.count(".") == 1) == is_finished
        )
