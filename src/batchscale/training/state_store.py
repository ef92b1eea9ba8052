"""The states of a study's trials, in a folder or at a remote path, as one archive per state (`state_archive`).

In a folder, a trial in training has ``TRIAL_ID.newest.npz`` and, of the save before, ``TRIAL_ID.previous.npz``; a trial
that ended has ``TRIAL_ID.npz``, from which a larger step budget continues. At a remote path a trial in training has
``TRIAL_ID.npz`` alone: object stores replace a file as a whole. Every file may be removed at any time: a trial without
a readable state is trained again from its seed, with the same result.
"""

import math
import os
import re
import shutil
import sys
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, final

import jax
import numpy as np

from batchscale.errors import RunError, StorageError, one_line
from batchscale.records.durable import REAL, make_folders, replacing_atomically, sync_path
from batchscale.records.remote_store import RemoteStore
from batchscale.training.hosts import HostGroup
from batchscale.training.state import TrialState
from batchscale.training.state_archive import (
    SavedTrial,
    pack_state,
    read_archive,
    read_parameters,
    unpack_state,
    write_archive,
)

MAX_RUNNING_BYTES = 20 * 2**30
"""The limit for the states of a study's trials that are being trained."""

MIN_FREE_BYTES = 2**30
"""The last state of an ended trial is not written to a disk with less free space than this."""

ABANDONED_AFTER_S = 3600.0
"""A temporary file that was not written to for this long belongs to a process that was killed."""

LIST_EVERY_S = 1.0
"""For so long the sizes of the stored states are remembered: listing them for each takes long with many trials."""

NEWEST, PREVIOUS, FINISHED = ".newest.npz", ".previous.npz", ".npz"
_NAME = re.compile(r"(\d+)(\.newest|\.previous)?\.npz")


class StateStore(Protocol):
    """The stored states of a study's trials."""

    def save(self, trial_id: int, saved: SavedTrial) -> None:
        """Store the state of a trial that is being trained. Whenever the process is killed, a whole state remains."""

    def finish(self, trial_id: int, saved: SavedTrial) -> None:
        """Store the last state of a trial in place of all others, if there is room; never an error."""

    def restore(self, trial_id: int, template: TrialState, identity: str) -> SavedTrial | None:
        """Return the newest readable state of this trial; None if there is none, or only those of another trial."""

    def remove(self, trial_id: int) -> None:
        """Remove all states of a trial."""


