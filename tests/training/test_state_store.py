"""Stored states of trials: which are kept, which are read, and what a kill or a damaged file costs."""

import io
import json
import math
import os
import subprocess
import sys
import time
from typing import NamedTuple
from uuid import uuid4

import jax
import numpy as np
import pytest
from made_states import state_at

from batchscale.errors import RunError, StorageError
from batchscale.records.remote_store import RemoteStore
from batchscale.training import state_store
from batchscale.training.state_archive import SavedTrial, pack_state, unpack_state
from batchscale.training.state_store import MIN_FREE_BYTES, FolderStateStore, RemoteStateStore, read_trained

ROWS = {0: {"val/loss": 1.5}, 7: {"val/loss": math.inf, "val/error": 0.25}}


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "new"


@pytest.fixture
def store(folder):
    return FolderStateStore(folder, max_finished_bytes=10**6)


def saved_at(step, rows=None, size=1000):
    return SavedTrial(state_at(step, size), rows or {}, "me")


def step_of(store, trial_id=1, identity="me"):
    saved = store.restore(trial_id, state_at(0), identity)
    return None if saved is None else int(saved.state.step)


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("kind", ["save", "finish"])
def test_what_is_stored_is_what_is_restored(store, kind):
    getattr(store, kind)(3, saved_at(7, ROWS))
    saved = store.restore(3, state_at(0), "me")
    assert saved.rows == ROWS
    assert jax.tree.structure(saved.state) == jax.tree.structure(state_at(7))
    for a, b in zip(jax.tree.leaves(saved.state), jax.tree.leaves(state_at(7)), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


@pytest.mark.parametrize("kind", ["save", "finish"])
def test_the_state_of_another_trial_or_model_is_ignored(store, kind):
    getattr(store, kind)(1, saved_at(1))
    assert store.restore(1, state_at(0), "somebody else") is None
    assert store.restore(1, state_at(0, size=7), "me") is None
    assert store.restore(2, state_at(0), "me") is None


def test_the_two_newest_states_of_a_running_trial_are_kept(store, folder):
    for step in (1, 2, 3):
        store.save(1, saved_at(step))
    assert names_in(folder) == ["1.newest.npz", "1.previous.npz"]
    assert step_of(store) == 3
    (folder / "1.newest.npz").write_bytes(b"")
    assert step_of(store) == 2


def test_a_damaged_newest_state_never_replaces_the_previous_one(store, folder):
    for step in (1, 2):
        store.save(1, saved_at(step))
    (folder / "1.newest.npz").write_bytes(b"damaged")
    other = FolderStateStore(folder)
    assert step_of(other) == 1
    other.save(1, saved_at(5))
    (folder / "1.newest.npz").unlink()
    assert step_of(other) == 1


def test_a_state_that_is_stored_already_is_not_written_again(store, folder):
    store.save(1, saved_at(1))
    written = (folder / "1.newest.npz").stat().st_mtime_ns
    store.save(1, saved_at(1))
    other = FolderStateStore(folder)
    assert step_of(other) == 1
    other.save(1, saved_at(1))
    assert names_in(folder) == ["1.newest.npz"]
    assert (folder / "1.newest.npz").stat().st_mtime_ns == written


def test_the_last_state_of_a_trial_takes_the_place_of_all_others(store, folder):
    for step in (1, 2):
        store.save(1, saved_at(step))
    for step in (3, 4):
        store.finish(1, saved_at(step))
    assert names_in(folder) == ["1.npz"]
    assert step_of(store) == 4
    store.save(1, saved_at(9))  # a larger budget continues
    assert step_of(FolderStateStore(folder)) == 9


@pytest.mark.parametrize("name", ["1.npz", "1.newest.npz"])
def test_a_file_torn_or_changed_at_any_byte_is_ignored(store, folder, name):
    (store.finish if name == "1.npz" else store.save)(1, saved_at(1, {0: {"val/loss": 1.0}}, size=20))
    path = folder / name
    whole, template = path.read_bytes(), state_at(0, size=20)
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert store.restore(1, template, "me") is None
    for place in range(len(whole)):  # most of these are in the headers of the file, which have no checksum
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        saved = store.restore(1, template, "me")
        assert saved is None or (saved.rows, saved.state.params["w"].tolist()) == ({0: {"val/loss": 1.0}}, [1.0] * 20)
    path.write_bytes(bytes(len(whole)))
    assert store.restore(1, template, "me") is None
    at = whole.index(np.full(20, 1, np.float32).tobytes()) + 40
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    assert store.restore(1, template, "me") is None


@pytest.mark.parametrize(
    "facts",
    [
        {"identity": "me"},
        {"rows": []},
        {"identity": "me", "rows": 7},
        {"identity": "me", "rows": [["7", {"val/loss": 1.0}]]},
        {"identity": "me", "rows": [[1, ["val/loss"]]]},
        {"identity": "me", "rows": [[1, {"val/loss": "much"}]]},
        {"identity": "me", "rows": [[1]]},
        {"identity": "me", "rows": [[3, {"val/loss": 1.0}]]},
        ["me"],
    ],
)
def test_a_state_with_invalid_facts_gives_way_to_the_one_before(store, folder, facts):
    for step in (1, 2):
        store.save(1, saved_at(step))
    with np.load(folder / "1.newest.npz") as arrays:
        changed = {**arrays, "facts": np.frombuffer(json.dumps(facts).encode(), np.uint8)}
    np.savez(folder / "1.newest.npz", **changed)
    assert step_of(store) == 1


def test_the_last_state_that_an_earlier_version_stored_is_read(store, folder):
    leaves = {str(number): leaf for number, leaf in enumerate(jax.tree.leaves(state_at(5)))}
    facts = json.dumps({"identity": "me", "rows": [[0, {"val/loss": "inf"}]]}).encode()
    folder.mkdir()
    np.savez(folder / "1.npz", facts=np.frombuffer(facts, np.uint8), **leaves)
    saved = store.restore(1, state_at(0), "me")
    assert (int(saved.state.step), saved.rows) == (5, {0: {"val/loss": math.inf}})


def test_a_checkpoint_of_an_earlier_version_is_ignored_and_removed_with_its_trial(store, folder):
    (folder / "1" / "50" / "state").mkdir(parents=True)
    (folder / "1" / "50" / "state" / "data").write_bytes(b"state")
    assert step_of(store) is None
    store.finish(1, saved_at(60))
    assert names_in(folder) == ["1.npz"]


def test_the_running_trials_saved_longest_ago_make_room(folder):
    one = len(pack_state(saved_at(1)))
    store = FolderStateStore(folder, max_finished_bytes=10**6, max_running_bytes=3 * one)
    store.finish(9, saved_at(1))
    for trial_id in (4, 2, 3, 1):
        store.save(trial_id, saved_at(1))
        os.utime(folder / f"{trial_id}.newest.npz", (10 - trial_id, 10 - trial_id))
        time.sleep(0.01)
    assert names_in(folder) == ["1.newest.npz", "2.newest.npz", "3.newest.npz", "9.npz"]


def test_a_state_larger_than_the_limit_is_kept_alone(folder):
    store = FolderStateStore(folder, max_running_bytes=1)
    for trial_id in (1, 2):
        store.save(trial_id, saved_at(1))
    assert names_in(folder) == ["2.newest.npz"]


def test_beyond_their_limit_last_states_are_not_stored_and_the_others_stay(folder):
    FolderStateStore(folder, max_finished_bytes=10**6).finish(1, saved_at(1))
    small = FolderStateStore(folder, max_finished_bytes=2 * (folder / "1.npz").stat().st_size)
    small.save(8, saved_at(1))
    for trial_id in (1, 2, 3, 1):
        small.finish(trial_id, saved_at(1))
    assert names_in(folder) == ["1.npz", "2.npz", "8.newest.npz"]


class Usage(NamedTuple):
    """The result of ``shutil.disk_usage``."""

    total: int
    used: int
    free: int


def test_a_disk_with_little_space_gets_no_last_states(store, monkeypatch):
    monkeypatch.setattr(state_store.shutil, "disk_usage", lambda _path: Usage(10**12, 10**12, MIN_FREE_BYTES - 1))
    store.finish(1, saved_at(1))
    assert step_of(store) is None


def test_a_last_state_that_cannot_be_written_is_no_error_but_a_checkpoint_is(tmp_path):
    (tmp_path / "file").write_text("in the way")
    store = FolderStateStore(tmp_path / "file" / "below", max_finished_bytes=10**6)
    store.finish(1, saved_at(1))
    store.remove(1)
    with pytest.raises(OSError, match="Not a directory"):
        store.save(1, saved_at(1))


def test_a_failed_write_leaves_the_state_before(store, folder, monkeypatch):
    store.save(1, saved_at(1))

    def fail(*_args, **_arrays):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", fail)
    with pytest.raises(OSError, match="No space left"):
        store.save(1, saved_at(2))
    assert names_in(folder) == ["1.newest.npz"]
    assert step_of(store) == 1


def test_removing_twice_is_no_error(store, folder):
    store.save(1, saved_at(1))
    store.finish(1, saved_at(2))
    store.save(1, saved_at(3))
    store.remove(1)
    store.remove(1)
    assert names_in(folder) == []
    folder.rmdir()
    store.remove(1)


def test_files_that_a_killed_process_left_are_removed_after_an_hour(folder):
    folder.mkdir()
    for name, age_s in (("1.newest.npz.7.writing", 4000), ("2.newest.npz.7.writing", 60)):
        (folder / name).write_bytes(b"half")
        os.utime(folder / name, (time.time() - age_s,) * 2)
    FolderStateStore(folder).save(3, saved_at(1))
    assert names_in(folder) == ["2.newest.npz.7.writing", "3.newest.npz"]


SAVE_AND_KILL = """
import os, signal, sys, time
from pathlib import Path
from made_states import state_at
from batchscale.training.state_archive import SavedTrial
from batchscale.training.state_store import FolderStateStore
for kill in range(8):
    folder = Path(sys.argv[1]) / str(kill)
    folder.mkdir(parents=True)
    steps = folder / "steps"
    steps.touch()
    child = os.fork()
    if child == 0:
        store = FolderStateStore(folder)
        handle = os.open(steps, os.O_WRONLY | os.O_APPEND)
        for step in range(1, 10**6):
            store.save(1, SavedTrial(state_at(step, 100_000), {}, "me"))
            os.write(handle, b"%d\\n" % step)
    while steps.read_bytes().count(b"\\n") < 3:
        time.sleep(0.001)
    time.sleep(0.002 * kill)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
"""


def test_a_kill_at_any_time_leaves_the_last_state_that_was_saved(folder):
    path = os.pathsep.join(entry for entry in sys.path if entry)
    subprocess.run(
        [sys.executable, "-c", SAVE_AND_KILL, str(folder)], env=os.environ | {"PYTHONPATH": path}, check=True
    )
    for killed in sorted(folder.iterdir()):
        last = int((killed / "steps").read_text().splitlines()[-1])
        saved = FolderStateStore(killed).restore(1, state_at(0, 100_000), "me")
        assert int(saved.state.step) in (last, last + 1)
        assert set(saved.state.params["w"].tolist()) == {float(saved.state.step)}


def test_parameters_are_read_without_the_model(store, folder):
    for step in (1, 2):
        store.save(4, saved_at(step))
    store.save(3, saved_at(9))
    trained = read_trained(folder)
    assert (trained.trial_id, trained.step, list(trained.parameters)) == (4, 2, ["w"])
    np.testing.assert_array_equal(trained.parameters["w"], state_at(2).params["w"])
    (folder / "4.newest.npz").write_bytes(b"damaged")
    assert read_trained(folder, 4).step == 1
    store.finish(3, saved_at(10))
    assert read_trained(folder, 3).step == 10
    with pytest.raises(RunError, match=r"Found trials \[3, 4\]"):
        read_trained(folder, 5)


def test_a_remote_store_has_one_file_per_trial_until_it_ends():
    files = RemoteStore(f"memory://{uuid4().hex}")
    store = RemoteStateStore(files)
    assert step_of(store) is None
    for step in (5, 7):
        store.save(1, saved_at(step, {5: {"val/loss": 1.5}}))
    assert files.get("1.npz")
    assert store.restore(1, state_at(0), "me").rows == {5: {"val/loss": 1.5}}
    assert step_of(store) == 7
    assert step_of(store, identity="somebody else") is None
    files.put("1.npz", b"damaged")
    assert step_of(store) is None
    store.save(1, saved_at(8))
    store.finish(1, saved_at(12))
    assert files.get("1.npz") is None


class FailingFiles:
    """A remote path that cannot be reached."""

    def put(self, name, content):
        raise StorageError("no network")

    def get(self, name):
        raise StorageError("no network")

    def remove(self, name):
        pass


def test_a_remote_path_that_fails_is_named_in_the_log_and_costs_no_trial(capsys):
    store = RemoteStateStore(FailingFiles())
    store.save(1, saved_at(1))
    assert step_of(store) is None
    store.finish(1, saved_at(1))
    assert capsys.readouterr().err.splitlines() == [
        "The state 1.npz is not stored. no network",
        "The state 1.npz is not read. no network",
    ]


def test_an_archive_that_is_no_archive_is_no_state():
    assert unpack_state(b"", state_at(0), "me") is None
    buffer = io.BytesIO()
    np.save(buffer, np.zeros(3))
    assert unpack_state(buffer.getvalue(), state_at(0), "me") is None
