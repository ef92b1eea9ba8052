"""The rendezvous of a cluster: all processes connect to the chief, which waits for them and compares their facts."""

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

from batchscale.errors import RunError, one_line
from batchscale.workers.messages import Codec
from batchscale.workers.multihost.cluster import Cluster, join_address, split_address
from batchscale.workers.multihost.wire import MAX_HELLO_BYTES, Connection, Frame, Kind

HELLO_S = 10.0
"""The longest that a new connection may take to introduce itself."""

Facts = Mapping[str, str]


@dataclass(frozen=True)
class Hello:
    """The introduction of a process. ``facts`` are the options that must be the same on all."""

    process: int
    num_processes: int
    facts: dict[str, str]


@dataclass(frozen=True)
class Welcome:
    """The chief's answer when all processes are there. ``coordinator`` is its address for JAX."""

    coordinator: str


_MESSAGES = Codec({"Hello": Hello, "Welcome": Welcome}, "Processes of a cluster meet with")


@dataclass(frozen=True)
class Rendezvous:
    """The connections to the other processes (a worker has one, to the chief), and the address of JAX's coordinator."""

    connections: Mapping[int, Connection]
    coordinator: str


def meet(cluster: Cluster, facts: Facts) -> Rendezvous:
    """Connect to the other processes, and return once all are there with the same facts.

    Raises:
        RunError: one is missing, or was started differently; names it. All processes get the message.
    """
    return _host(cluster, facts) if cluster.is_chief else _join(cluster, facts)


def _host(cluster: Cluster, facts: Facts) -> Rendezvous:
    """Wait as chief for every other process."""
    host, port = split_address(cluster.address, cluster.source)
    join_s = cluster.timeouts.join_s
    connections: dict[int, Connection] = {}
    with _listen(cluster, host, port) as listener:
        until = time.monotonic() + join_s
        try:
            while len(connections) < cluster.num_processes - 1:
                listener.settimeout(max(0.01, until - time.monotonic()))
                try:
                    connection = Connection(listener.accept()[0])
                except TimeoutError:
                    raise RunError(_describe_missing(cluster, set(connections), join_s)) from None
                hello = _receive_hello(connection)
                if hello is None:
                    connection.close()  # not a process of batchscale
                    continue
                try:
                    _validate(cluster, facts, hello, set(connections))
                except RunError as error:
                    _send(connection, Frame(Kind.REJECTED, str(error).encode()))
                    connection.close()
                    raise
                connections[hello.process] = connection
        except RunError as error:
            for connection in connections.values():
                _send(connection, Frame(Kind.REJECTED, str(error).encode()))
                connection.close()
            raise
        bound = listener.getsockname()[0]
    coordinator = join_address(bound, free_port(bound))
    for connection in connections.values():
        _send(connection, Frame(Kind.WELCOME, _MESSAGES.encode("Welcome", Welcome(coordinator))))
    return Rendezvous(connections, coordinator)


def _join(cluster: Cluster, facts: Facts) -> Rendezvous:
    """Connect to the chief and wait until all are there."""
    host, port = split_address(cluster.address, cluster.source)
    join_s = cluster.timeouts.join_s
    connection = _connect(cluster, host, port, time.monotonic() + join_s, join_s)
    hello = Hello(cluster.process, cluster.num_processes, dict(facts))
    try:
        connection.socket.settimeout(join_s + HELLO_S)  # the chief gives up first, and names who is missing
        connection.send(Frame(Kind.HELLO, _MESSAGES.encode("Hello", hello)))
        answer = connection.receive(MAX_HELLO_BYTES)
        connection.socket.settimeout(None)
    except (OSError, EOFError, ValueError):
        connection.close()
        raise RunError(
            f"{cluster.name(0)} answered and then left before all processes were there. Its own output says why."
        ) from None
    if answer.kind is Kind.REJECTED:
        connection.close()
        raise RunError(f"{cluster.name(0)} reports: {one_line(answer.payload.decode(errors='replace'), 1000)}")
    try:
        welcome: Welcome = _MESSAGES.decode(answer.payload)[1]
    except RunError:
        raise RunError(f"{cluster.address} is no chief of this version of batchscale; start the same on all.") from None
    # the chief may use another name for its host than this process does
    return Rendezvous({0: connection}, join_address(host, int(welcome.coordinator.rpartition(":")[2])))


def _listen(cluster: Cluster, host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(cluster.num_processes)
    except OSError as error:
        raise RunError(
            f"{cluster.source}: the chief listens at its own address. Found {cluster.address}, where it cannot "
            f"({error.strerror or error}); is it this host's, and is the port free?"
        ) from None
    return listener


def _receive_hello(connection: Connection) -> Hello | None:
    """Return the introduction of a new process; None if it is not one of batchscale's."""
    try:
        connection.socket.settimeout(HELLO_S)
        frame = connection.receive(MAX_HELLO_BYTES)
        connection.socket.settimeout(None)
        hello = _MESSAGES.decode(frame.payload)[1]
    except (OSError, EOFError, ValueError, RunError):
        return None
    return hello if isinstance(hello, Hello) else None


def _validate(cluster: Cluster, facts: Facts, hello: Hello, joined: set[int]) -> None:
    process, count = hello.process, hello.num_processes
    if count != cluster.num_processes:
        raise RunError(
            f"All processes of a cluster have the same number of processes. Found {cluster.num_processes} at the chief "
            f"and {count} at process {process}; give all the same cluster."
        )
    if not 0 < process < cluster.num_processes:
        raise RunError(f"Processes are numbered from 0, the chief. Found one with the number {process}.")
    if process in joined:
        raise RunError(f"Every process has its own number. Found process {process} twice; check their clusters.")
    for name, value in facts.items():
        if hello.facts.get(name) != value:
            raise RunError(
                f"All processes of a cluster are started alike. {cluster.name(process)} has {name} = "
                f"{one_line(hello.facts.get(name))}, the chief {one_line(value)}."
            )


def _describe_missing(cluster: Cluster, joined: set[int], join_s: float) -> str:
    missing = [cluster.name(process) for process in range(1, cluster.num_processes) if process not in joined]
    names = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
    return (
        f"All {cluster.num_processes} processes of a cluster meet within {join_s:g} s. Missing: {names}. Start the "
        f"same command there, with the same cluster; they must reach {cluster.address}."
    )


def _connect(cluster: Cluster, host: str, port: int, until: float, join_s: float) -> Connection:
    while True:
        timeout = max(0.1, min(5.0, until - time.monotonic()))
        try:
            return Connection(socket.create_connection((host, port), timeout=timeout))
        except OSError as error:  # the chief starts later, or its name does not resolve yet
            if time.monotonic() >= until:
                raise RunError(
                    f"{cluster.source}: all processes reach the chief within {join_s:g} s. Found nobody at "
                    f"{cluster.address} ({error.strerror or error}); start the same command there."
                ) from None
            time.sleep(0.1)


def _send(connection: Connection, frame: Frame) -> None:
    try:
        connection.send(frame)
    except OSError:
        return  # it has gone: the heartbeats report it


def free_port(host: str) -> int:
    """Return a port of this host that is not in use."""
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        port: int = probe.getsockname()[1]
    return port
