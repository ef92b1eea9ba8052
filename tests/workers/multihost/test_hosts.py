"""Processes of a cluster that meet, agree, and miss each other: as threads over the loopback interface."""

import json
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest

from batchscale.errors import RunError
from batchscale.workers.multihost.arrivals import HELLO_S, MAX_STRANGERS, Arrivals
from batchscale.workers.multihost.cluster import Cluster, Timeouts, split_address
from batchscale.workers.multihost.hosts import Hosts
from batchscale.workers.multihost.relay import Relay
from batchscale.workers.multihost.rendezvous import meet, report_problem

QUICK = Timeouts(join_s=10.0, lost_after_s=2.0)


@pytest.fixture(autouse=True)
def _heartbeats_come_often(monkeypatch):
    monkeypatch.setattr("batchscale.workers.multihost.hosts.HEARTBEAT_S", 0.2)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def clusters(count):
    names = tuple(f"127.0.0.1:{port}" for port in (free_port() for _ in range(count)))
    return [Cluster(names[0], count, place, "test", names, QUICK) for place in range(count)]


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
def hosts_of():
    made = []

    def make(count):
        described = clusters(count)
        with ThreadPoolExecutor(count) as pool:
            rendezvous = list(pool.map(lambda cluster: meet(cluster, {}), described))
        ends = [Ended() for _ in range(count)]
        found = [Hosts(*three) for three in zip(described, rendezvous, ends, strict=True)]
        made.extend(found)
        return found, ends

    yield make
    for hosts in made:
        hosts._closing.set()
        for connection in hosts._connections.values():
            connection.close()


def on_all(hosts, function):
    with ThreadPoolExecutor(len(hosts)) as pool:
        return list(pool.map(function, hosts))


def test_all_get_what_each_gives_in_their_order(hosts_of):
    hosts, _ = hosts_of(3)
    assert on_all(hosts, lambda one: one.gather("x", bytes([one.cluster.process]))) == [[b"\0", b"\1", b"\2"]] * 3


def test_stopping_is_for_all_if_one_wants_it_and_numbers_are_the_chiefs(hosts_of):
    hosts, _ = hosts_of(3)
    assert on_all(hosts, lambda one: one.any("stop", one.cluster.process == 2)) == [True] * 3
    assert on_all(hosts, lambda one: one.any("stop", False)) == [False] * 3
    assert on_all(hosts, lambda one: one.chief_value("steps", 7 + one.cluster.process)) == [7] * 3
    large = bytes(5_000_000)
    assert on_all(hosts, lambda one: one.share("state", large if one.is_chief else b"")) == [large] * 3


def test_a_closed_process_is_not_lost(hosts_of):
    hosts, ends = hosts_of(3)
    on_all(hosts, Hosts.close)
    time.sleep(QUICK.lost_after_s + 0.5)  # whoever were missed would be by then
    assert [end.said for end in ends] == [[], [], []]


def test_a_process_that_closes_first_is_not_lost(hosts_of):
    hosts, ends = hosts_of(2)
    taken = threading.Event()
    get = hosts[1]._inbox[0].get
    # the other is slow to take in the chief's farewell, and the chief's connection closes meanwhile
    hosts[1]._inbox[0] = SimpleNamespace(put=hosts[1]._inbox[0].put, get=lambda: (taken.wait(5), get())[1])
    with ThreadPoolExecutor(2) as pool:
        closing = [pool.submit(one.close) for one in hosts]
        closing[0].result()
        *_, listener = (thread for thread in threading.enumerate() if thread.name == "host-0")
        listener.join(1.5)  # signs of life would have shown it by then
        taken.set()
        closing[1].result()
    assert [end.said for end in ends] == [[], []]


def test_a_process_that_dies_is_noticed_at_once_by_all_and_named(hosts_of):
    hosts, ends = hosts_of(3)
    began = time.monotonic()
    hosts[1]._connections[0].socket.shutdown(socket.SHUT_RDWR)  # what the system does for a process that is killed
    for end in (ends[0], ends[2]):
        message, code = end.wait(5)
        assert code == 75
        assert message.startswith("process 1 (127.0.0.1:")
    assert time.monotonic() - began < QUICK.lost_after_s


