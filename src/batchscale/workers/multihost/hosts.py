"""The processes of a cluster while they work: they monitor each other, and agree on what all must do alike.

Every process but the chief has one connection, to the chief. Each end sends a heartbeat every second. A process that
dies closes its connection, which is detected at once; one that is stopped or cut off sends nothing, which is detected
after ``lost_after_s``. Whoever detects a loss reports which process it was and ends this process with exit code 75: the
same command, started again everywhere, continues from the last checkpoint. Nothing is saved on the way out, so nothing
is saved in part.

A process that finds a user's mistake reports it to all, which end with its exit code. None of them waits for the others
on the way out, as JAX's own shutdown would.
"""

import contextlib
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from batchscale.errors import REQUEUE
from batchscale.workers.messages import Codec
from batchscale.workers.multihost.cluster import Cluster, split_address
from batchscale.workers.multihost.relay import Relay
from batchscale.workers.multihost.rendezvous import Facts, PrintProblem, Rendezvous, meet
from batchscale.workers.multihost.wire import Frame, Kind, pack_parts, unpack_parts

HEARTBEAT_S = 1.0
SEND_S = 2.0
"""The longest that a process which ends waits to report the reason to another."""

_BYE = "bye"
_AGAIN = " Start the same command on all hosts again: it continues what --out holds."


@dataclass(frozen=True)
class ProcessFailed:
    """A process cannot continue, so all end with this exit code."""

    reason: str
    code: int
    process: int


_FAILURES = Codec({"ProcessFailed": ProcessFailed}, "The failure of a process is")


def exit_now(message: str, code: int) -> NoReturn:
    """Print the reason and end this process at once, whatever its other threads wait for."""
    with contextlib.suppress(OSError, ValueError):  # nobody reads its output any more
        sys.stdout.flush()
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"{message}\n")
        sys.stderr.flush()
    os._exit(code)


