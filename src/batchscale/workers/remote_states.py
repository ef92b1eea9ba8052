"""States of running trials at a remote path (gs://, s3://, whatever fsspec knows), for workers that share no folder.

One file per trial, ``PATH/BATCH_SIZE/TRIAL_ID.npz``, that appears whole or not at all. Nothing depends on them: what
cannot be kept or read is computed again. The state of a trial that came to its end is removed.
"""

import sys
from typing import final

from batchscale.errors import StorageError, one_line
from batchscale.records.remote_store import RemoteStore

MARK = ".seen-by-nodes"


@final
class RemoteStates:
    """Where the states of one study's trials are sent."""

    def __init__(self, store: RemoteStore, batch_size: int) -> None:
        self._store = store
        self._batch_size = batch_size

    def keep(self, trial_id: int, data: bytes, ended: bool) -> None:
        """Keep a state in place of an earlier one; none is kept of a trial that has ended."""
        if ended or not data:
            self._store.remove(self._name(trial_id))
            return
        try:
            self._store.put(self._name(trial_id), data)
        except StorageError as error:  # the state is only good to have
            _log(f"The state of trial {trial_id} is not kept. {error}")

    def find(self, trial_id: int) -> bytes:
        """The state that is kept; empty if there is none."""
        try:
            return self._store.get(self._name(trial_id)) or b""
        except StorageError as error:
            _log(f"The state of trial {trial_id} is not read. {error}")
            return b""

    def find_checkpoints(self, trial_id: int) -> bytes:
        """Nothing: all states at such a path are of this kind."""
        del trial_id
        return b""

    def _name(self, trial_id: int) -> str:
        return f"{int(self._batch_size)}/{int(trial_id)}.npz"


def leave_mark(url: str, secret: str) -> None:
    """Show at the path that this run keeps states there; it is also the test whether it can.

    Raises:
        StorageError: nothing can be written there, with the reason.
    """
    RemoteStore(url).put(MARK, secret.encode())


def remove_mark(url: str) -> None:
    """Remove it, where that can be done."""
    RemoteStore(url).remove(MARK)


def find_blindness(url: str, secret: str) -> str:
    """Why this machine cannot keep states at the path; empty if it can."""
    try:
        found = RemoteStore(url).get(MARK)
    except StorageError as error:
        return one_line(error, 400)
    return "" if found == secret.encode() else f"{one_line(url, 200)}: the mark of this run is not there."


def _log(words: str) -> None:
    """One line more in the log of this worker."""
    sys.stderr.write(f"{words}\n")
