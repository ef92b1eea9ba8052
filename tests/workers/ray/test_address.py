"""A wrong address of a Ray cluster: one sentence within seconds, before anything is written. Needs no Ray."""

import contextlib
import importlib.util
import socket
import threading

import pytest
from typer.testing import CliRunner

from batchscale.cli.app import make_app
from batchscale.errors import RunError
from batchscale.workers.ray import address as address_module
from batchscale.workers.ray.address import RayAddress, check_address, find_local_address, parse_address

SETTINGS_FRAME = bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


@pytest.fixture(autouse=True)
def _library(monkeypatch):
    monkeypatch.setattr(address_module, "require_ray", lambda: None)
    monkeypatch.setattr(address_module, "_service_problem", lambda _address, _timeout_s: None)


@contextlib.contextmanager
def answering(answer):
    """A port of this machine that answers the first bytes with these; None: never."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        connections = []

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connections.append(connection)
                    connection.recv(100)
                    if answer is not None:
                        connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            for connection in connections:
                connection.close()


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


@pytest.mark.parametrize("scheme", ["", "ray://"])
def test_an_answering_server_of_grpc_passes(scheme):
    with answering(SETTINGS_FRAME) as address:
        check_address(scheme + address)


@pytest.mark.parametrize(
    ("answer", "words"), [(b"HTTP/1.1 400 Bad Request\r\n", "another program"), (None, "nothing answered within")]
)
def test_a_server_of_another_kind_is_refused(answer, words):
    with answering(answer) as address, pytest.raises(RunError, match=words):
        check_address(address, timeout_s=0.3)


def test_a_closed_port_and_an_unknown_host_are_refused():
    with pytest.raises(RunError, match="connection failed"):
        check_address(f"127.0.0.1:{closed_port()}")
    with pytest.raises(RunError, match=r"host name 'nosuch\.invalid' is not known"):
        check_address("ray://nosuch.invalid:10001")


def test_a_name_that_is_never_resolved_has_an_end(monkeypatch):
    answered = threading.Event()

    def resolve_slowly(*_):
        answered.wait(60)
        raise TimeoutError  # the thread ends as it does where a resolver gives up

    monkeypatch.setattr(socket, "create_connection", resolve_slowly)
    with pytest.raises(RunError, match="nothing answered within"):
        check_address("slow.example:6379", timeout_s=0.1)
    answered.set()


@pytest.mark.parametrize(
    "text", ["local", "host", "ray://host", "http://host:8265", "a b:1", "h:0", "h:70000", "h:1\n"]
)
def test_an_address_of_another_form_is_refused(text):
    with pytest.raises(RunError, match=r"auto, HOST:PORT or ray://HOST:PORT"):
        check_address(text)


def test_addresses_are_parsed():
    assert parse_address("auto") is None
    assert parse_address("ray://head.example:10001") == RayAddress("head.example", 10001, is_client=True)
    assert str(parse_address("[::1]:6379")) == "[::1]:6379"


def test_auto_is_the_cluster_of_rays_own_file(tmp_path, monkeypatch):
    monkeypatch.setattr(address_module, "_has_ray_process", lambda: False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    with pytest.raises(RunError, match="auto needs a Ray cluster on this machine"):
        check_address("auto")
    file = tmp_path / "ray" / "ray_current_cluster"
    file.parent.mkdir()
    file.write_text(f"127.0.0.1:{closed_port()}")  # of a cluster that has ended
    with pytest.raises(RunError, match="connection failed"):
        check_address("auto")
    with answering(SETTINGS_FRAME) as address:
        file.write_text(address)
        check_address("auto")
    file.unlink()
    monkeypatch.setattr(address_module, "_has_ray_process", lambda: True)
    assert find_local_address() is None


def run_on_ray(tmp_path, address):
    file = tmp_path / "experiment.toml"
    file.write_text(
        'goal = "val/loss < 0.1"\nbatch_sizes = [4]\ntrials = 1\nworkload = "noisy_quadratic/quadratic/sgd"\n'
    )
    words = ["run", str(file), "--out", str(tmp_path / "out"), "--runner", "ray", "--ray-address", address]
    result = CliRunner().invoke(make_app(), words)
    assert not (tmp_path / "out").exists()
    return result


def test_the_command_refuses_a_wrong_address_before_anything_is_written(tmp_path):
    result = run_on_ray(tmp_path, f"127.0.0.1:{closed_port()}")
    assert isinstance(result.exception, RunError) and "--ray-address" in str(result.exception)
    assert result.stderr == ""


def test_without_the_library_the_error_comes_alone(tmp_path, monkeypatch):
    monkeypatch.undo()
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: None if name == "ray" else real(name, *more))
    result = run_on_ray(tmp_path, "auto")
    assert isinstance(result.exception, RunError) and "pip install 'batchscale[ray]'" in str(result.exception)
    assert result.stderr == ""
