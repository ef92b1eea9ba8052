"""How the processes of a cluster meet: all others connect to the chief, which waits for them and compares notes."""

import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

from batchscale.cluster.description import Cluster, split_address
from batchscale.cluster.frames import MAX_HELLO_BYTES, Channel, Frame, Kind
from batchscale.errors import RunError, one_line

HELLO_S = 10.0
"""How long a new connection may take to say who it is."""

Facts = Mapping[str, str]


@dataclass(frozen=True)
class Meeting:
    """All are there: a channel to each of the others (a worker has one, to the chief), and where JAX is to meet."""

    channels: Mapping[int, Channel]
    coordinator: str


def host_meeting(cluster: Cluster, facts: Facts) -> Meeting:
    """Wait as chief until every other process is there with the same facts.

    Raises:
        RunError: one did not come in time, or has other facts; says which one and what. The others are told.
    """
    host, port = split_address(cluster.address, cluster.source)
    join_s = cluster.timeouts.join_s
    channels: dict[int, Channel] = {}
    with _listen(cluster, host, port) as listener:
        until = time.monotonic() + join_s
        try:
            while len(channels) < cluster.num_processes - 1:
                listener.settimeout(max(0.01, until - time.monotonic()))
                try:
                    channel = Channel(listener.accept()[0])
                except TimeoutError:
                    raise RunError(_say_missing(cluster, set(channels), join_s)) from None
                hello = _hear_hello(channel)
                if hello is None:
                    channel.close()  # not one of ours
                    continue
                try:
                    channels[_admit(cluster, facts, hello, set(channels))] = channel
                except RunError as error:
                    _tell(channel, Frame(Kind.REFUSED, str(error).encode()))
                    channel.close()
                    raise
        except RunError as error:
            for channel in channels.values():
                _tell(channel, Frame(Kind.REFUSED, str(error).encode()))
                channel.close()
            raise
        bound = listener.getsockname()[0]
    coordinator = _join_host(bound, _free_port(bound))
    for channel in channels.values():
        _tell(channel, Frame(Kind.GO, coordinator.encode()))
    return Meeting(channels, coordinator)


def join_meeting(cluster: Cluster, facts: Facts) -> Meeting:
    """Connect to the chief and wait until it says that all are there.

    Raises:
        RunError: the chief is not there in time, or refused.
    """
    host, port = split_address(cluster.address, cluster.source)
    join_s = cluster.timeouts.join_s
    until = time.monotonic() + join_s
    channel = _reach(cluster, host, port, until, join_s)
    hello = {"process": cluster.process, "num_processes": cluster.num_processes, "facts": dict(facts)}
    try:
        channel.send(Frame(Kind.HELLO, json.dumps(hello).encode()))
        channel.socket.settimeout(join_s + HELLO_S)  # the chief gives up first, and says who is missing
        answer = channel.receive(MAX_HELLO_BYTES)
        channel.socket.settimeout(None)
    except (OSError, EOFError, ValueError):
        channel.close()
        raise RunError(
            f"{cluster.name(0)} answered and then left before all processes were there. Its own words say why."
        ) from None
    if answer.kind is Kind.REFUSED:
        channel.close()
        raise RunError(f"{cluster.name(0)} says: {one_line(answer.payload.decode(errors='replace'), 1000)}")
    bound, _, coordinator_port = answer.payload.decode(errors="replace").rpartition(":")
    del bound  # the chief may know itself by another address than we do
    return Meeting({0: channel}, _join_host(host, int(coordinator_port)))


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


def _hear_hello(channel: Channel) -> Mapping[str, object] | None:
    try:
        channel.socket.settimeout(HELLO_S)
        frame = channel.receive(MAX_HELLO_BYTES)
        channel.socket.settimeout(None)
        found = json.loads(frame.payload) if frame.kind is Kind.HELLO else None
    except (OSError, EOFError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("facts"), dict) else None


def _admit(cluster: Cluster, facts: Facts, hello: Mapping[str, object], there: set[int]) -> int:
    process, count, theirs = hello.get("process"), hello.get("num_processes"), hello["facts"]
    if count != cluster.num_processes:
        raise RunError(
            f"All processes of a cluster know how many there are. Found {cluster.num_processes} at the chief and "
            f"{one_line(count)} at process {one_line(process)}; give all the same cluster."
        )
    if isinstance(process, bool) or not isinstance(process, int) or not 0 < process < cluster.num_processes:
        raise RunError(f"Processes are numbered from 0, the chief. Found one that calls itself {one_line(process)}.")
    if process in there:
        raise RunError(f"Every process has its own number. Found process {process} twice; look at their clusters.")
    assert isinstance(theirs, dict)
    for name, value in facts.items():
        if theirs.get(name) != value:
            raise RunError(
                f"All processes of a cluster are started alike. {cluster.name(process)} has {name} = "
                f"{one_line(theirs.get(name))}, the chief {one_line(value)}."
            )
    return process


def _say_missing(cluster: Cluster, there: set[int], join_s: float) -> str:
    missing = [cluster.name(process) for process in range(1, cluster.num_processes) if process not in there]
    shown = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
    return (
        f"All {cluster.num_processes} processes of a cluster meet within {join_s:g} s. Missing: {shown}. Start the "
        f"same command there, with the same cluster; they must reach {cluster.address}."
    )


def _reach(cluster: Cluster, host: str, port: int, until: float, join_s: float) -> Channel:
    while True:
        try:
            return Channel(socket.create_connection((host, port), timeout=max(0.1, min(5.0, until - time.monotonic()))))
        except OSError as error:  # it starts later, or its name is not known yet
            if time.monotonic() >= until:
                raise RunError(
                    f"{cluster.source}: all processes reach the chief within {join_s:g} s. Found nobody at "
                    f"{cluster.address} ({error.strerror or error}); start the same command there."
                ) from None
            time.sleep(0.1)


def _tell(channel: Channel, frame: Frame) -> None:
    try:
        channel.send(frame)
    except OSError:
        return  # it has gone: whoever watches it finds out


def _free_port(host: str) -> int:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
    return port


def _join_host(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
