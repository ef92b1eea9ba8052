"""The checkpoint store: what is kept, what is passed over."""

import json
import math

import jax
import numpy as np
import pytest
from made_states import state_at

from batchscale.training.checkpoints import CheckpointStore, SavedTrial


@pytest.fixture
def store(tmp_path):
    return CheckpointStore(tmp_path, max_bytes=10**9)


def test_what_is_saved_is_what_is_restored(store):
    rows = {0: {"val/loss": 1.5}, 7: {"val/loss": math.inf}}
    store.save(3, SavedTrial(state_at(7), rows, "me"))
    found = store.restore(3, state_at(0), "me")
    assert found.rows == rows
    for a, b in zip(jax.tree.leaves(found.state), jax.tree.leaves(state_at(7)), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_last_two_steps_are_kept(store, tmp_path):
    for step in (1, 2, 3):
        store.save(1, SavedTrial(state_at(step), {}, "me"))
    assert sorted(path.name for path in (tmp_path / "1").iterdir()) == ["2", "3"]


def test_a_damaged_step_gives_way_to_the_one_before(store, tmp_path):
    for step in (1, 2):
        store.save(1, SavedTrial(state_at(step), {}, "me"))
    for path in (tmp_path / "1" / "2" / "state").rglob("*"):
        if path.is_file():
            path.write_bytes(b"")
    assert int(store.restore(1, state_at(0), "me").state.step) == 1


def test_another_trials_or_another_models_checkpoint_is_passed_over(store):
    store.save(1, SavedTrial(state_at(1), {}, "me"))
    assert store.restore(1, state_at(0), "somebody else") is None
    assert store.restore(1, state_at(0, size=7), "me") is None
    assert store.restore(2, state_at(0), "me") is None


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
def test_a_checkpoint_whose_facts_make_no_sense_gives_way_to_the_one_before(store, tmp_path, facts):
    for step in (1, 2):
        store.save(1, SavedTrial(state_at(step), {}, "me"))
    (tmp_path / "1" / "2" / "facts" / "metadata").write_text(json.dumps(facts))
    assert int(store.restore(1, state_at(0), "me").state.step) == 1


def test_the_trials_saved_longest_ago_make_room(tmp_path):
    store = CheckpointStore(tmp_path, max_bytes=3 * 4100)
    for trial_id in (1, 2, 3, 4):
        store.save(trial_id, SavedTrial(state_at(1), {}, "me"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["2", "3", "4"]


def test_forgetting_removes_the_folder(store, tmp_path):
    store.save(1, SavedTrial(state_at(1), {}, "me"))
    store.forget(1)
    assert not (tmp_path / "1").exists()
    store.forget(1)
