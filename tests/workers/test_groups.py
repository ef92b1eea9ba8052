"""Groups of hosts: how they are cut, what they say to each other, and the states that the chief keeps for them."""

import os
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from group_fakes import connect_all
from protocol_fakes import fake_setup, fake_study

from batchscale.cluster.frames import pack_parts
from batchscale.cluster.groups import Group, split_peers
from batchscale.errors import RunError
from batchscale.records.metadata.trial import Hardware
from batchscale.study.failure import Failure
from batchscale.study.trial import Activity, TrialProgress, TrialTask
from batchscale.workers.group_messages import FoundState, GroupGone, KeepState, WantState, WishToStop, decode, encode
from batchscale.workers.groups import GroupRunner
from batchscale.workers.messages import Answered, Drain, Forget, Kept, Raised, Shelve, Stop
from batchscale.workers.runner import Job, JobFailed, JobResult, LossReason, WorkerActivity
from batchscale.workers.state_files import StateFiles

ROWS = ((0, {"val/error": 0.1234567890123456789}), (10, {"val/error": float("inf")}))
PROGRESS = TrialProgress(3, ROWS, 10, None, {"train_s": 0.5}, Hardware("cpu", "cpu", 1, 2))


@pytest.mark.parametrize(
    "message",
    [
        Job(3, fake_study(), (TrialTask(1, {"learning_rate": 0.1}, 2**40, 50, -1),), None, 2),
        *(Forget(8, (1, 2)), Shelve(8, {1: 50}), Stop(), Drain(), Kept(), WishToStop()),
        WorkerActivity("group-1", Activity.TRAINING, 8, (1,), 5),
        Answered(JobResult(3, "group-1", (PROGRESS,), 0.25, 2, Hardware("cpu")), 10**9),
        Raised(3, LossReason.OUT_OF_MEMORY, Failure("too much")),
        *(KeepState("8/1.npz", b"\0\xffbytes"), WantState("8/1.npz"), FoundState(b""), GroupGone("lost")),
    ],
)
def test_what_one_says_is_what_the_other_hears(message):
    assert repr(decode(encode(message))) == repr(message)
    assert getattr(decode(encode(message)), "data", b"") == getattr(message, "data", b"")


def test_a_value_that_is_no_number_is_heard_as_such():
    progress = TrialProgress(3, ((0, {"val/error": float("nan")}),), 0, None)
    ((_, values),) = decode(encode(Answered(JobResult(3, "x", (progress,), 0.0), 0))).done.progress[0].rows
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
    files = StateFiles(tmp_path, max_finished_bytes=10)
    files.put("8/1.newest.npz", b"running and longer than ten")
    assert files.get("8/1.newest.npz") == b"running and longer than ten"
    for trial_id in (2, 3):
        files.put(f"8/{trial_id}.npz", b"ended")
    files.put("8/4.npz", b"no room")
    files.put("8/3.npz", b"")
    assert [files.get(f"8/{trial_id}.npz") for trial_id in (2, 3, 4)] == [b"ended", b"", b""]
    for name in ("../x.npz", "8/../1.npz", "8/x.npz", "/8/1.npz"):
        files.put(name, b"bad")
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.npz")) == [
        "8/1.newest.npz",
        "8/2.npz",
    ]
    assert StateFiles(None, 10).get("8/2.npz") == b""


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


def job(number):
    return Job(number, fake_study(), (TrialTask(number, {"learning_rate": 0.1}, 1, 50, -1),))


@pytest.fixture
def runner_of_two(tmp_path):
    """A runner of two groups, of which the other one answers nothing, and its connection."""
    chief, other = connect_all(2)
    setup = replace(fake_setup(sleep_s=5), checkpoint_dir=tmp_path)
    runner = GroupRunner(chief, Group(0, 2, 1, None), setup, lambda: False, lambda: None)
    yield runner, other
    runner.close()
    other._channels[0].hang_up()  # nobody waits for it
    chief.close()
    other._channels[0].close()


def test_a_runner_that_cannot_be_made_leaves_the_environment_as_it_was(tmp_path):
    chief, other = connect_all(2)
    before = dict(os.environ)
    broken = replace(fake_setup(), checkpoint_dir=tmp_path, engine="no_such_module:make_engine", num_devices=3)
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        GroupRunner(chief, Group(0, 2, 1, None), broken, lambda: False, lambda: None)
    assert dict(os.environ) == before
    on_all([chief, other], lambda one: one.close())


def test_a_group_that_is_lost_gives_its_jobs_back_and_the_others_go_on(runner_of_two):
    runner, other = runner_of_two
    for number in (1, 2):
        runner.submit("group-1", job(number))
    other._channels[0].hang_up()  # what the system does for a process that is killed
    events = runner.wait(5)
    assert [(event.job_id, event.loss) for event in events] == [(1, LossReason.DIED), (2, LossReason.NOT_STARTED)]
    assert [worker.worker_id for worker in runner.workers] == ["group-0"]
    assert runner.notices[0].startswith("process 1 (host-1) closed its connection")
    assert runner.notices[0].endswith("The run goes on without group-1.")
    runner.submit("group-1", job(3))
    assert runner.wait(5) == [JobFailed(3, "group-1", LossReason.NOT_STARTED, Failure("The worker is gone."))]


def test_a_group_is_sent_what_it_kept_and_what_a_run_without_groups_has_left(runner_of_two, tmp_path):
    runner, other = runner_of_two
    (tmp_path / "8").mkdir()
    (tmp_path / "8" / "3.newest.npz").write_bytes(b"left")
    found = []
    wanted, kept = WantState("8/3.newest.npz"), KeepState("8/3.newest.npz", b"kept")
    for message in (wanted, kept, wanted, WantState("8/3.npz")):
        other.tell(encode(message))
        if isinstance(message, WantState):
            while other.asked.empty():
                assert runner.wait(0.1) == []
            found.append(decode(other.asked.get(timeout=5)).data)
    assert found == [b"left", b"kept", b""]


def test_closing_waits_for_no_group_that_still_trains(runner_of_two):
    runner, other = runner_of_two
    for place in (0, 1):
        runner.submit(f"group-{place}", job(place))
    runner.stop()
    began = time.monotonic()
    runner.close()
    assert time.monotonic() - began < 2
    while not other.ended:  # it hears that nobody waits for it
        assert time.monotonic() - began < 5
        time.sleep(0.01)
