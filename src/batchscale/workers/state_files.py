"""States of trials that the hosts of other groups send to the chief, as files of the studies' shelves.

One file per trial, ``DIR/BATCH_SIZE/TRIAL_ID.npz``, as `training.shelf` writes them: a later run on one host, or with
other groups, goes on from them. What a run without groups has left, ``DIR/BATCH_SIZE/TRIAL_ID/STEP`` as
`training.checkpoints` writes it, is sent to a group that asks for it, and goes when a newer state comes. Nothing
depends on them; what cannot be kept is computed again.
"""

import os
import shutil
from pathlib import Path

from batchscale.cluster.folders import pack_folder
from batchscale.records.durable import replace_atomically

MAX_RUNNING_BYTES = 20 * 2**30
"""What the states of a study's trials may take that have not ended."""


class StateFiles:
    """The states of a run's trials; ``max_shelf_bytes`` is what those of a study's ended trials may take."""

    def __init__(self, folder: Path | None, max_shelf_bytes: int) -> None:
        self._folder = folder
        self._max_shelf_bytes = max_shelf_bytes

    def put(self, batch_size: int, trial_id: int, data: bytes, ended: bool) -> None:
        """Keep a state in place of an earlier one, or nothing if it is empty or there is no room."""
        path = self._path(batch_size, trial_id)
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            limit = self._max_shelf_bytes if ended else MAX_RUNNING_BYTES
            if not data or _taken(path) + len(data) > limit:
                path.unlink(missing_ok=True)
                if not data:
                    shutil.rmtree(path.with_suffix(""), ignore_errors=True)
                return
            replace_atomically(path, data)
            shutil.rmtree(path.with_suffix(""), ignore_errors=True)  # after: it is older, and would be found first
        except OSError:  # a full disk, or a right: the state is only good to have
            return

    def get(self, batch_size: int, trial_id: int) -> bytes:
        """The state of a trial; empty if none is kept."""
        path = self._path(batch_size, trial_id)
        try:
            return b"" if path is None else path.read_bytes()
        except OSError:
            return b""

    def get_checkpoints(self, batch_size: int, trial_id: int) -> bytes:
        """What a run without groups has left of a trial, packed; empty if there is nothing."""
        path = self._path(batch_size, trial_id)
        try:
            return b"" if path is None else pack_folder(path.with_suffix(""))
        except OSError:
            return b""

    def _path(self, batch_size: int, trial_id: int) -> Path | None:
        return None if self._folder is None else self._folder / str(int(batch_size)) / f"{int(trial_id)}.npz"


def _taken(path: Path) -> int:
    """The bytes of the other states beside this one."""
    with os.scandir(path.parent) as entries:
        return sum(entry.stat().st_size for entry in entries if entry.name.endswith(".npz") and entry.name != path.name)