@final
class FolderStateStore:
    """States in a local folder, which several processes may share.

    On return of `save` the state is durable. The states of running trials take at most ``max_running_bytes`` together
    (those saved longest ago are removed), the states of ended trials ``max_finished_bytes`` (further ones are not
    stored).
    """

    def __init__(
        self, folder: str | Path, max_finished_bytes: int = 0, max_running_bytes: int = MAX_RUNNING_BYTES
    ) -> None:
        self._folder = Path(folder).expanduser().resolve()
        self._max_finished_bytes = max_finished_bytes
        self._max_running_bytes = max_running_bytes
        self._saved: dict[int, tuple[str, int]] = {}  # identity and step of the newest state, by trial id
        self._is_clean = False
        self._finished: dict[str, int] = {}  # the sizes of ended trials' states by file, as they were last listed
        self._listed_at = -math.inf

    def save(self, trial_id: int, saved: SavedTrial) -> None:
        """Write the newest state; the one before is the previous state, and older ones are removed.

        Raises:
            OSError: the disk is full, or the folder cannot be written.
        """
        version = (saved.identity, int(saved.state.step))
        newest = self._path(trial_id, NEWEST)
        if self._saved.get(trial_id) == version and newest.exists():
            return
        self._make_folder()
        with replacing_atomically(newest) as file:
            write_archive(file, saved)
            file.flush()
            os.fsync(file.fileno())
            with suppress(FileNotFoundError):
                newest.replace(self._path(trial_id, PREVIOUS))
        sync_path(self._folder)
        self._saved[trial_id] = version
        self._remove_oldest(trial_id)

    def finish(self, trial_id: int, saved: SavedTrial) -> None:
        """Write the last state without waiting for the disk; a torn file is detected when it is read."""
        path = self._path(trial_id, FINISHED)
        try:
            self._make_folder()
            if self._has_room(path, saved):
                with replacing_atomically(path) as file:
                    write_archive(file, saved)
                    self._finished[path.name] = file.tell()
            else:
                path.unlink(missing_ok=True)
        except OSError:  # the state only saves time
            _remove(path)
        self._remove_running(trial_id)

    def restore(self, trial_id: int, template: TrialState, identity: str) -> SavedTrial | None:
        """Read the newest, the previous or the last state, whichever is readable first."""
        for suffix in (NEWEST, PREVIOUS, FINISHED):
            try:
                with self._path(trial_id, suffix).open("rb") as file:
                    saved = read_archive(file, template, identity)
            except OSError:
                continue
            if saved is None:
                continue
            if suffix == NEWEST:
                self._saved[trial_id] = (identity, int(saved.state.step))
            elif suffix == PREVIOUS:
                _remove(self._path(trial_id, NEWEST))  # damaged: the next save must not put it in place of this one
            return saved
        return None

    def remove(self, trial_id: int) -> None:
        """Remove all files of a trial; one that cannot be removed stays."""
        self._remove_running(trial_id)
        _remove(self._path(trial_id, FINISHED))

    def _path(self, trial_id: int, suffix: str) -> Path:
        return self._folder / f"{trial_id}{suffix}"

    def _make_folder(self) -> None:
        make_folders(REAL, self._folder)  # their names are durable too, or a state could be lost with its folder
        if not self._is_clean:
            self._is_clean = True
            for abandoned in self._folder.glob("*.writing"):
                with suppress(FileNotFoundError):
                    if time.time() - abandoned.stat().st_mtime > ABANDONED_AFTER_S:
                        _remove(abandoned)

    def _remove_running(self, trial_id: int) -> None:
        self._saved.pop(trial_id, None)
        _remove(self._path(trial_id, NEWEST))
        _remove(self._path(trial_id, PREVIOUS))
        shutil.rmtree(self._folder / str(trial_id), ignore_errors=True)  # the former format, decision 0180

    def _remove_oldest(self, trial_id: int) -> None:
        """Remove the running states of the trials saved longest ago, but not of this one, until the rest fits."""
        sizes: dict[int, int] = defaultdict(int)
        saved_at: dict[int, int] = defaultdict(int)
        for name, stat in _list_archives(self._folder):
            if not _is_finished(name):
                sizes[_trial_of(name)] += stat.st_size
                saved_at[_trial_of(name)] = max(saved_at[_trial_of(name)], stat.st_mtime_ns)
        for oldest in sorted(sizes, key=lambda key: (saved_at[key], key)):
            if sum(sizes.values()) <= self._max_running_bytes:
                return
            if oldest != trial_id:
                self._remove_running(oldest)
                del sizes[oldest]

    def _has_room(self, path: Path, saved: SavedTrial) -> bool:
        room = self._max_finished_bytes - sum(np.asarray(leaf).nbytes for leaf in jax.tree.leaves(saved.state))
        is_old = time.monotonic() - self._listed_at > LIST_EVERY_S
        if is_old or self._bytes_beside(path.name) > room:
            self._finished = {name: stat.st_size for name, stat in _list_archives(self._folder) if _is_finished(name)}
            self._listed_at = time.monotonic()
        has_room = self._bytes_beside(path.name) <= room
        return has_room and shutil.disk_usage(self._folder).free >= MIN_FREE_BYTES

    def _bytes_beside(self, name: str) -> int:
        return sum(size for other, size in self._finished.items() if other != name)


