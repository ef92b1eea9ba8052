"""The shelf: what is kept of ended trials, and what is passed over."""

import math
import shutil
from typing import NamedTuple

import jax
import numpy as np
import pytest
from made_states import state_at

from batchscale.training import shelf as shelf_module
from batchscale.training.checkpoints import SavedTrial
from batchscale.training.shelf import MIN_FREE_BYTES, Shelf


@pytest.fixture
def shelf(tmp_path):
    return Shelf(tmp_path / "new", max_bytes=10**6)


def test_what_is_put_there_is_what_is_read(shelf):
    rows = {0: {"val/loss": 1.5}, 7: {"val/loss": math.inf, "val/error": 0.25}}
    assert shelf.save(3, SavedTrial(state_at(7), rows, "me"))
    found = shelf.restore(3, state_at(0), "me")
    assert found.rows == rows
    assert jax.tree.structure(found.state) == jax.tree.structure(state_at(7))
    for a, b in zip(jax.tree.leaves(found.state), jax.tree.leaves(state_at(7)), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


def test_a_later_state_takes_the_place_of_the_earlier(shelf, tmp_path):
    for step in (1, 2):
        assert shelf.save(1, SavedTrial(state_at(step), {}, "me"))
    assert int(shelf.restore(1, state_at(0), "me").state.step) == 2
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["1.npz"]


def test_another_trials_or_another_models_state_is_passed_over(shelf):
    shelf.save(1, SavedTrial(state_at(1), {}, "me"))
    assert shelf.restore(1, state_at(0), "somebody else") is None
    assert shelf.restore(1, state_at(0, size=7), "me") is None
    assert shelf.restore(2, state_at(0), "me") is None


def test_a_file_torn_at_any_place_or_changed_in_any_is_passed_over(shelf, tmp_path):
    shelf.save(1, SavedTrial(state_at(1, size=20), {0: {"val/loss": 1.0}}, "me"))
    path = tmp_path / "new" / "1.npz"
    whole, like = path.read_bytes(), state_at(0, size=20)
    for length in range(0, len(whole), 7):
        path.write_bytes(whole[:length])
        assert shelf.restore(1, like, "me") is None
    for place in range(len(whole)):  # most of these are in the headers of the file, which nothing checks as a whole
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        found = shelf.restore(1, like, "me")
        assert found is None or (found.rows, found.state.params["w"].tolist()) == ({0: {"val/loss": 1.0}}, [1.0] * 20)
    path.write_bytes(bytes(len(whole)))
    assert shelf.restore(1, like, "me") is None
    at = whole.index(np.full(20, 1, np.float32).tobytes()) + 40
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    assert shelf.restore(1, like, "me") is None


def test_beyond_the_limit_nothing_is_put_there_and_what_is_there_stays(tmp_path):
    one = SavedTrial(state_at(1), {}, "me")
    Shelf(tmp_path, max_bytes=10**6).save(1, one)
    small = Shelf(tmp_path, max_bytes=2 * (tmp_path / "1.npz").stat().st_size)
    assert [small.save(trial_id, one) for trial_id in (1, 2, 3, 1)] == [True, True, False, True]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.npz", "2.npz"]


class Usage(NamedTuple):
    """What ``shutil.disk_usage`` gives."""

    total: int
    used: int
    free: int


def test_a_disk_with_little_room_gets_no_states(shelf, monkeypatch):
    monkeypatch.setattr(shelf_module.shutil, "disk_usage", lambda _path: Usage(10**12, 10**12, MIN_FREE_BYTES - 1))
    assert not shelf.save(1, SavedTrial(state_at(1), {}, "me"))
    assert shelf.restore(1, state_at(0), "me") is None


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "file").write_text("in the way")
    shelf = Shelf(tmp_path / "file" / "below", max_bytes=10**6)
    assert not shelf.save(1, SavedTrial(state_at(1), {}, "me"))
    shelf.forget(1)


def test_removing_twice_is_fine(shelf, tmp_path):
    shelf.save(1, SavedTrial(state_at(1), {}, "me"))
    shelf.forget(1)
    shelf.forget(1)
    assert list((tmp_path / "new").iterdir()) == []
    shutil.rmtree(tmp_path / "new")
    shelf.forget(1)
