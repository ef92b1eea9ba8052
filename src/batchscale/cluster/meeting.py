"""How the processes of a cluster meet: all others connect to the chief, which waits for them and compares notes."""

import json
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

from batchscale.cluster.description import Cluster, join_address, split_address
from batchscale.cluster.frames import MAX_HELLO_BYTES, Channel, Frame, Kind
from batchscale.cluster.secret import is_signed, make_nonce, sign
from batchscale.errors import RunError, one_line

HELLO_S = 10.0
"""How long a new connection may take to say who it is."""

Facts = Mapping[str, str]

_TURNED_AWAY = "All processes of a cluster have the same secret (token_file), or none has one. Give all the same file."


@dataclass(frozen=True)
class _Joined:
    """A process that was let in, and the number for which it wants the chief's proof."""

    channel: Channel
    nonce: bytes


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
    joined: dict[int, _Joined] = {}
    turned_away = 0
    with _listen(cluster, host, port) as listener:
        until = time.monotonic() + join_s
        try:
            while len(joined) < cluster.num_processes - 1:
                listener.settimeout(max(0.01, until - time.monotonic()))
                try:
                    channel = Channel(listener.accept()[0])
                except TimeoutError:
                    raise RunError(_say_missing(cluster, set(joined), join_s, turned_away)) from None
                nonce = make_nonce()
                answer = _hear_hello(channel, nonce)
                if answer is None:
                    channel.close()  # not one of ours
                    continue
                text, proof = answer
                if not is_signed(cluster.token, "process", nonce, text, proof):
                    turned_away += 1
                    _tell(channel, Frame(Kind.REFUSED, _TURNED_AWAY.encode()))
                    channel.close()
                    continue
                hello = json.loads(text)
                try:
                    process = _admit(cluster, facts, hello, set(joined))
                except RunError as error:
                    _tell(channel, Frame(Kind.REFUSED, str(error).encode()))
                    channel.close()
                    raise
                joined[process] = _Joined(channel, str(hello.get("nonce")).encode())
        except RunError as error:
            for one in joined.values():
                _tell(one.channel, Frame(Kind.REFUSED, str(error).encode()))
                one.channel.close()
            raise
        bound = listener.getsockname()[0]
    coordinator = join_address(bound, free_port(bound))
    for one in joined.values():
        told = {"coordinator": coordinator, "proof": sign(cluster.token, "chief", one.nonce, coordinator.encode())}
        _tell(one.channel, Frame(Kind.GO, json.dumps(told).encode()))
    return Meeting({process: one.channel for process, one in joined.items()}, coordinator)


def join_meeting(cluster: Cluster, facts: Facts) -> Meeting:
    """Connect to the chief and wait until it says that all are there.

    Raises:
        RunError: the chief is not there in time, or refused.
    """
    host, port = split_address(cluster.address, cluster.source)
    join_s = cluster.timeouts.join_s
    until = time.monotonic() + join_s
    channel = _reach(cluster, host, port, until, join_s)
    nonce = make_nonce().hex()
    hello = {"process": cluster.process, "num_processes": cluster.num_processes, "facts": dict(facts), "nonce": nonce}
    text = json.dumps(hello)
    try:
        channel.socket.settimeout(join_s + HELLO_S)  # the chief gives up first, and says who is missing
        challenge = channel.receive(MAX_HELLO_BYTES)
        proof = sign(cluster.token, "process", challenge.payload, text.encode())
        channel.send(Frame(Kind.HELLO, json.dumps([text, proof]).encode()))
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
    coordinator = _check_go(cluster, answer, nonce.encode())
    # the chief may know itself by another address than we do
    return Meeting({0: channel}, join_address(host, int(coordinator.rpartition(":")[2])))


def _check_go(cluster: Cluster, answer: Frame, nonce: bytes) -> str:
    try:
        told = json.loads(answer.payload)
        coordinator, proof = str(told["coordinator"]), told["proof"]
    except (ValueError, KeyError, TypeError):
        raise RunError(f"{cluster.address} is no chief of this version of batchscale; start the same on all.") from None
    if not is_signed(cluster.token, "chief", nonce, coordinator.encode(), proof):
        raise RunError(f"{cluster.address} does not know the secret of this cluster: it is not the chief.")
    return coordinator


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


def _hear_hello(channel: Channel, nonce: bytes) -> tuple[bytes, object] | None:
    """What a new process says of itself, and its proof; None if it is not one of ours."""
    try:
        channel.socket.settimeout(HELLO_S)
        channel.send(Frame(Kind.CHALLENGE, nonce))
        frame = channel.receive(MAX_HELLO_BYTES)
        channel.socket.settimeout(None)
        text, proof = json.loads(frame.payload)
        hello = json.loads(text)
    except (OSError, EOFError, ValueError, TypeError, RecursionError):
        return None
    is_ours = frame.kind is Kind.HELLO and isinstance(hello, dict) and isinstance(hello.get("facts"), dict)
    return (text.encode(), proof) if is_ours else None


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


def _say_missing(cluster: Cluster, there: set[int], join_s: float, turned_away: int) -> str:
    missing = [cluster.name(process) for process in range(1, cluster.num_processes) if process not in there]
    shown = ", ".join(missing[:8]) + (f" and {len(missing) - 8} more" if len(missing) > 8 else "")
    return (
        f"All {cluster.num_processes} processes of a cluster meet within {join_s:g} s. Missing: {shown}. Start the "
        f"same command there, with the same cluster; they must reach {cluster.address}."
        + (f" Turned away, for another secret: {turned_away} connection(s)." if turned_away else "")
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


def free_port(host: str) -> int:
    """A port of this host that nobody listens at."""
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        port: int = probe.getsockname()[1]
    return port
