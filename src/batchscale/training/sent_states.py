"""States that a host without a disk of the run's keeps elsewhere: it sends them there, and asks for them."""

import tempfile
from pathlib import Path
from typing import Protocol, final

from batchscale.cluster.folders import unpack_folder
from batchscale.training.agreement import from_bytes, to_bytes
from batchscale.training.checkpoints import CheckpointStore, SavedTrial
from batchscale.training.state import TrialState


class StatePost(Protocol):
    """Where states of a study's trials are sent."""

    def keep(self, trial_id: int, data: bytes, ended: bool) -> None:
        """Keep a state of a trial that has ``ended`` or not, in place of an earlier one; an empty one drops it."""

    def find(self, trial_id: int) -> bytes:
        """The state that is kept; empty if there is none."""

    def find_checkpoints(self, trial_id: int) -> bytes:
        """The checkpoints that another kind of run has left, packed; empty if there are none."""


@final
class SentStates:
    """Keeps states by sending them: those of ended trials (``ended``), or of others.

    There is one state per trial. That of an ended trial takes the place of its checkpoint, which need not be dropped.
    Checkpoints that a run on one host has left are newer than such a state, and looked for first.
    """

    def __init__(self, post: StatePost, ended: bool) -> None:
        self._post = post
        self._ended = ended

    def save(self, trial_id: int, saved: SavedTrial) -> None:
        """Send a state."""
        self._post.keep(trial_id, to_bytes(saved), self._ended)

    def restore(self, trial_id: int, template: TrialState, identity: str) -> SavedTrial | None:
        """The state that is kept; None if there is none, or it is another trial's or not readable."""
        data = self._post.find(trial_id) if self._ended else self._post.find_checkpoints(trial_id)
        try:
            if not data:
                return None
            return (from_bytes if self._ended else _from_checkpoints)(data, template, identity)
        except Exception:  # noqa: BLE001 - a damaged zip file raises many kinds; all mean: compute it again
            return None

    def forget(self, trial_id: int) -> None:
        """Drop what is kept."""
        if self._ended:
            self._post.keep(trial_id, b"", self._ended)


def _from_checkpoints(data: bytes, template: TrialState, identity: str) -> SavedTrial | None:
    """The newest readable one of a trial's packed checkpoints."""
    with tempfile.TemporaryDirectory(prefix="batchscale-") as folder:
        unpack_folder(data, Path(folder) / "0")
        return CheckpointStore(folder, max_bytes=0).restore(0, template, identity)
