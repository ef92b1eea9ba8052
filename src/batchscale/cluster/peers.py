"""The processes of a cluster while they work: they watch each other, and agree on what all must do alike.

Every process but the chief has one connection, to the chief. Each end sends a sign of life every second. A process that
dies closes its connection, which is noticed at once; one that is stopped or cut off falls silent, which is noticed
after ``lost_after_s``. Whoever notices says which one it was and ends this process with exit code 75: the same command,
given again everywhere, goes on from the last checkpoint. Nothing is saved on the way out, so nothing is saved in part.
A chief whose processes train in groups may `go_on_without` a group that has lost one.
"""

import contextlib
import json
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping

from batchscale.cluster.description import Cluster, split_address
from batchscale.cluster.frames import Channel, Frame, Kind, pack_parts, unpack_parts
from batchscale.cluster.meeting import Facts, Meeting, host_meeting, join_meeting
from batchscale.errors import REQUEUE

BEAT_S = 1.0
_BYE = "bye"
_AGAIN = " Start the same command on all hosts again to go on."
_WITHOUT = " The other groups go on; this one is there again when the same command is next started on all hosts."


def leave(message: str, code: int) -> None:
    """Say why and end this process at once, whatever its other threads wait for."""
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()
    sys.stdout.flush()
    os._exit(code)