class Hosts:
    """The other processes. All of them make the same collective calls, in the same order, from one thread each."""

    def __init__(self, cluster: Cluster, rendezvous: Rendezvous, end: Callable[[str, int], None] = exit_now) -> None:
        self.cluster = cluster
        self._coordinator = rendezvous.coordinator
        self._relay: Relay | None = None
        self._connections = dict(rendezvous.connections)
        self._end = end
        self._closing = threading.Event()
        self._ending = threading.Lock()
        self._ended = threading.Event()
        self._reported = False
        self._inbox: Mapping[int, queue.SimpleQueue[Frame]] = {
            place: queue.SimpleQueue() for place in self._connections
        }
        for place in self._connections:
            threading.Thread(target=self._listen, args=(place,), daemon=True, name=f"host-{place}").start()
        threading.Thread(target=self._monitor, daemon=True, name="hosts").start()

    @property
    def is_chief(self) -> bool:
        """True if this process decides and writes."""
        return self.cluster.is_chief

    @property
    def process(self) -> int:
        """The number of this process."""
        return self.cluster.process

    @property
    def num_processes(self) -> int:
        """The number of all processes."""
        return self.cluster.num_processes

    @property
    def lost_after_s(self) -> float:
        """The longest time without a heartbeat of a process."""
        return self.cluster.timeouts.lost_after_s

    @property
    def ended(self) -> bool:
        """True if one of the processes could not continue: nothing is received any more."""
        return self._ended.is_set()

    # --- collective calls ------------------------------------------------------------------------------------

    def gather(self, tag: str, payload: bytes) -> list[bytes]:
        """Return the payloads of all processes, in their order, on all of them. ``tag`` names the point in the code."""
        if not self.is_chief:
            self._send(0, Frame(Kind.PART, payload, tag))
            whole = self._inbox[0].get()
            if whole.tag != tag:
                self.fail(f"it is at '{tag}' while the chief is at '{whole.tag}'", 1)
            return unpack_parts(whole.payload)
        parts = [payload]
        for place in sorted(self._inbox):
            part = self._inbox[place].get()
            if part.tag != tag:
                self.fail(f"it is at '{tag}' while {self.cluster.name(place)} is at '{part.tag}'", 1)
            parts.append(part.payload)
        whole_payload = pack_parts(parts)
        for place in self._connections:
            self._send(place, Frame(Kind.WHOLE, whole_payload, tag))
        return parts

    def any(self, tag: str, mine: bool) -> bool:
        """Return True on all processes if it is true on any of them."""
        return b"1" in self.gather(tag, b"1" if mine else b"0")

    def chief_value(self, tag: str, mine: int) -> int:
        """Return the chief's number on all processes."""
        return int(self.gather(tag, str(mine).encode() if self.is_chief else b"")[0])

    def share(self, tag: str, payload: bytes) -> bytes:
        """Return the chief's payload on all processes; those of the others are ignored."""
        return self.gather(tag, payload if self.is_chief else b"")[0]

    def close(self) -> None:
        """Disconnect from the others: from here on none counts as lost."""
        if self._closing.is_set():
            return
        if self.is_chief:
            for place in sorted(self._connections):
                self._inbox[place].get()
            self._closing.set()
            for place in self._connections:
                self._send(place, Frame(Kind.WHOLE, pack_parts([]), _BYE))
        else:
            self._send(0, Frame(Kind.PART, b"", _BYE))
            self._inbox[0].get()
            self._closing.set()
        for connection in self._connections.values():
            connection.close()

    # --- what JAX needs --------------------------------------------------------------------------------------

    def open_coordinator(self) -> tuple[str, str | None]:
        """Return the address where JAX reaches its coordinator, and the one where it listens, if it does so here."""
        if self.is_chief:
            return self._coordinator, self._coordinator
        self._relay = Relay(*split_address(self._coordinator, "the coordinator"))
        return self._relay.address, None

    def close_coordinator(self) -> None:
        """End the connection of JAX to its coordinator."""
        if self._relay is not None:
            self._relay.close()

    def await_loss(self) -> None:
        """Wait as long as it takes to detect the loss of another process, which ends this one."""
        time.sleep(self.lost_after_s + 2 * HEARTBEAT_S)

    def fail(self, reason: str, code: int = REQUEUE) -> None:
        """End all processes, because this one cannot continue; with code 75 the same command may be started again."""
        if self.report(reason, code):
            self._end(f"This process cannot continue: {reason}", code)

    def report(self, reason: str, code: int) -> bool:
        """Report to all that this process ends with this code; False if all are ending already, for another reason."""
        failure = _FAILURES.encode("ProcessFailed", ProcessFailed(reason, code, self.process))
        self._reported = self._report_end(Frame(Kind.FAILED, failure))
        return self._reported

    def leave(self, message: str, reason: str, code: int) -> NoReturn:
        """End all processes with this code: this one with the message, the others with the reason."""
        if not (self._closing.is_set() or self._reported or self.report(reason, code)):
            time.sleep(SEND_S)  # another thread is about to end this process, with the first reason
        exit_now(message, code)

    # --- monitoring ------------------------------------------------------------------------------------------

    def _send(self, place: int, frame: Frame) -> None:
        try:
            self._connections[place].send(frame)
        except OSError:
            self._lose(place, "closed its connection: it has ended or was killed")

    def _listen(self, place: int) -> None:
        connection = self._connections[place]
        while True:
            try:
                frame = connection.receive()
            except (EOFError, OSError, ValueError):
                self._lose(place, "closed its connection: it has ended or was killed")
                return
            if frame.kind is Kind.WHOLE and frame.tag == _BYE:
                self._closing.set()  # here, before the chief's connection is seen to close
            if frame.kind in (Kind.PART, Kind.WHOLE):
                self._inbox[place].put(frame)
            elif frame.kind is Kind.LOST:
                self._end_all(frame, frame.payload.decode(errors="replace") + _AGAIN, REQUEUE)
            elif frame.kind is Kind.FAILED:
                failure: ProcessFailed = _FAILURES.decode(frame.payload)[1]
                name = self.cluster.name(failure.process)
                self._end_all(frame, f"Error: {name} cannot continue: {failure.reason}", failure.code)

    def _monitor(self) -> None:
        """Send heartbeats, and detect processes that send none."""
        woke = time.monotonic()
        while not self._closing.wait(HEARTBEAT_S):
            late, woke = time.monotonic() - woke - HEARTBEAT_S, time.monotonic()
            for place, connection in self._connections.items():
                try:
                    connection.send(Frame(Kind.HEARTBEAT), wait_s=0.0)
                except OSError:
                    continue  # the listener reports it
                silence_s = time.monotonic() - connection.received_at
                # if this process itself was stopped, what came meanwhile is read first
                if silence_s > self.lost_after_s and late < HEARTBEAT_S:
                    self._lose(place, f"sent nothing for {silence_s:.0f} s: it is stopped or cannot be reached")

    def _lose(self, place: int, reason: str) -> None:
        text = f"{self.cluster.name(place)} {reason}."
        self._end_all(Frame(Kind.LOST, text.encode()), text + _AGAIN, REQUEUE, except_place=place)

    def _end_all(self, frame: Frame, text: str, code: int, except_place: int | None = None) -> None:
        if self._report_end(frame, except_place):
            self._end(text, code)

    def _report_end(self, frame: Frame, except_place: int | None = None) -> bool:
        """Forward the reason why all end; only the first reason counts: False for a later one."""
        if self._closing.is_set() or not self._ending.acquire(blocking=False):
            return False
        self._ended.set()
        for place, connection in self._connections.items():
            if place != except_place:
                with contextlib.suppress(OSError):
                    connection.socket.settimeout(SEND_S)
                    connection.send(frame, SEND_S)
        return True


def connect(cluster: Cluster, facts: Facts, notify: PrintProblem = lambda _text: None) -> Hosts:
    """Return the other processes, once all are there with the same facts.

    Raises:
        RunError: one is missing, cannot start, or was started differently; ``notify`` got the message before.
    """
    return Hosts(cluster, meet(cluster, facts, notify))
