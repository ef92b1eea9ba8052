"""A worker's line to the driver through the run's folder: letters out, instructions in, an eye on the driver's pulse.

A worker whose driver has gone leaves within a stated time. Signals of SLURM wake the line at once, also while the main
thread is deep in a computation.
"""

import json
import select
import signal
import socket
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from batchscale.errors import RunError
from batchscale.machine import DISK_FULL
from batchscale.workers.codec import decode_instruction
from batchscale.workers.messages import Begin, Drain, Instruction, Leave, Reply
from batchscale.workers.runner import TRAINER_ENGINE
from batchscale.workers.slurm.letters import Alive, Departure, Leaving, Left, Letter, encode_letter
from batchscale.workers.slurm.mailbox import MOST_LOOK_S, LetterReader, LetterWriter, pause_s
from batchscale.workers.slurm.pulse import PulseWatch

DEPARTURES = {signal.SIGUSR1: Departure.TIME_LIMIT, signal.SIGTERM: Departure.CANCELLED}


@dataclass(frozen=True)
class Rhythm:
    """How often driver and workers give a sign of life, and after how long without one they do something about it.

    A worker leaves ``leave_s`` after the driver's last sign; the driver has a worker cancelled after ``silent_s``.
    """

    beat_s: float = 5.0
    leave_s: float = 60.0
    silent_s: float = 180.0


class FolderLine:
    """The line of the worker whose folder this is."""

    def __init__(self, folder: Path, pulse: Path, rhythm: Rhythm, environment: Mapping[str, str]) -> None:
        self._incoming = LetterReader(folder / "in")
        self._outgoing = LetterWriter(folder / "out")
        self._pulse = PulseWatch(pulse, rhythm.leave_s)
        self._rhythm = rhythm
        self._environment = environment
        self._letters: deque[Instruction] = deque()
        self._heard_at = self._alive_at = self._seen_at = time.monotonic()
        self.departure: Departure | None = None
        self.retired = False
        self._said_all = False
        self._signals, wake = socket.socketpair()
        self._signals.setblocking(False)
        wake.setblocking(False)
        self._wake = wake  # kept open for as long as signals come
        for number in DEPARTURES:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(wake.fileno())

    def recv(self) -> Instruction:
        """The next instruction.

        Raises:
            EOFError: the driver has gone.
        """
        while not self._letters:
            self._sleep()
            self._look()
            self._live()
        message = self._letters.popleft()
        self.retired = isinstance(message, Drain)
        return message

    def send(self, reply: Reply) -> None:
        """Tell the driver."""
        self.post(reply)

    def post(self, letter: Letter) -> None:
        """Write a letter; on a full disk wait until there is room, as long as there is a driver.

        Raises:
            OSError: it cannot be written, or the driver has gone.
        """
        data = encode_letter(letter)
        while True:
            try:
                return self._outgoing.write(data)
            except OSError as error:
                if error.errno not in DISK_FULL or not self._pulse.is_alive():
                    raise
                time.sleep(MOST_LOOK_S)

    def say_goodbye(self) -> None:
        """Write the last letter: from now on this process may end at any moment."""
        self.post(Left())
        self._said_all = True

    def _sleep(self) -> None:
        silent_s = time.monotonic() - self._heard_at
        ready, _, _ = select.select([self._signals], [], [], pause_s(silent_s))
        if ready:
            for number in self._signals.recv(100):
                self._leave(DEPARTURES.get(signal.Signals(number)))

    def _leave(self, why: Departure | None) -> None:
        if self._said_all:
            raise EOFError
        if why is not None and self.departure is None:
            self.departure = why
            self._letters.append(Leave())
            self.post(Leaving(why))

    def _look(self) -> None:
        try:
            found = self._incoming.read()
        except FileNotFoundError:
            raise EOFError from None  # the driver has closed, or given this worker up
        except OSError:
            found = []  # the pulse decides
        if found:
            self._heard_at = time.monotonic()
        try:
            self._letters.extend(self._unpack(decode_instruction(data)) for data in found)
        except RunError as error:
            raise EOFError(str(error)) from None

    def _unpack(self, message: Instruction) -> Instruction:
        """A trainer's scripts run in the environment that SLURM gave this job."""
        if not isinstance(message, Begin) or message.setup.engine != TRAINER_ENGINE:
            return message
        options = {**message.setup.options, "environment": json.dumps(dict(self._environment))}
        return replace(message, setup=replace(message.setup, options=options))

    def _live(self) -> None:
        now = time.monotonic()
        if now - self._seen_at >= min(1.0, self._rhythm.beat_s):
            self._seen_at = now
            if not self._pulse.is_alive():
                raise EOFError
        if now - self._alive_at >= self._rhythm.beat_s:
            self._alive_at = now
            self.post(Alive())
