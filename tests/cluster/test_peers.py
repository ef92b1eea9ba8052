"""Processes of a cluster that meet, agree, and miss each other: as threads over the loopback interface."""

import json
import queue
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest

from batchscale.cluster.description import Cluster, Timeouts, split_address
from batchscale.cluster.frames import Frame, Kind
from batchscale.cluster.meeting import _check_go, host_meeting, join_meeting
from batchscale.cluster.peers import Peers
from batchscale.cluster.relay import Relay
from batchscale.cluster.secret import sign
from batchscale.errors import RunError

QUICK = Timeouts(join_s=10.0, lost_after_s=2.0)


@pytest.fixture(autouse=True)
def _signs_of_life_come_often(monkeypatch):
    monkeypatch.setattr("batchscale.cluster.peers.BEAT_S", 0.2)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def clusters(count):
    names = tuple(f"127.0.0.1:{port}" for port in (free_port() for _ in range(count)))
    return [Cluster(names[0], count, place, "test", names, QUICK) for place in range(count)]


def meet(cluster, facts=None):
    return (host_meeting if cluster.is_chief else join_meeting)(cluster, facts or {})


def hasty(cluster):
    return replace(cluster, timeouts=Timeouts(join_s=0.5))


class Ended:
    """What a process said when it ended, instead of ending it."""

    def __init__(self):
        self.said, self._event = [], threading.Event()

    def __call__(self, message, code):
        self.said.append((message, code))
        self._event.set()

    def wait(self, seconds):
        assert self._event.wait(seconds), "it did not notice"
        return self.said[0]


@pytest.fixture
def peers_of():
    made = []

    def make(count):
        described = clusters(count)
        with ThreadPoolExecutor(count) as pool:
            meetings = list(pool.map(meet, described))
        ends = [Ended() for _ in range(count)]
        found = [Peers(*three) for three in zip(described, meetings, ends, strict=True)]
        made.extend(found)
        return found, ends

    yield make
    for peers in made:
        peers._closing.set()
        for channel in (*peers._channels.values(), *peers._gone):
            channel.close()


def on_all(peers, function):
    with ThreadPoolExecutor(len(peers)) as pool:
        return list(pool.map(function, peers))


def test_all_get_what_each_gives_in_their_order(peers_of):
    peers, _ = peers_of(3)
    assert on_all(peers, lambda one: one.gather("x", bytes([one.cluster.process]))) == [[b"\0", b"\1", b"\2"]] * 3


def test_stopping_is_for_all_if_one_wants_it_and_numbers_are_the_chiefs(peers_of):
    peers, _ = peers_of(3)
    assert on_all(peers, lambda one: one.any("stop", one.cluster.process == 2)) == [True] * 3
    assert on_all(peers, lambda one: one.any("stop", False)) == [False] * 3
    assert on_all(peers, lambda one: one.chiefs("steps", 7 + one.cluster.process)) == [7] * 3
    large = bytes(5_000_000)
    assert on_all(peers, lambda one: one.share("state", large if one.is_chief else b"")) == [large] * 3


def test_who_parts_is_not_missed(peers_of):
    peers, ends = peers_of(3)
    on_all(peers, Peers.close)
    time.sleep(QUICK.lost_after_s + 0.5)  # whoever were missed would be by then
    assert [end.said for end in ends] == [[], [], []]


def test_nobody_is_missed_who_closes_at_once_after_parting(peers_of):
    peers, ends = peers_of(2)
    taken = threading.Event()
    get = peers[1]._inbox[0].get
    # the other is slow to take in the chief's farewell, and the chief's connection closes meanwhile
    peers[1]._inbox[0] = SimpleNamespace(put=peers[1]._inbox[0].put, get=lambda: (taken.wait(5), get())[1])
    with ThreadPoolExecutor(2) as pool:
        closing = [pool.submit(one.close) for one in peers]
        closing[0].result()
        *_, listener = (thread for thread in threading.enumerate() if thread.name == "peer-0")
        listener.join(1.5)  # signs of life would have shown it by then
        taken.set()
        closing[1].result()
    assert [end.said for end in ends] == [[], []]


def test_a_process_that_dies_is_noticed_at_once_by_all_and_named(peers_of):
    peers, ends = peers_of(3)
    began = time.monotonic()
    peers[1]._channels[0].socket.shutdown(socket.SHUT_RDWR)  # what the system does for a process that is killed
    for end in (ends[0], ends[2]):
        message, code = end.wait(5)
        assert code == 75
        assert message.startswith("process 1 (127.0.0.1:")
    assert time.monotonic() - began < QUICK.lost_after_s


