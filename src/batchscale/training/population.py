"""The slots of a population: the trial in each of them, and the states of the trials that are not in a slot.

Those states are parked in host memory, and beyond a limit in the state store; the states of ended trials stay in the
store. A trial that is in neither starts from its seed again: its results do not depend on where it ran.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import jax
import numpy as np
from numpy.typing import NDArray

from batchscale.training.branches import branch_end
from batchscale.training.shared_programs import SharedPrograms
from batchscale.training.state import TrialState
from batchscale.training.state_archive import SavedTrial
from batchscale.training.state_store import StateStore


@dataclass
class Trial:
    """The engine's record of a trial besides its state: measurements so far, and step and divergence last read.

    ``branch_end`` is the last step of the branch that it is on; None on the trunk, and for a study without branches.
    """

    trial_id: int
    identity: str
    rows: dict[int, Mapping[str, float]] = field(default_factory=dict)
    step: int = 0
    diverged_at: int | None = None
    branch_end: int | None = None

    def update(self, step: int, diverged_at: int) -> None:
        """Set the step and the divergence that were read from the trial's state."""
        self.step = step
        self.diverged_at = None if diverged_at < 0 else diverged_at


class Population:
    """A fixed number of slots on the device, and the parked states."""

    def __init__(self, programs: SharedPrograms, slots: int, store: StateStore | None, max_parked_bytes: int) -> None:
        self.slots = slots
        self._programs, self._devices = programs, programs.devices
        self._template = jax.tree.map(np.asarray, programs.template)
        self.state: TrialState = self._devices.replicate(
            jax.tree.map(lambda leaf: np.stack([leaf] * slots), self._template)
        )
        # in host memory a population of one is replaced as a whole, and needs no program to be moved: so it is parked
        self._is_swapped = slots == 1 and jax.default_backend() == "cpu" and not self._devices.several
        self._store = store
        self._slot_of: OrderedDict[int, int] = OrderedDict()  # trial id → slot, least recently used first
        self._parked: OrderedDict[int, TrialState] = OrderedDict()
        member_bytes = max(1, sum(leaf.nbytes for leaf in jax.tree.leaves(self._template)))
        self._max_parked = max(1, max_parked_bytes // member_bytes)
        self._trials: dict[int, Trial] = {}

    def slot_of(self, trial_id: int) -> int:
        """Return the slot of a trial."""
        return self._slot_of[trial_id]

    def holds(self, trial_id: int) -> bool:
        """Return True if the trial's state is in memory."""
        return trial_id in self._slot_of or trial_id in self._parked

    def find(self, trial_id: int, identity: str) -> Trial | None:
        """Return the trial if its state is in memory or stored, and its metaparameters are the same."""
        trial = self._trials.get(trial_id)
        if trial is not None and trial.identity != identity:
            self.discard(trial_id)
            return None
        if trial is not None and self.holds(trial_id):
            return trial
        return self.restore(trial_id, identity)

    def restore(self, trial_id: int, identity: str) -> Trial | None:
        """Return the trial from its newest stored state, parked; None if there is none."""
        saved = self._store.restore(trial_id, self._template, identity) if self._store else None
        if saved is None:
            return None
        trial = Trial(trial_id, identity, dict(saved.rows))
        trial.update(int(saved.state.step), int(saved.state.diverged_at))
        trial.branch_end = branch_end(saved.state)
        self.start(trial, saved.state)
        return trial

    def start(self, trial: Trial, state: TrialState) -> None:
        """Add a trial; its state is parked until it gets a slot."""
        self._trials[trial.trial_id] = trial
        self._slot_of.pop(trial.trial_id, None)
        if self._is_swapped:
            state = jax.tree.map(lambda leaf: np.asarray(leaf)[None], state)
        self._park(trial.trial_id, state)

    def place(self, trial_id: int, busy: set[int]) -> int:
        """Put a trial into a slot; the trial used longest ago and not ``busy`` makes room."""
        if trial_id not in self._slot_of:
            member = self._parked.pop(trial_id)  # before another is parked, which may push this one out
            slot = self._free_slot(busy)
            if self._is_swapped:
                self.state = member
            else:
                if self._devices.several:  # an array of one device cannot be passed to a program of several
                    member = jax.tree.map(np.asarray, member)
                self.state = self._programs.enter(self.state, member, np.int32(slot))
            self._slot_of[trial_id] = slot
        self._slot_of.move_to_end(trial_id)
        return self._slot_of[trial_id]

    def fork(self, trial: Trial, start: int, end: int) -> None:
        """Let a trial in a slot leave its trunk for a branch between these steps."""
        slot = self._slot_of[trial.trial_id]
        self.state = self._programs.fork(self.state, np.int32(slot), np.int32(start), np.int32(end))
        trial.branch_end = end

    def join(self, trial: Trial) -> None:
        """Take a trial in a slot back to its trunk."""
        slot = self._slot_of[trial.trial_id]
        self.state = self._programs.join(self.state, np.int32(slot))
        trial.branch_end, trial.step = None, int(np.asarray(self.state.step)[slot])

    def save(self, trial_id: int) -> None:
        """Store the state of a trial in memory."""
        if self._store is not None:
            self._store.save(trial_id, self._saved(trial_id))

    def finish(self, trial_id: int, step: int) -> None:
        """Store the last state of a trial that ended at this step and drop it from memory.

        If its state is not in memory, or of an earlier step, another worker stores it.
        """
        if self._store is not None and self.holds(trial_id) and self._trials[trial_id].step >= step:
            self._store.finish(trial_id, self._saved(trial_id))
        self._drop(trial_id)

    def discard(self, trial_id: int) -> None:
        """Drop a trial from memory and from the store."""
        self._drop(trial_id)
        if self._store is not None:
            self._store.remove(trial_id)

    def member(self, trial_id: int) -> TrialState:
        """Return the state of a trial in memory, on the host."""
        if trial_id in self._parked:
            parked = self._parked[trial_id]
            return cast(TrialState, jax.tree.map(_first if self._is_swapped else np.asarray, parked))
        slot = self._slot_of[trial_id]
        if jax.default_backend() == "cpu":
            # a view of the slot needs no program; copied, for the next chunk consumes it
            return cast(TrialState, jax.tree.map(lambda leaf: np.array(np.asarray(leaf)[slot]), self.state))
        return cast(TrialState, jax.tree.map(np.asarray, self._programs.take(self.state, np.int32(slot))))

    def _saved(self, trial_id: int) -> SavedTrial:
        trial = self._trials[trial_id]
        return SavedTrial(self.member(trial_id), trial.rows, trial.identity)

    def _drop(self, trial_id: int) -> None:
        self._slot_of.pop(trial_id, None)
        self._parked.pop(trial_id, None)
        self._trials.pop(trial_id, None)

    def _free_slot(self, busy: set[int]) -> int:
        taken = set(self._slot_of.values())
        for slot in range(self.slots):
            if slot not in taken:
                return slot
        leaving = next(trial_id for trial_id in self._slot_of if trial_id not in busy)
        self._park(leaving, self.state if self._is_swapped else self.member(leaving))
        return self._slot_of.pop(leaving)

    def _park(self, trial_id: int, state: TrialState) -> None:
        self._parked[trial_id] = state
        self._parked.move_to_end(trial_id)
        while self._store is not None and len(self._parked) > self._max_parked:
            oldest = next(iter(self._parked))
            if oldest == trial_id:
                return
            self.save(oldest)
            del self._parked[oldest]


def _first(leaf: Any) -> NDArray[Any]:
    """Return a copy of the first element: a program may consume the array later."""
    return np.array(np.asarray(leaf)[0])
