"""Checkpoints of trials, by Orbax: a state, its measurements and what it belongs to, kept only while useful.

Layout: ``DIR/TRIAL_ID/STEP``. Orbax makes a step visible whole; the last two steps are kept, because its last rename is
not followed by a directory sync. A damaged or foreign checkpoint is passed over: the trial is then computed again.
Orbax is loaded by the first checkpoint that is written or read: most workers need none, and start sooner without it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jax
import numpy as np
from etils import epath

from batchscale.study.tasks import Row
from batchscale.training.state import TrialState

KEPT_STEPS = 2


@dataclass(frozen=True)
class SavedTrial:
    """A trial's state on the host with its measurements; ``identity`` says whose it is."""

    state: TrialState
    rows: Mapping[int, Mapping[str, float]]
    identity: str


class CheckpointStore:
    """The checkpoints of one study in a local or remote folder, together below a size limit."""

    def __init__(self, folder: str | Path, max_bytes: int) -> None:
        self._folder = epath.Path(folder).expanduser()
        if "://" not in str(folder):
            self._folder = epath.Path(Path(str(self._folder)).resolve())
        self._max_bytes = max_bytes
        self._sizes: dict[int, int] | None = None  # bytes by trial id, least recently saved first

    def save(self, trial_id: int, saved: SavedTrial) -> None:
        """Writes the state beside the trial's earlier step; older ones go."""
        step = int(saved.state.step)
        folder = self._folder / str(trial_id)
        if (folder / str(step)).exists():
            return
        import orbax.checkpoint as ocp

        facts = {"identity": saved.identity, "rows": [row_to_json(step, values) for step, values in saved.rows.items()]}
        self._checkpointer.save(
            folder / str(step),
            args=ocp.args.Composite(
                state=ocp.args.PyTreeSave(jax.tree.map(np.asarray, saved.state)), facts=ocp.args.JsonSave(facts)
            ),
        )
        for old in self._steps(trial_id)[:-KEPT_STEPS]:
            (folder / str(old)).rmtree(missing_ok=True)
        self._hold_limit(trial_id, sum(leaf.nbytes for leaf in jax.tree.leaves(saved.state)))

    def restore(self, trial_id: int, template: TrialState, identity: str) -> SavedTrial | None:
        """The newest readable state of this trial; None if there is none or it belongs to another trial."""
        for step in reversed(self._steps(trial_id)):
            found = self._read(self._folder / str(trial_id) / str(step), template, identity)
            if found is not None:
                return found
        return None

    def forget(self, trial_id: int) -> None:
        """Removes everything of the trial."""
        (self._folder / str(trial_id)).rmtree(missing_ok=True)
        if self._sizes is not None:
            self._sizes.pop(trial_id, None)

    def _read(self, path: epath.Path, template: TrialState, identity: str) -> SavedTrial | None:
        import orbax.checkpoint as ocp

        restore_args = jax.tree.map(lambda _: ocp.RestoreArgs(restore_type=np.ndarray), template)
        try:
            found = self._checkpointer.restore(
                path,
                args=ocp.args.Composite(
                    state=ocp.args.PyTreeRestore(item=template, restore_args=restore_args),
                    facts=ocp.args.JsonRestore(),
                ),
            )
        except Exception:  # noqa: BLE001 - Orbax raises many kinds for a damaged folder; all mean: compute it again
            return None
        shapes = [np.shape(leaf) for leaf in jax.tree.leaves(found.state)]
        if shapes != [np.shape(leaf) for leaf in jax.tree.leaves(template)]:
            return None
        return check_saved(TrialState(*found.state), found.facts, identity)

    @cached_property
    def _checkpointer(self) -> Any:
        return _make_checkpointer()

    def _steps(self, trial_id: int) -> list[int]:
        folder = self._folder / str(trial_id)
        if not folder.exists():
            return []
        return sorted(int(child.name) for child in folder.iterdir() if child.name.isdigit())

    def _hold_limit(self, trial_id: int, num_bytes: int) -> None:
        """Drops the checkpoints of the trials saved longest ago until the rest fits; such a trial starts over."""
        if self._sizes is None:
            found = [int(child.name) for child in self._folder.iterdir() if child.name.isdigit()]
            self._sizes = dict.fromkeys(sorted(found), num_bytes * KEPT_STEPS)
        self._sizes.pop(trial_id, None)
        self._sizes[trial_id] = num_bytes * len(self._steps(trial_id))
        while sum(self._sizes.values()) > self._max_bytes and len(self._sizes) > 1:
            self.forget(next(iter(self._sizes)))


def _make_checkpointer() -> Any:
    """A checkpointer of this process alone: in a cluster the chief saves, and waits for nobody."""
    import orbax.checkpoint as ocp

    here = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=here, active_processes={here}, barrier_sync_key_prefix="batchscale"
    )
    if jax.process_count() == 1:
        return ocp.Checkpointer(ocp.CompositeCheckpointHandler())
    options = ocp.CompositeOptions(multiprocessing_options=alone)
    return ocp.Checkpointer(ocp.CompositeCheckpointHandler(composite_options=options), multiprocessing_options=alone)


def check_saved(state: TrialState, facts: object, identity: str) -> SavedTrial | None:
    """A state with the facts that were stored beside it; None if they are not this trial's, or make no sense."""
    try:
        if not isinstance(facts, Mapping) or facts["identity"] != identity:
            return None
        rows = dict(row_from_json(row) for row in facts["rows"])
    except (LookupError, TypeError, ValueError, AttributeError):
        return None
    return SavedTrial(state, rows, identity) if max(rows, default=0) <= int(state.step) else None


def row_to_json(step: int, values: Mapping[str, float]) -> list[Any]:
    """A row as JSON, which has no NaN and no infinity: those are stored by their names."""
    return [step, {name: value if math.isfinite(value) else str(value) for name, value in values.items()}]


def row_from_json(row: list[Any]) -> Row:
    """The row that `row_to_json` stored; raises one of several errors for anything else."""
    step, values = row
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise ValueError(f"a step is a whole number. Found {step!r}.")
    return step, {name: float(value) for name, value in values.items()}
