"""The rendezvous of a cluster: all processes connect to the chief, which waits for them and compares their facts.

A process that cannot start comes too and reports why, so that none waits for it.
"""

import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Strict

from batchscale.errors import RunError, one_line
from batchscale.workers.messages import Codec
from batchscale.workers.multihost.arrivals import HELLO_S, MAX_STRANGERS, Arrivals
from batchscale.workers.multihost.cluster import Cluster, join_address, same_addresses, split_address
from batchscale.workers.multihost.wire import MAX_HELLO_BYTES, Connection, Frame, Kind

REPORT_S = 15.0
"""The longest that a process which cannot start waits for the others to report it to them."""

MAX_REPORT = 4000

Facts = Mapping[str, str]
PrintProblem = Callable[[str], None]


@dataclass(frozen=True)
class Hello:
    """The introduction of a process.

    ``facts`` are the options that must be the same on all, ``names`` the addresses of its cluster, if it has them.
    ``problem`` is the reason why it cannot start.
    """

    process: Annotated[int, Strict()]
    num_processes: Annotated[int, Strict()]
    facts: dict[str, str]
    names: tuple[str, ...] = ()
    problem: str = ""


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


def meet(cluster: Cluster, facts: Facts, notify: PrintProblem = lambda _text: None) -> Rendezvous:
    """Connect to the other processes, and return once all are there with the same facts.

    ``notify`` gets the message of an error before the chief waits for late processes, to pass it on.

    Raises:
        RunError: one is missing, cannot start, or was started differently; names it. All processes get the message.
    """
    if not cluster.is_chief:
        try:
            return _join(cluster, facts)
        except RunError as error:
            notify(str(error))
            raise
    with (
        _listen(cluster, notify) as listener,
        contextlib.closing(Arrivals(listener, cluster.num_processes)) as arrivals,
    ):
        connections: dict[int, Connection] = {}
        refused: list[Connection] = []
        until = time.monotonic() + cluster.timeouts.join_s
        try:
            while len(connections) < cluster.num_processes - 1:
                _admit_next(cluster, facts, arrivals, connections, refused, until)
        except RunError as error:
            notify(str(error))
            is_over = time.monotonic() >= until
            _reject(cluster, arrivals, [*connections.values(), *refused], str(error), is_over=is_over)
            raise
        bound = listener.getsockname()[0]
    coordinator = join_address(bound, free_port(bound))
    for connection in connections.values():
        _send(connection, Frame(Kind.WELCOME, _MESSAGES.encode("Welcome", Welcome(coordinator))))
    return Rendezvous(connections, coordinator)


def report_problem(cluster: Cluster, problem: str) -> None:
    """Report to the other processes why this one cannot start, if they come within `REPORT_S`."""
    problem = problem[:MAX_REPORT]
    with contextlib.suppress(RunError):
        if not cluster.is_chief:
            _introduce(cluster, Hello(cluster.process, cluster.num_processes, {}, problem=problem), REPORT_S).close()
            return
        with (
            _listen(cluster) as listener,
            contextlib.closing(Arrivals(listener, cluster.num_processes)) as arrivals,
        ):
            _reject(cluster, arrivals, (), f"it cannot start: {problem}")


def _admit_next(
    cluster: Cluster,
    facts: Facts,
    arrivals: Arrivals,
    connections: dict[int, Connection],
    refused: list[Connection],
    until: float,
) -> None:
    """Add the connection of the next process of batchscale to ``connections``, or to ``refused`` with an error."""
    arrival = arrivals.next(until)
    if arrival is None:
        raise RunError(_describe_missing(cluster, set(connections), cluster.timeouts.join_s))
    connection, frame = arrival
    hello = _parse_hello(frame)
    if hello is None:
        connection.close()
        return
    try:
        _validate(cluster, facts, hello, set(connections))
    except RunError:
        refused.append(connection)
        raise
    connections[hello.process] = connection


def _reject(
    cluster: Cluster, arrivals: Arrivals, joined: Iterable[Connection], reason: str, *, is_over: bool = False
) -> None:
    """Send the reason to all who have joined and, unless the time to join is over, to those who come in `REPORT_S`."""
    rejection = Frame(Kind.REJECTED, reason.encode())
    num_told = 0
    for connection in joined:
        _send(connection, rejection)
        connection.close()
        num_told += 1
    until = time.monotonic() + (0.0 if is_over else min(REPORT_S, cluster.timeouts.join_s))
    while num_told < cluster.num_processes - 1 and (arrival := arrivals.next(until)) is not None:
        connection, frame = arrival
        if _parse_hello(frame) is not None:
            _send(connection, rejection)
            num_told += 1
        connection.close()