def test_a_dead_chief_is_noticed_by_all(hosts_of):
    hosts, ends = hosts_of(3)
    hosts[0]._closing.set()  # a dead process says nothing
    for connection in hosts[0]._connections.values():
        connection.socket.shutdown(socket.SHUT_RDWR)
    for end in ends[1:]:
        message, code = end.wait(5)
        assert code == 75
        assert message.startswith("process 0 (the chief, 127.0.0.1:")


def test_a_process_without_heartbeats_is_lost_after_the_stated_time(hosts_of):
    hosts, ends = hosts_of(2)
    hosts[1]._connections[0].send = lambda *_args, **_options: True  # it is stopped: nothing comes from it any more
    message, code = ends[0].wait(QUICK.lost_after_s + 5)
    assert code == 75
    assert "process 1" in message
    assert "stopped or cannot be reached" in message


def test_a_mistake_that_one_finds_ends_all_with_its_words(hosts_of):
    hosts, ends = hosts_of(3)
    assert hosts[2].report("no such data set", 2)
    for end in ends[:2]:
        message, code = end.wait(5)
        assert code == 2
        assert message.endswith("cannot continue: no such data set")
        assert "process 2" in message
    assert ends[2].said == []  # it says it by itself
    assert not hosts[2].report("something else", 1)  # only the first reason counts


def test_processes_at_different_points_end(hosts_of):
    hosts, ends = hosts_of(2)
    for one, tag in zip(hosts, ("stop", "steps"), strict=True):
        threading.Thread(target=one.gather, args=(tag, b""), daemon=True).start()
    message, code = ends[1].wait(5)
    assert code == 1
    assert "at 'stop' while process 1" in message


def test_a_missing_process_is_named():
    first, second, third = clusters(3)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(meet, hasty(first), {})
        there = pool.submit(meet, hasty(second), {})
        for found in (waiting, there):
            with pytest.raises(RunError, match="Missing: process 2 "):
                found.result()
    assert third.process == 2


def test_a_missing_chief_is_named():
    with pytest.raises(RunError, match=r"Found nobody at 127\.0\.0\.1:"):
        meet(hasty(clusters(2)[1]), {})


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


def message(payload, kind=1, tag=b""):
    return struct.pack(">BBQ", kind, len(tag), len(payload)) + tag + payload


def hello(**changes):
    return {"process": 1, "num_processes": 2, "facts": {}} | changes


STRANGERS = {
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "huge": b"\x01\x00" + b"\xff" * 8,
    "nothing": b"",
    "half a header": b"\x01\x00\x00",
    "unknown kind": message(b"{}", kind=99),
    "not an introduction": message(b'["Welcome", {"coordinator": "a:1"}]', kind=2),
    "tag": message(b"{}", tag=b"\xff\xfe"),
    "lone surrogate in a fact": message(json.dumps(["Hello", hello(facts={"--steps": "\ud800"})]).encode()),
    "lone surrogate in a key": message(json.dumps(["Hello", hello(facts={"\udfff": "x"})]).encode()),
    "lone surrogate in a name": message(json.dumps(["Hello", hello(names=["\ud800:1"])]).encode()),
    "lone surrogate in a problem": message(json.dumps(["Hello", hello(problem="\ud800")]).encode()),
    "lone surrogate in the type": message(b'["\\ud800", {}]'),
    "a bool for a number": message(json.dumps(["Hello", hello(process=True)]).encode()),
    "a text for a number": message(json.dumps(["Hello", hello(process="1")]).encode()),
    "no address": message(json.dumps(["Hello", hello(names=["a:99999"])]).encode()),
    "a long number": message(b'["Hello", {"process": ' + b"9" * 5000 + b', "num_processes": 2, "facts": {}}]'),
    "not a number": message(b'["Hello", {"process": NaN, "num_processes": 2, "facts": {}}]'),
    "deep list": message(b"[" * 60_000),
    "deep table": message(b'["Hello", ' + b'{"facts": ' * 9_000 + b"}" * 9_000 + b"]"),
    "two at once": message(b'["Hello", {}]') * 2,
    "other types": message(b'["Hello", [1, 2, {}]]'),
    "no pair": message(b'{"Hello": 1}'),
    "no UTF-8": message(b"\xff\xfe["),
}


