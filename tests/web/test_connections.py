"""Connections are limited, and those of strangers end first; over real sockets too."""

import socket
import subprocess
import sys
import time
from dataclasses import dataclass

import pytest
from web_process import WebProcess

from batchscale.web.connections import MAX_CONNECTIONS, Connections


@dataclass(eq=False)
class FakeConnection:
    name: str
    address: str = "192.0.2.1"
    is_signed_in: bool = False
    is_busy: bool = False
    is_open: bool = True

    def evict(self) -> None:
        self.is_open = False


def opened(connections, *items):
    for item in items:
        connections.add(item)
    return [item.name for item in items if item.is_open]


def test_the_oldest_idle_stranger_makes_room():
    items = [FakeConnection("busy", is_busy=True), *(FakeConnection(str(n), f"192.0.2.{n}") for n in range(4))]
    assert opened(Connections(3, 100), *items) == ["busy", "2", "3"]


def test_strangers_end_before_sessions_and_idle_ones_before_busy_ones():
    session, stream = FakeConnection("session", is_signed_in=True), FakeConnection("s", is_signed_in=True, is_busy=True)
    slow = FakeConnection("slow", is_busy=True)
    connections = Connections(3, 100)
    opened(connections, slow, session, stream, FakeConnection("new", is_busy=True))
    assert not slow.is_open and session.is_open and stream.is_open
    last = FakeConnection("last", is_signed_in=True, is_busy=True)
    opened(connections, last)
    assert session.is_open and last.is_open and len(connections) == 3


def test_a_new_connection_is_refused_only_where_sessions_are_busy_on_all_others():
    busy = [FakeConnection(str(n), is_signed_in=True, is_busy=True) for n in range(3)]
    new = FakeConnection("new")
    assert opened(Connections(3, 100), *busy, new) == ["0", "1", "2"]


def test_one_address_has_its_own_limit():
    others = [FakeConnection(f"o{n}", "192.0.2.9") for n in range(5)]
    flood = [FakeConnection(f"f{n}", "192.0.2.8") for n in range(20)]
    assert opened(Connections(100, 5), *others, *flood) == [
        "o0", "o1", "o2", "o3", "o4", "f15", "f16", "f17", "f18", "f19",
    ]  # fmt: skip


@pytest.fixture
def web(tmp_path):
    (tmp_path / "records").mkdir()
    process = WebProcess(tmp_path / "records", tmp_path / "state")
    yield process
    process.end()


def test_sockets_that_send_nothing_keep_nobody_out(web):
    web.sign_in()
    sockets = []
    try:
        for number in range(MAX_CONNECTIONS + 50):
            sockets.append(socket.create_connection(("127.0.0.1", web.port), timeout=30))
            if number % 3 == 0:
                sockets[-1].sendall(b"GET / HTTP/1.1\r\nHost: 127.0")
            elif number % 3 == 1:
                head = f"POST /sign-in HTTP/1.1\r\nHost: 127.0.0.1:{web.port}\r\nOrigin: {web.home}\r\n"
                sockets[-1].sendall(f"{head}Content-Length: 90\r\n\r\nsecret=".encode())
        assert web.ask("/")[0] == 200
        token = (web.state / "token").read_text()
        assert web.ask("/sign-in", {"secret": token}, Cookie="")[0] == 303
    finally:
        for item in sockets:
            item.close()


def test_a_home_folder_is_served_with_what_cannot_be_read_in_it(tmp_path):
    home = tmp_path / "home"
    (home / "deep" / "folder").mkdir(parents=True)
    (home / "secret").mkdir(mode=0)
    (home / "link").symlink_to("/")
    command = [sys.executable, "-m", "batchscale", "web", "--port", "0"]
    environment = {"HOME": str(home), "PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path)}
    child = subprocess.Popen(command, cwd=home, env=environment, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    try:
        assert child.stdout.readline().startswith("Open http://127.0.0.1:")
    finally:
        child.terminate()
        child.wait(30)
        child.stdout.close()
    assert (home / ".local" / "state" / "batchscale" / "web" / "token").is_file()


def test_half_open_connections_are_counted_no_more_when_they_end(web):
    for _ in range(3):
        sockets = [socket.create_connection(("127.0.0.1", web.port), timeout=30) for _ in range(60)]
        for item in sockets:
            item.close()
    time.sleep(0.1)
    assert web.ask("/sign-in")[0] == 200