def _join(cluster: Cluster, facts: Facts) -> Rendezvous:
    """Connect to the chief and wait until all are there."""
    hello = Hello(cluster.process, cluster.num_processes, dict(facts), cluster.names)
    connection = _introduce(cluster, hello, cluster.timeouts.join_s)
    try:
        answer = connection.receive(MAX_HELLO_BYTES)
        connection.socket.settimeout(None)
    except (OSError, EOFError, ValueError):
        connection.close()
        raise RunError(
            f"{cluster.name(0)} answered and then left before all processes were there. Its own output says why."
        ) from None
    if answer.kind is Kind.REJECTED:
        connection.close()
        reason = one_line(answer.payload.decode(errors="replace"), MAX_REPORT)
        raise RunError(f"{cluster.name(0)} reports: {reason}")
    try:
        welcome: Welcome = _MESSAGES.decode(answer.payload)[1]
        port = int(welcome.coordinator.rpartition(":")[2])
    except (RunError, ValueError, AttributeError):
        connection.close()
        raise RunError(f"{cluster.address} is no chief of this version of batchscale; start the same on all.") from None
    # the chief may use another name for its host than this process does
    return Rendezvous({0: connection}, join_address(split_address(cluster.address, cluster.source)[0], port))


def _introduce(cluster: Cluster, hello: Hello, wait_s: float) -> Connection:
    """Connect to the chief within this time and send the introduction."""
    host, port = split_address(cluster.address, cluster.source)
    connection = _connect(cluster, host, port, time.monotonic() + wait_s, wait_s)
    connection.socket.settimeout(wait_s + HELLO_S)  # the chief gives up first, and names who is missing
    _send(connection, Frame(Kind.HELLO, _MESSAGES.encode("Hello", hello)))
    return connection


def _listen(cluster: Cluster, notify: PrintProblem = lambda _text: None) -> socket.socket:
    host, port = split_address(cluster.address, cluster.source)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(cluster.num_processes + MAX_STRANGERS)
    except (OSError, UnicodeError) as error:
        text = (
            f"{cluster.source}: the chief listens at its own address. Found {cluster.address}, where it cannot "
            f"({_reason(error)}); is it this host's, and is the port free?"
        )
        notify(text)
        raise RunError(text) from None
    return listener


def _parse_hello(frame: Frame) -> Hello | None:
    """Return the introduction of a new process; None if it is not one of batchscale's."""
    try:
        hello = _MESSAGES.decode(frame.payload)[1]
        if frame.kind is not Kind.HELLO or not isinstance(hello, Hello):
            return None
        texts = (*hello.facts, *hello.facts.values(), *hello.names, hello.problem)
        "".join(texts).encode()  # no text of ours has lone surrogates, which no answer could contain
        for name in hello.names:
            split_address(name, "an introduction")
    except (ValueError, RunError):
        return None
    return hello


def _validate(cluster: Cluster, facts: Facts, hello: Hello, joined: set[int]) -> None:
    process, count = hello.process, hello.num_processes
    if hello.problem:
        raise RunError(f"{cluster.name(process)} cannot start: {one_line(hello.problem, MAX_REPORT)}")
    if count != cluster.num_processes:
        raise RunError(
            f"All processes of a cluster have the same number of processes. Found {cluster.num_processes} at the chief "
            f"and {count} at process {process}; give all the same cluster."
        )
    if not 0 < process < cluster.num_processes:
        raise RunError(f"Processes are numbered from 0, the chief. Found one with the number {process}.")
    if process in joined:
        raise RunError(f"Every process has its own number. Found process {process} twice; check their clusters.")
    if hello.names and cluster.names and not same_addresses(hello.names, cluster.names):
        raise RunError(
            "All processes of a cluster have the same addresses in the same order, the chief's first. Found "
            f"{one_line(', '.join(cluster.names))} at the chief and {one_line(', '.join(hello.names))} at process "
            f"{process}; give all the same cluster."
        )
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
        except (OSError, UnicodeError) as error:  # the chief starts later, or its name does not resolve yet
            if time.monotonic() >= until:
                raise RunError(
                    f"{cluster.source}: all processes reach the chief within {join_s:g} s. Found nobody at "
                    f"{cluster.address} ({_reason(error)}); start the same command there."
                ) from None
            time.sleep(0.1)


def _reason(error: Exception) -> str:
    return one_line(getattr(error, "strerror", None) or error)


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
