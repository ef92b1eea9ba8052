"""Requests that no browser sends, over a real connection: slow, cut off, smuggled, with marks where none belong."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

PATIENCE_S = 0.6
SERVER = """
import sys
from pathlib import Path
from batchscale.web.auth import Auth
from batchscale.web.server import bind, serve
from batchscale.web.settings import Limits, WebSettings
from dataclasses import replace
folder, state, patience = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
settings = WebSettings((folder,), state, port=0, limits=Limits(header_s=patience, body_s=patience))
listener = bind(settings)
settings = replace(settings, port=listener.getsockname()[1])
print(settings.port, flush=True)
serve(settings, Auth(state), listener)
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory):
    """The port of a server with little patience."""
    folder: Path = tmp_path_factory.mktemp("slow")
    (folder / "records").mkdir()
    words = [sys.executable, "-c", SERVER, str(folder / "records"), str(folder / "state"), str(PATIENCE_S)]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    yield int(child.stdout.readline())
    child.terminate()
    child.wait(30)
    child.stdout.close()


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=30)


def talk(port: int, data: bytes) -> bytes:
    """All that comes back until the server closes the connection."""
    with connect(port) as connection:
        connection.sendall(data)
        return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def get(port: int, path: str = "/sign-in", *more: str) -> bytes:
    lines = [f"GET {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", *more]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def test_headers_that_never_end_are_given_up(port):
    started = time.monotonic()
    talk(port, b"GET / HTTP/1.1\r\nHost: 127.0")
    assert time.monotonic() - started < 20  # it closes by itself, far before the client's own patience ends


def test_headers_that_come_byte_by_byte_are_given_up(port):
    with connect(port) as connection, pytest.raises(OSError):
        for _ in range(1000):
            connection.sendall(b"x")
            time.sleep(PATIENCE_S / 10)


def test_a_second_request_has_no_more_time_than_the_first(port):
    with connect(port) as connection:
        connection.sendall(get(port))
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"GET / HTTP/1.1\r\nHost:")
        assert b"HTTP/1.1" not in read_all(connection)  # the rest of the first answer, then the end


def test_a_body_that_stops_in_the_middle_is_refused(port):
    head = [
        "POST /sign-in HTTP/1.1", f"Host: 127.0.0.1:{port}", f"Origin: http://127.0.0.1:{port}", "Content-Length: 100",
        "Content-Type: application/x-www-form-urlencoded", "Connection: close",
    ]  # fmt: skip
    assert talk(port, ("\r\n".join(head) + "\r\n\r\nsecret=").encode()).startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize(
    "path", ["/sign-in\r\nSet-Cookie: a=b", "/sign-in HTTP/1.1\r\nx: y", "/\x00", "/%0d%0aset-cookie:%20a=b"]
)
def test_a_path_never_becomes_a_header(port, path):
    answer = talk(port, get(port, path, "Connection: close")).lower()
    assert b"set-cookie" not in answer.partition(b"\r\n\r\n")[0]


@pytest.mark.parametrize(
    "more",
    [
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Transfer-Encoding: chunked, identity",),
        ("X: a\x00b",),
        ("Bad Name: x",),
        ("Cookie: " + "a" * 20_000,),
    ],
)
def test_requests_with_two_meanings_are_refused(port, more):
    answer = talk(port, get(port, "/sign-in", *more, "Connection: close"))
    assert not answer.startswith(b"HTTP/1.1 200") and b"Traceback" not in answer


def test_another_port_in_the_host_is_refused(port):
    wrong = get(port, "/sign-in", "Connection: close").replace(f":{port}".encode(), f":{port + 1}".encode())
    assert talk(port, wrong).startswith(b"HTTP/1.1 421")


def test_the_server_still_answers(port):
    assert talk(port, get(port, "/sign-in", "Connection: close")).startswith(b"HTTP/1.1 200")
