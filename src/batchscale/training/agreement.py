"""What the processes that train a trial together must do alike, as the engine asks for it.

Alone, a process agrees with itself. In a cluster the answers come from its other processes, and only the chief keeps
checkpoints: the others are told what it finds.
"""

import io
from typing import Protocol, final

import numpy as np

from batchscale.training.checkpoints import SavedTrial
from batchscale.training.shelf import from_arrays, to_arrays
from batchscale.training.state import TrialState


class Agreement(Protocol):
    """All processes ask the same, in the same order; all get the same answer."""

    @property
    def is_chief(self) -> bool:
        """Whether this process writes."""

    def any(self, tag: str, mine: bool) -> bool:
        """Whether it is so for any of them."""

    def chiefs(self, tag: str, mine: int) -> int:
        """The chief's number."""

    def share(self, tag: str, payload: bytes) -> bytes:
        """The chief's bytes."""


@final
class Alone:
    """The agreement of a process that has no others."""

    is_chief = True

    def any(self, tag: str, mine: bool) -> bool:
        """Its own answer."""
        del tag
        return mine

    def chiefs(self, tag: str, mine: int) -> int:
        """Its own number."""
        del tag
        return mine

    def share(self, tag: str, payload: bytes) -> bytes:
        """Its own bytes."""
        del tag
        return payload


class Keeper(Protocol):
    """Where states of trials are kept: checkpoints, or the shelf of ended trials."""

    def restore(self, trial_id: int, template: TrialState, identity: str) -> SavedTrial | None:
        """The newest readable state of this trial."""

    def save(self, trial_id: int, saved: SavedTrial) -> object:
        """Keep a state."""

    def forget(self, trial_id: int) -> None:
        """Remove everything of the trial."""


@final
class SharedKeeper:
    """States that the chief keeps for all: it alone reads and writes, and sends the others what it found."""

    def __init__(self, keeper: Keeper | None, agreement: Agreement) -> None:
        self._keeper = keeper if agreement.is_chief else None
        self._agreement = agreement

    def restore(self, trial_id: int, template: TrialState, identity: str) -> SavedTrial | None:
        """What the chief has of this trial."""
        found = None if self._keeper is None else self._keeper.restore(trial_id, template, identity)
        payload = b"" if found is None else to_bytes(found)
        shared = self._agreement.share(f"trial {trial_id}", payload)
        if found is not None:
            return found
        return from_bytes(shared, template, identity) if shared else None

    def save(self, trial_id: int, saved: SavedTrial) -> None:
        """Keep a state, if this is the chief."""
        if self._keeper is not None:
            self._keeper.save(trial_id, saved)

    def forget(self, trial_id: int) -> None:
        """Remove everything of the trial, if this is the chief."""
        if self._keeper is not None:
            self._keeper.forget(trial_id)


def to_bytes(saved: SavedTrial) -> bytes:
    """A saved trial as bytes."""
    buffer = io.BytesIO()
    np.savez(buffer, **to_arrays(saved))
    return buffer.getvalue()


def from_bytes(data: bytes, template: TrialState, identity: str) -> SavedTrial | None:
    """The trial that `to_bytes` packed."""
    with np.load(io.BytesIO(data), allow_pickle=False) as file:
        return from_arrays(file, template, identity)