@final
class RemoteStateStore:
    """States at a remote path: one file per trial, as long as it is being trained.

    A state that cannot be written or read is reported in the log of the process: the trial is then trained again.
    """

    def __init__(self, files: RemoteStore) -> None:
        self._files = files

    def save(self, trial_id: int, saved: SavedTrial) -> None:
        """Send the newest state."""
        name = _remote_name(trial_id)
        try:
            self._files.put(name, pack_state(saved))
        except StorageError as error:
            _log(f"The state {name} is not stored. {error}")

    def finish(self, trial_id: int, saved: SavedTrial) -> None:
        """Remove the state."""
        del saved
        self.remove(trial_id)

    def restore(self, trial_id: int, template: TrialState, identity: str) -> SavedTrial | None:
        """Fetch the newest state."""
        name = _remote_name(trial_id)
        try:
            data = self._files.get(name)
        except StorageError as error:
            _log(f"The state {name} is not read. {error}")
            return None
        return unpack_state(data, template, identity) if data else None

    def remove(self, trial_id: int) -> None:
        """Remove the file of a trial."""
        self._files.remove(_remote_name(trial_id))


@final
class SharedStateStore:
    """States of trials that several hosts train together: the chief alone reads and writes, and sends what it read."""

    def __init__(self, store: StateStore | None, hosts: HostGroup) -> None:
        self._store = store if hosts.is_chief else None
        self._hosts = hosts

    def save(self, trial_id: int, saved: SavedTrial) -> None:
        """Store a state, if this is the chief."""
        if self._store is not None:
            self._store.save(trial_id, saved)

    def finish(self, trial_id: int, saved: SavedTrial) -> None:
        """Store the last state, if this is the chief."""
        if self._store is not None:
            self._store.finish(trial_id, saved)

    def restore(self, trial_id: int, template: TrialState, identity: str) -> SavedTrial | None:
        """Return what the chief has of this trial."""
        saved = None if self._store is None else self._store.restore(trial_id, template, identity)
        data = self._hosts.share(f"trial {trial_id}", b"" if saved is None else pack_state(saved))
        if saved is not None:
            return saved
        return unpack_state(data, template, identity) if data else None

    def remove(self, trial_id: int) -> None:
        """Remove all states of a trial, if this is the chief."""
        if self._store is not None:
            self._store.remove(trial_id)


def open_store(location: str | Path, max_finished_bytes: int) -> StateStore:
    """Return the store of a study in a folder, or at a remote path such as ``s3://BUCKET/STATES/BATCH_SIZE``."""
    if "://" in str(location):
        return RemoteStateStore(RemoteStore(str(location)))
    return FolderStateStore(location, max_finished_bytes)


@dataclass(frozen=True)
class TrainedParameters:
    """The parameters of a trial as nested dictionaries of arrays, and the steps it was trained."""

    trial_id: int
    step: int
    parameters: dict[str, Any]


def read_trained(folder: Path, trial_id: int | None = None) -> TrainedParameters:
    """Return the newest parameters of a trial, by default of the last trial, without its model.

    Raises:
        RunError: There is no state, or none that can be read.
    """
    names = {name for name, _ in _list_archives(folder)}
    trial_ids = sorted({_trial_of(name) for name in names})
    if trial_id is None and trial_ids:
        trial_id = trial_ids[-1]
    for suffix in (NEWEST, PREVIOUS, FINISHED):
        if f"{trial_id}{suffix}" in names:
            with (folder / f"{trial_id}{suffix}").open("rb") as file:
                trained = read_parameters(file)
            if trained is not None:
                return TrainedParameters(int(trial_id or 0), *trained)
    raise RunError(
        f"{one_line(folder, 300)} must hold a checkpoint of a trial that can be read. Found trials "
        f"{trial_ids or 'none'}; train one with `batchscale train … --out`."
    )


def _list_archives(folder: Path) -> list[tuple[str, os.stat_result]]:
    """Return the names of the archives in a folder; another process may remove some meanwhile."""
    archives = []
    if folder.is_dir():
        with os.scandir(folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if _NAME.fullmatch(entry.name):
                        archives.append((entry.name, entry.stat()))
    return archives


def _trial_of(name: str) -> int:
    return int(name.partition(".")[0])


def _remote_name(trial_id: int) -> str:
    return f"{trial_id}{FINISHED}"


def _is_finished(name: str) -> bool:
    return name.count(".") == 1


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


def _log(text: str) -> None:
    sys.stderr.write(f"{text}\n")