class Peers:
    """The other processes. What they agree on they are asked for all, in the same order, by one thread each.

    Besides, the chief may `ask` any of them and each may `tell` the chief, whenever they like.
    """

    def __init__(self, cluster: Cluster, meeting: Meeting, end: Callable[[str, int], None] = leave) -> None:
        self.cluster = cluster
        self.coordinator = meeting.coordinator
        self._channels = dict(meeting.channels)
        self._lost_after_s = cluster.timeouts.lost_after_s
        self._end = end
        self._closing = threading.Event()
        self._ending = threading.Lock()
        self._ended = threading.Event()
        self._parting = threading.Lock()
        self._gone: list[Channel] = []
        self._companions: Callable[[int], Collection[int]] = lambda _place: ()
        self._on_lost: Callable[[int, str], None] = lambda _place, _text: None
        self.asked: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.told: queue.SimpleQueue[tuple[int, bytes]] = queue.SimpleQueue()
        self._inbox: Mapping[int, queue.SimpleQueue[Frame]] = {place: queue.SimpleQueue() for place in self._channels}
        for place in self._channels:
            threading.Thread(target=self._listen, args=(place,), daemon=True, name=f"peer-{place}").start()
        threading.Thread(target=self._watch, daemon=True, name="peers").start()

    @property
    def is_chief(self) -> bool:
        """Whether this process decides and writes."""
        return self.cluster.is_chief

    @property
    def ended(self) -> bool:
        """Whether one of the processes could not go on: nobody listens any more."""
        return self._ended.is_set()

    def gather(self, tag: str, mine: bytes) -> list[bytes]:
        """What every process gives here, in their order, on all of them; nothing for one that the run goes on without.

        ``tag`` names the place in the program.
        """
        if not self.is_chief:
            self._send(0, Frame(Kind.PART, mine, tag))
            whole = self._inbox[0].get()
            if whole.tag != tag:
                self.fail(f"it is at '{tag}' while the chief is at '{whole.tag}'", 1)
            return unpack_parts(whole.payload)
        parts = [mine]
        for place in sorted(self._inbox):
            part = self._inbox[place].get() if place in self._channels else Frame(Kind.LOST)
            if part.tag != tag and part.kind is not Kind.LOST:
                self.fail(f"it is at '{tag}' while {self.cluster.name(place)} is at '{part.tag}'", 1)
            parts.append(part.payload)
        packed = pack_parts(parts)
        for place in list(self._channels):
            self._send(place, Frame(Kind.WHOLE, packed, tag))
        return parts

    def any(self, tag: str, mine: bool) -> bool:
        """Whether it is so for any of the processes."""
        return b"1" in self.gather(tag, b"1" if mine else b"0")

    def chiefs(self, tag: str, mine: int) -> int:
        """The chief's number, on all processes."""
        return int(self.gather(tag, str(mine).encode() if self.is_chief else b"")[0])

    def share(self, tag: str, payload: bytes) -> bytes:
        """The chief's bytes, on all processes; what the others give is left out."""
        return self.gather(tag, payload if self.is_chief else b"")[0]

    @property
    def own_host(self) -> str:
        """The address of this host, as the others may reach it: the one at which it speaks with the chief."""
        if self.is_chief:
            return split_address(self.coordinator, "the coordinator")[0]
        own: str = self._channels[0].socket.getsockname()[0]
        return own

    def ask(self, process: int, message: bytes) -> None:
        """Put a message of the chief into the ``asked`` of a process; at any time, by any thread."""
        if process == self.cluster.process:
            self.asked.put(message)
        else:
            self._send(process, Frame(Kind.MAIL, message))

    def tell(self, message: bytes) -> None:
        """Put a message into the ``told`` of the chief, with this process' number; at any time, by any thread."""
        if self.is_chief:
            self.told.put((self.cluster.process, message))
        else:
            self._send(0, Frame(Kind.MAIL, message))

    def pass_on(self, text: str, code: int, all_end: bool = True) -> None:
        """End for a reason that was found by other means, such as the watch within a group; the others, if all do.

        Whoever left the group may have been told by the chief that all end, which then reaches us in a moment as well:
        the chief's reason is the first one, and counts.
        """
        told = json.dumps({"reason": text, "code": code, "process": self.cluster.process}).encode()
        if code != REQUEUE:
            self._leave(Frame(Kind.FAILED, told), text, code)
            return
        self._ended.wait(BEAT_S)
        why = text.removesuffix(_AGAIN)
        self._leave(Frame(Kind.LOST, why.encode()), why + (_AGAIN if all_end else _WITHOUT), code)

    def go_on_without(self, companions: Callable[[int], Collection[int]], on_lost: Callable[[int, str], None]) -> None:
        """As chief, from here on: a process that is lost takes with it only its companions, itself among them.

        Where it has none, all processes end as before. ``on_lost`` is told once for all of them, by any thread.
        """
        self._on_lost = on_lost
        self._companions = companions

    def let_go(self, place: int, text: str) -> bool:
        """End a process and its companions for this reason, and go on without them; False if all must go on or end."""
        leaving = self._companions(place)
        if not leaving:
            return False
        with self._parting:
            if place not in self._channels:
                return True  # it is known
            gone = {one: channel for one, channel in self._channels.items() if one in leaving}
            self._gone += gone.values()
            self._channels = {one: channel for one, channel in self._channels.items() if one not in leaving}
        for one, channel in gone.items():
            with contextlib.suppress(OSError):  # this is the one
                channel.send(Frame(Kind.LOST, (text + _WITHOUT).encode()), wait=False)
            channel.hang_up()
            self._inbox[one].put(Frame(Kind.LOST))  # whoever waits for it waits no longer
        self._on_lost(place, text)
        return True

    def close(self) -> None:
        """Part from the others: from here on nobody is missed."""
        if self._closing.is_set():
            return
        if self.is_chief:
            for place in sorted(self._channels):
                self._inbox[place].get()
            self._closing.set()
            for place in list(self._channels):
                self._send(place, Frame(Kind.WHOLE, pack_parts([]), _BYE))
        else:
            self._send(0, Frame(Kind.PART, b"", _BYE))
            self._inbox[0].get()
            self._closing.set()
        for channel in (*self._channels.values(), *self._gone):
            channel.close()

    def await_loss(self) -> None:
        """Wait as long as it takes to notice that another process is gone, which ends this one."""
        time.sleep(self._lost_after_s + 2 * BEAT_S)

    def fail(self, reason: str, code: int = REQUEUE) -> None:
        """End all processes, because this one cannot go on; 75 where the same command may."""
        told = json.dumps({"reason": reason, "code": code, "process": self.cluster.process}).encode()
        self._leave(Frame(Kind.FAILED, told), "" if code == 2 else f"This process cannot go on: {reason}", code)

    # --- watching --------------------------------------------------------------------------------------------

    def _send(self, place: int, frame: Frame) -> None:
        channel = self._channels.get(place)
        if channel is None:
            return  # the run goes on without it
        try:
            channel.send(frame)
        except OSError:
            self._lose(place, "closed its connection: it has ended or was killed")

    def _listen(self, place: int) -> None:
        channel = self._channels[place]
        while True:
            try:
                frame = channel.receive()
            except (EOFError, OSError, ValueError):
                self._lose(place, "closed its connection: it has ended or was killed")
                return
            if frame.kind is Kind.WHOLE and frame.tag == _BYE:
                self._closing.set()  # here, before the chief's connection is seen to close
            if frame.kind in (Kind.PART, Kind.WHOLE):
                self._inbox[place].put(frame)
            elif frame.kind is Kind.MAIL and self.is_chief:
                self.told.put((place, frame.payload))
            elif frame.kind is Kind.MAIL:
                self.asked.put(frame.payload)
            elif frame.kind is Kind.LOST:
                text = frame.payload.decode(errors="replace")
                if not self.let_go(place, text):
                    self._leave(frame, text if text.endswith(_WITHOUT) else text + _AGAIN, REQUEUE)
            elif frame.kind is Kind.FAILED:
                self._hear_failure(place, frame)

    def _hear_failure(self, place: int, frame: Frame) -> None:
        told = json.loads(frame.payload)
        who, code = self.cluster.name(int(told["process"])), int(told["code"])
        text = f"{who} cannot go on: {told['reason']}"
        if code != REQUEUE or not self.let_go(place, text):
            self._leave(frame, f"Error: {text}", code)

    def _watch(self) -> None:
        """Give signs of life, and notice who gives none."""
        woke = time.monotonic()
        while not self._closing.wait(BEAT_S):
            late, woke = time.monotonic() - woke - BEAT_S, time.monotonic()
            for place, channel in list(self._channels.items()):
                try:
                    channel.send(Frame(Kind.BEAT), wait=False)
                except OSError:
                    continue  # the listener says it
                silent_s = time.monotonic() - channel.heard_at
                # whoever was stopped itself has heard nobody: what came meanwhile is read first
                if silent_s > self._lost_after_s and late < BEAT_S:
                    self._lose(place, f"was not heard of for {silent_s:.0f} s: it is stopped or cannot be reached")

    def _lose(self, place: int, why: str) -> None:
        text = f"{self.cluster.name(place)} {why}."
        if not self._closing.is_set() and not self.let_go(place, text):
            self._leave(Frame(Kind.LOST, text.encode()), text + _AGAIN, REQUEUE, but=place)

    def _leave(self, frame: Frame, text: str, code: int, but: int | None = None) -> None:
        """Pass it on and end; only the first reason counts."""
        if self._closing.is_set() or not self._ending.acquire(blocking=False):
            return
        self._ended.set()
        for place, channel in self._channels.items():
            if place != but:
                try:
                    channel.send(frame, wait=False)
                except OSError:
                    continue
        if text:  # otherwise its own words say it
            self._end(text, code)


def connect(cluster: Cluster, facts: Facts) -> Peers:
    """The other processes, once all are there and have the same facts.

    Raises:
        RunError: one is missing, or was started differently.
    """
    meet = host_meeting if cluster.is_chief else join_meeting
    return Peers(cluster, meet(cluster, facts))
