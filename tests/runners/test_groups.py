"""Groups of hosts: how they are cut, what they say to each other, and the states that the chief keeps for them."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from group_fakes import connect_all
from protocol_fakes import fake_study

from batchscale.cluster import split_peers
from batchscale.cluster.frames import pack_parts
from batchscale.errors import RunError
from batchscale.protocol.tasks import Activity, TrialProgress, TrialTask
from batchscale.records.facts import Hardware
from batchscale.runners.group_messages import FoundState, KeepState, WantState, WishToStop, decode, encode
from batchscale.runners.messages import Answered, Forget, Kept, Raised, Retire, Shelve, Stop
from batchscale.runners.runner import Doing, Done, Job, LossReason
from batchscale.runners.state_files import StateFiles

ROWS = ((0, {"val/error": 0.1234567890123456789}), (10, {"val/error": float("inf")}))
PROGRESS = TrialProgress(3, ROWS, 10, None, {"train_s": 0.5}, Hardware("cpu", "cpu", 1, 2))


@pytest.mark.parametrize(
    "message",
    [
        Job(3, fake_study(), (TrialTask(1, {"learning_rate": 0.1}, 2**40, 50, -1),), None, 2),
        *(Forget(8, (1, 2)), Shelve(8, {1: 50}), Stop(), Retire(), Kept(), WishToStop()),
        Doing("group-1", Activity.TRAINING, 8, (1,), 5),
        Answered(Done(3, "group-1", (PROGRESS,), 0.25, 2, Hardware("cpu")), 10**9),
        Raised(3, LossReason.OUT_OF_MEMORY, "too much"),
        *(KeepState(8, 1, True, b"\0\xffbytes"), WantState(8, 1), FoundState(b"")),
    ],
)
def test_what_one_says_is_what_the_other_hears(message):
    assert repr(decode(encode(message))) == repr(message)
    assert getattr(decode(encode(message)), "data", b"") == getattr(message, "data", b"")


def test_a_value_that_is_no_number_is_heard_as_such():
    progress = TrialProgress(3, ((0, {"val/error": float("nan")}),), 0, None)
    ((_, values),) = decode(encode(Answered(Done(3, "x", (progress,), 0.0), 0))).done.progress[0].rows
    assert np.isnan(values["val/error"])


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\x80\x04N.",
        pack_parts([b"[]", b""]),
        pack_parts([b'["exec", {}]', b""]),
        pack_parts([b'["Job", {}]', b""]),
    ],
)
def test_anything_else_is_refused_in_words(payload):
    with pytest.raises(RunError, match="same version of batchscale on all hosts"):
        decode(payload)


def test_states_are_kept_below_their_limits_and_dropped(tmp_path):
    files = StateFiles(tmp_path, max_shelf_bytes=10)
    files.put(8, 1, b"running and longer than ten", ended=False)
    assert files.get(8, 1) == b"running and longer than ten"
    files.put(8, 2, b"ended", ended=True)
    assert files.get(8, 2) == b""  # no room beside the other
    files.put(8, 1, b"", ended=True)
    assert files.get(8, 1) == b""
    files.put(8, 2, b"ended", ended=True)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.npz")] == ["8/2.npz"]
    assert StateFiles(None, 10).get(8, 2) == b""


def on_all(peers, function):
    with ThreadPoolExecutor(len(peers)) as pool:
        return list(pool.map(function, peers))


def test_a_cluster_is_cut_into_groups_that_agree_among_themselves_and_keep_their_numbers():
    peers = connect_all(4)
    groups = on_all(peers, lambda one: split_peers(one, 2))
    assert [(group.number, group.is_led_here) for group in groups] == [(0, True), (0, False), (1, True), (1, False)]
    inner = [group.peers for group in groups]
    assert on_all(inner, lambda one: one.chiefs("x", one.cluster.first)) == [0, 0, 2, 2]
    assert inner[3].cluster.name(0) == "process 2 (host-2)"
    assert inner[1].cluster.name(0) == "process 0 (the chief, host-0)"
    on_all(inner, lambda one: one.close())
    on_all(peers, lambda one: one.close())


def test_groups_have_as_many_hosts_each():
    peers = connect_all(2)
    with pytest.raises(RunError, match=r"Found 3, of 2 hosts; give one of 1, 2"):
        split_peers(peers[0], 3)
    on_all(peers, lambda one: one.close())