def connect_to(cluster):
    address = split_address(cluster.address, "test")
    for _ in range(100):
        try:
            return socket.create_connection(address)
        except OSError:
            time.sleep(0.02)
    raise AssertionError("the chief does not listen")


def close_all(rendezvous):
    for one in rendezvous:
        for connection in one.connections.values():
            connection.close()


def test_what_strangers_send_is_refused_and_the_processes_meet():
    first, second = clusters(2)
    with ThreadPoolExecutor(2) as pool:
        waiting = pool.submit(meet, first, {"--steps": "10"})
        for name, text in STRANGERS.items():
            with connect_to(first) as stranger:
                stranger.sendall(text)
                if name not in ("nothing", "half a header", "http"):  # of those the chief expects more
                    stranger.settimeout(5)
                    with suppress(ConnectionResetError):
                        assert stranger.recv(100) == b"", name
            assert not waiting.done(), (name, waiting.exception())
        joined = pool.submit(meet, second, {"--steps": "10"})
        rendezvous = waiting.result(), joined.result()
    assert [sorted(one.connections) for one in rendezvous] == [[1], [0]]
    close_all(rendezvous)


def test_silent_and_slow_connections_delay_nobody():
    first, second = clusters(2)
    with ThreadPoolExecutor(2) as pool, ExitStack() as stack:
        waiting = pool.submit(meet, first, {})
        strangers = [stack.enter_context(connect_to(first)) for _ in range(MAX_STRANGERS + 40)]
        for stranger in strangers:
            with suppress(OSError):
                stranger.sendall(b"\x01")
        began = time.monotonic()
        joined = pool.submit(meet, second, {})
        rendezvous = waiting.result(), joined.result()
        assert time.monotonic() - began < HELLO_S / 2
    close_all(rendezvous)


def test_a_connection_has_its_time_in_all_however_it_sends(monkeypatch):
    monkeypatch.setattr("batchscale.workers.multihost.arrivals.HELLO_S", 0.5)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        closing(Arrivals(listener, 2)) as arrivals,
        socket.create_connection(listener.getsockname()) as slow,
    ):
        closed = threading.Event()

        def drip():
            with suppress(OSError):
                while True:
                    slow.sendall(b"\x01")
                    time.sleep(0.1)
            closed.set()

        threading.Thread(target=drip, daemon=True).start()
        assert arrivals.next(time.monotonic() + 2.0) is None
        assert closed.wait(5)


def test_a_process_that_cannot_start_ends_all_with_its_reason():
    for place in range(3):
        described = clusters(3)
        said = []
        with ThreadPoolExecutor(3) as pool:
            began = time.monotonic()
            reported = pool.submit(report_problem, described[place], "--set must be name=number.")
            others = [pool.submit(meet, one, {}, said.append) for one in described if one.process != place]
            for other in others:
                with pytest.raises(RunError, match=r"cannot start: --set must be name=number\."):
                    other.result()
            reported.result()
            assert time.monotonic() - began < QUICK.join_s / 2
        assert len(said) == 2


def test_late_processes_hear_why_the_others_have_left():
    first, second, third = clusters(3)
    with ThreadPoolExecutor(3) as pool:
        waiting = pool.submit(meet, first, {"--steps": "10"})
        other = pool.submit(meet, second, {"--steps": "20"})
        with pytest.raises(RunError, match="--steps = 20"):
            other.result()
        with pytest.raises(RunError, match="--steps = 20"):
            meet(third, {"--steps": "10"})
        with pytest.raises(RunError, match="--steps = 20"):
            waiting.result()


def test_processes_with_other_lists_of_addresses_are_refused():
    first, second = clusters(2)
    swapped = replace(second, names=second.names[::-1])
    with ThreadPoolExecutor(2) as pool:
        waiting, other = pool.submit(meet, first, {}), pool.submit(meet, swapped, {})
        for one in (waiting, other):
            with pytest.raises(RunError, match="the same addresses in the same order, the chief's first"):
                one.result()


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