def test_a_dead_chief_is_noticed_by_all(peers_of):
    peers, ends = peers_of(3)
    peers[0]._closing.set()  # a dead process says nothing
    for channel in peers[0]._channels.values():
        channel.socket.shutdown(socket.SHUT_RDWR)
    for end in ends[1:]:
        message, code = end.wait(5)
        assert code == 75
        assert message.startswith("process 0 (the chief, 127.0.0.1:")


def test_a_silent_process_is_noticed_in_the_time_that_is_stated(peers_of):
    peers, ends = peers_of(2)
    peers[1]._channels[0].send = lambda *_args, **_options: True  # it is stopped: nothing comes from it any more
    message, code = ends[0].wait(QUICK.lost_after_s + 5)
    assert code == 75
    assert "process 1" in message
    assert "stopped or cannot be reached" in message


def in_pairs(place):
    """The companions of a process where two train together, the chief with the first of the others."""
    return range(0) if place < 2 else range(place // 2 * 2, place // 2 * 2 + 2)


@pytest.mark.parametrize("how", ["dies", "says so", "fails"])
def test_a_chief_goes_on_without_a_group_that_has_lost_a_process(peers_of, how):
    peers, ends = peers_of(6)
    lost = queue.SimpleQueue()
    peers[0].go_on_without(in_pairs, lambda place, text: lost.put((place, text)))
    if how == "dies":
        peers[3]._closing.set()  # a dead process says nothing
        peers[3]._channels[0].hang_up()
    elif how == "says so":  # it has noticed that the other of its group is gone
        peers[3].pass_on("process 2 closed its connection.", 75, all_end=False)
        assert "The other groups go on" in ends[3].wait(5)[0]
    else:
        peers[3].fail("its devices failed")
    place, text = lost.get(timeout=5)
    assert place == 3
    assert "process 2" in text if how == "says so" else text.startswith("process 3 (127.0.0.1:")
    message, code = ends[2].wait(5)
    assert code == 75
    assert message.startswith(text)
    assert "The other groups go on" in message
    there = [peers[place] for place in (0, 1, 4, 5)]
    found = on_all(there, lambda one: one.gather("x", bytes([one.cluster.process])))
    assert found == [[b"\0", b"\1", b"", b"", b"\4", b"\5"]] * 4
    peers[0].ask(2, b"nobody")
    peers[0].ask(5, b"you")
    assert peers[5].asked.get(timeout=5) == b"you"
    on_all(there, Peers.close)
    assert [ends[place].said for place in (0, 1, 4, 5)] == [[], [], [], []]
    assert lost.empty()


def test_the_chiefs_reason_counts_for_a_group_whose_first_heard_it_sooner(peers_of):
    """Process 1 is lost and all end; 2, of another group, is told before 3, which sees it leave."""
    peers, ends = peers_of(4)
    peers[0].go_on_without(in_pairs, lambda _place, _text: None)
    with ThreadPoolExecutor(1) as pool:
        noticed = pool.submit(peers[3].pass_on, "process 2 closed its connection.", 75, all_end=False)
        peers[1]._closing.set()  # a dead process says nothing
        peers[1]._channels[0].hang_up()
        noticed.result(5)
    message, code = ends[3].wait(5)
    assert code == 75
    assert message.startswith("process 1 (127.0.0.1:")
    assert "Start the same command on all hosts again" in message
    assert len(ends[3].said) == 1


def test_whoever_waits_for_a_process_that_is_lost_goes_on_without_it(peers_of):
    peers, _ = peers_of(4)
    peers[0].go_on_without(in_pairs, lambda _place, _text: None)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(peers[place].gather, "x", bytes([place])) for place in (0, 1)]
        peers[2]._channels[0].hang_up()
        assert [one.result(5) for one in waiting] == [[b"\0", b"\1", b"", b""]] * 2


def test_the_chiefs_own_group_ends_all(peers_of):
    peers, ends = peers_of(4)
    peers[0].go_on_without(in_pairs, lambda _place, _text: None)
    peers[1]._channels[0].hang_up()
    for end in (ends[0], ends[2], ends[3]):
        message, code = end.wait(5)
        assert code == 75
        assert message.startswith("process 1 (127.0.0.1:")
        assert "Start the same command on all hosts again" in message


def test_a_mistake_that_one_finds_ends_all_with_its_words(peers_of):
    peers, ends = peers_of(3)
    peers[2].fail("no such data set", 2)
    for end in ends[:2]:
        message, code = end.wait(5)
        assert code == 2
        assert message.endswith("cannot go on: no such data set")
        assert "process 2" in message
    assert ends[2].said == []  # it says it by itself


