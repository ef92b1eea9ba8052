"""States that groups of hosts send to the chief: a trial goes on in them from what a run without groups has left."""

import numpy as np
import pytest
from made_states import state_at

from batchscale.cluster.folders import pack_folder, unpack_folder
from batchscale.cluster.frames import pack_parts
from batchscale.training.checkpoints import CheckpointStore, SavedTrial
from batchscale.training.sent_states import SentStates
from batchscale.training.shelf import Shelf
from batchscale.workers.state_files import StateFiles

TRIAL, BATCH_SIZE = 3, 8
ROWS = {0: {"val/loss": 1.5}}


class Post:
    """What the chief does for a group, without the network between them."""

    def __init__(self, folder):
        self.files = StateFiles(folder, max_shelf_bytes=10**6)

    def keep(self, trial_id, data, ended):
        self.files.put(BATCH_SIZE, trial_id, data, ended)

    def find(self, trial_id):
        return self.files.get(BATCH_SIZE, trial_id)

    def find_checkpoints(self, trial_id):
        return self.files.get_checkpoints(BATCH_SIZE, trial_id)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / str(BATCH_SIZE)


@pytest.fixture
def sent(tmp_path):
    """As an engine has them: for running trials and for ended ones."""
    post = Post(tmp_path)
    return [SentStates(post, ended) for ended in (False, True)]


def find(keepers, identity="me"):
    """The step that an engine would go on from: it asks one after the other."""
    found = (keeper.restore(TRIAL, state_at(0), identity) for keeper in keepers)
    return next((int(one.state.step) for one in found if one is not None), None)


def keep_alone(folder, *steps):
    """What a run without groups leaves of a trial that has not ended."""
    store = CheckpointStore(folder, max_bytes=10**9)
    for step in steps:
        store.save(TRIAL, SavedTrial(state_at(step), ROWS, "me"))


def find_alone(folder):
    return find([CheckpointStore(folder, max_bytes=10**9), Shelf(folder, max_bytes=10**6)])


def test_a_group_goes_on_from_the_newest_checkpoint_of_a_run_without_groups(sent, folder):
    assert find(sent) is None
    keep_alone(folder, 5, 7)
    found = sent[0].restore(TRIAL, state_at(0), "me")
    assert found.rows == ROWS
    np.testing.assert_array_equal(found.state.params["w"], state_at(7).params["w"])
    assert find(sent, "somebody else") is None


def test_a_trial_goes_from_one_kind_of_run_to_the_other_and_back_always_from_its_newest_state(sent, folder):
    keep_alone(folder, 5)
    sent[0].save(TRIAL, SavedTrial(state_at(6), ROWS, "me"))
    assert find(sent) == find_alone(folder) == 6
    keep_alone(folder, 9)
    assert find(sent) == find_alone(folder) == 9
    sent[1].save(TRIAL, SavedTrial(state_at(12), ROWS, "me"))
    assert find(sent) == find_alone(folder) == 12


def test_what_is_dropped_is_in_neither_kind(sent, folder):
    keep_alone(folder, 5)
    sent[1].forget(TRIAL)
    assert find(sent) is None
    assert find_alone(folder) is None


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(sent, folder):
    keep_alone(folder, 5, 7)
    for file in (folder / str(TRIAL) / "7").rglob("*"):
        if file.is_file():
            file.write_bytes(b"")
    assert find(sent) == 5


@pytest.mark.parametrize("name", ["../x", "/x", "a/../../x"])
def test_a_packed_folder_cannot_write_beside_itself(tmp_path, name):
    with pytest.raises(ValueError, match="points out of its folder"):
        unpack_folder(pack_parts([f'["{name}"]'.encode(), b"bad"]), tmp_path / "in")
    assert not (tmp_path / "x").exists()


def test_a_packed_folder_has_all_files_of_the_folder(tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "one").write_bytes(b"1")
    (tmp_path / "a" / "two").write_bytes(b"")
    unpack_folder(pack_folder(tmp_path / "a"), tmp_path / "c")
    assert (tmp_path / "c" / "b" / "one").read_bytes() == b"1"
    assert (tmp_path / "c" / "two").read_bytes() == b""
    assert pack_folder(tmp_path / "nothing") == b""
