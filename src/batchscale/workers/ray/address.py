"""The address of a Ray cluster, checked within seconds: Ray itself tries a wrong one for minutes.

A check connects to the port and calls one method that only the expected kind of server has. Nothing is written.
"""

import importlib
import importlib.util
import os
import re
import socket
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchscale.errors import RunError, one_line

AUTO = "auto"
"""The address of the cluster that runs on this machine."""

CONNECT_S = 5.0
"""The longest wait for a name, for a connection, and for an answer."""

_CLIENT = "ray://"
_HOST_AND_PORT = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):(?P<port>\d{1,5})")
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The beginning of every HTTP/2 connection, which a server of gRPC answers with its settings at once."""

_METHODS = {True: "/ray.rpc.RayletDriver/ClusterInfo", False: "/ray.rpc.NodeInfoGcsService/CheckAlive"}
"""A method of Ray's client server (True) and one of its head."""


@dataclass(frozen=True)
class RayAddress:
    """A server of a cluster: the client server (``ray://HOST:PORT``) or the head (``HOST:PORT``)."""

    host: str
    port: int
    is_client: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{_CLIENT if self.is_client else ''}{host}:{self.port}"


def require_ray() -> None:
    """Raise RunError if the library is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise RunError("The runner 'ray' needs the library. It is not installed: pip install 'batchscale[ray]'.")


def check_address(text: str, timeout_s: float = CONNECT_S) -> None:
    """Raise RunError if no Ray cluster answers at an address of ``--ray-address``, or the library is not installed."""
    require_ray()
    address = parse_address(text)
    if address is None:
        address = find_local_address()
        if address is None:
            return  # a cluster runs here, and only Ray itself knows its port
    problem = _connection_problem(address, timeout_s)
    if problem is None:
        problem = _service_problem(address, timeout_s)
    if problem is not None:
        raise RunError(
            f"--ray-address must be that of a running Ray cluster. Found {one_line(text, 300)}, where {problem}. "
            "Start a cluster on this machine with 'ray start --head', or give the address of another: HOST:PORT "
            "(6379 by default) or ray://HOST:PORT (10001 by default)."
        )


def parse_address(text: str) -> RayAddress | None:
    """Return the server of an address; None for ``auto``."""
    if text == AUTO:
        return None
    is_client = text.startswith(_CLIENT)
    match = _HOST_AND_PORT.fullmatch(text.removeprefix(_CLIENT))
    if match is None or not 0 < int(match["port"]) < 2**16:
        hint = " That is the address of 'ray job submit'." if text.startswith(("http://", "https://")) else ""
        raise RunError(
            "--ray-address must be auto, HOST:PORT or ray://HOST:PORT, with a port of 1 to 65535. Found "
            f"{one_line(repr(text), 300)}.{hint}"
        )
    return RayAddress(match["host"].strip("[]"), int(match["port"]), is_client)


def find_local_address(environment: Mapping[str, str] = os.environ) -> RayAddress | None:
    """Return the cluster that runs on this machine, from the file that ``ray start`` writes.

    None if there is no such file, but a process of Ray.

    Raises:
        RunError: there is neither.
    """
    usual = "/tmp" if sys.platform != "win32" else tempfile.gettempdir()  # noqa: S108 - Ray's own place
    folder = environment.get("RAY_TMPDIR") or environment.get("TMPDIR") or usual
    try:
        return parse_address((Path(folder) / "ray" / "ray_current_cluster").read_text().strip())
    except (OSError, ValueError, RunError):
        pass
    if _has_ray_process():
        return None
    raise RunError(
        "--ray-address auto needs a Ray cluster on this machine. Found none. Start one with 'ray start --head', or "
        "give the address of another: HOST:PORT or ray://HOST:PORT."
    )


def _has_ray_process(processes: Path = Path("/proc")) -> bool:
    """True if a head runs here, or if this system does not list processes."""
    if not (processes / "self").exists():
        return True
    for path in processes.glob("[0-9]*/cmdline"):
        try:
            program = path.read_bytes().split(b"\0", 1)[0]
        except OSError:
            continue
        if program.endswith((b"/gcs_server", b"/raylet")):
            return True
    return False


def _connection_problem(address: RayAddress, timeout_s: float) -> str | None:
    """Return why no server of gRPC answers there; None if one does. Resolving a name has no time-out of its own."""
    problems: list[str | None] = []
    thread = threading.Thread(target=lambda: problems.append(_connect(address, timeout_s)), daemon=True)
    thread.start()
    thread.join(2 * timeout_s)
    return problems[0] if problems else f"nothing answered within {2 * timeout_s:.0f} s"


def _connect(address: RayAddress, timeout_s: float) -> str | None:
    try:
        with socket.create_connection((address.host, address.port), timeout_s) as connection:
            if _uses_tls():
                return None
            connection.sendall(_PREFACE)
            answer = connection.recv(9)
    except socket.gaierror:
        return f"the host name '{one_line(address.host, 100)}' is not known"
    except TimeoutError:
        return f"nothing answered within {timeout_s:.0f} s"
    except OSError as error:
        return f"the connection failed ({(error.strerror or str(error)).lower()})"
    is_settings = len(answer) > 3 and answer[3] == 4
    return None if is_settings else "another program than Ray answers"


def _service_problem(address: RayAddress, timeout_s: float) -> str | None:
    """Return a sentence part if the server lacks the method of its kind; None if it has it, or cannot be called."""
    if _uses_tls() or importlib.util.find_spec("grpc") is None:
        return None
    grpc: Any = importlib.import_module("grpc")
    target = str(address).removeprefix(_CLIENT)
    with grpc.insecure_channel(target, options=[("grpc.enable_http_proxy", 0)]) as channel:
        call = channel.unary_unary(_METHODS[address.is_client])
        try:
            call(b"", timeout=timeout_s)
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.UNIMPLEMENTED:
                kinds = ("head", "client server") if address.is_client else ("client server", "head")
                return f"no {kinds[1]} of Ray answers (is it the port of its {kinds[0]}?)"
            if error.code() in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNAVAILABLE):
                return f"nothing answered within {timeout_s:.0f} s"
    return None


def _uses_tls() -> bool:
    """True if Ray is told to encrypt its connections: only it has the certificates."""
    return os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true")