def test_processes_that_are_not_at_the_same_place_do_not_go_on(peers_of):
    peers, ends = peers_of(2)
    for one, tag in zip(peers, ("stop", "steps"), strict=True):
        threading.Thread(target=one.gather, args=(tag, b""), daemon=True).start()
    message, code = ends[1].wait(5)
    assert code == 1
    assert "at 'stop' while process 1" in message


def test_a_missing_process_is_named():
    first, second, third = clusters(3)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(meet, hasty(first))
        there = pool.submit(meet, hasty(second))
        for found in (waiting, there):
            with pytest.raises(RunError, match="Missing: process 2 "):
                found.result()
    assert third.process == 2


def test_a_missing_chief_is_named():
    with pytest.raises(RunError, match=r"Found nobody at 127\.0\.0\.1:"):
        meet(hasty(clusters(2)[1]))


@pytest.mark.parametrize(
    ("change", "facts", "words"),
    [
        ({}, {"--steps": "20"}, r"process 1 \(127.0.0.1:\d+\) has --steps = 20, the chief 10"),
        ({"num_processes": 3}, {"--steps": "10"}, "Found 2 at the chief and 3 at process 1"),
    ],
)
def test_processes_that_were_started_differently_are_refused(change, facts, words):
    first, second = clusters(2)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(meet, first, {"--steps": "10"})
        other = pool.submit(meet, replace(second, **change), facts)
        with pytest.raises(RunError, match=words):
            waiting.result()
        with pytest.raises(RunError):
            other.result()


def test_strangers_at_the_door_are_passed_over():
    first, second = clusters(2)
    port = int(first.address.rpartition(":")[2])
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(meet, first)
        for text in (b"GET / HTTP/1.1\r\n\r\n", b"\x01\x00" + b"\xff" * 8, b""):
            for _ in range(50):
                try:
                    stranger = socket.create_connection(("127.0.0.1", port))
                    break
                except OSError:
                    time.sleep(0.05)
            stranger.sendall(text)
            stranger.close()
        joined = pool.submit(meet, second)
        meetings = waiting.result(), joined.result()
    assert [sorted(one.channels) for one in meetings] == [[1], [0]]
    for one in meetings:
        for channel in one.channels.values():
            channel.close()


def test_a_relay_passes_bytes_and_stays_open_when_the_far_end_is_gone():
    with socket.create_server(("127.0.0.1", 0)) as far:
        relay = Relay(*far.getsockname())
        near = socket.create_connection(split_address(relay.address, "test"))
        other = far.accept()[0]
        near.sendall(b"question")
        assert other.recv(100) == b"question"
        other.sendall(b"answer")
        assert near.recv(100) == b"answer"
        other.close()
    near.settimeout(0.3)
    with pytest.raises(TimeoutError):  # silence, not an end
        near.recv(100)
    relay.close()
    assert near.recv(100) == b""
    near.close()


def with_secrets(*tokens):
    return [replace(one, token=token) for one, token in zip(clusters(len(tokens)), tokens, strict=True)]


def test_processes_that_share_a_secret_meet():
    with ThreadPoolExecutor(2) as pool:
        meetings = list(pool.map(meet, with_secrets(b"x" * 32, b"x" * 32)))
    assert [sorted(one.channels) for one in meetings] == [[1], [0]]
    for one in meetings:
        for channel in one.channels.values():
            channel.close()


@pytest.mark.parametrize("tokens", [(b"x" * 32, b"y" * 32), (b"x" * 32, b""), (b"", b"x" * 32)])
def test_a_process_with_another_secret_is_not_let_in_and_the_chief_goes_on_waiting(tokens):
    first, second = with_secrets(*tokens)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(meet, hasty(first))
        with pytest.raises(RunError, match="have the same secret"):
            meet(second)
        with pytest.raises(RunError, match=r"Missing: process 1 .* for another secret: 1 connection"):
            waiting.result()


def test_a_chief_that_does_not_know_the_secret_is_not_followed():
    (cluster,) = with_secrets(b"x" * 32)
    nonce = b"one"
    forged = {"coordinator": "127.0.0.1:1", "proof": sign(b"y" * 32, "chief", nonce, b"127.0.0.1:1")}
    with pytest.raises(RunError, match="does not know the secret"):
        _check_go(cluster, Frame(Kind.GO, json.dumps(forged).encode()), nonce)
    honest = forged | {"proof": sign(b"x" * 32, "chief", nonce, b"127.0.0.1:1")}
    assert _check_go(cluster, Frame(Kind.GO, json.dumps(honest).encode()), nonce) == "127.0.0.1:1"
    with pytest.raises(RunError, match="does not know the secret"):  # an answer to another question
        _check_go(cluster, Frame(Kind.GO, json.dumps(honest).encode()), b"two")
