"""The driver's handle of a worker of SLURM: its channels, and its task."""

import contextlib
import shutil
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from batchscale.workers.handle import WorkerHandle
from batchscale.workers.messages import Instruction, encode_instruction
from batchscale.workers.slurm.channel import (
    ChannelReader,
    ChannelWriter,
    Registered,
    WorkerMessage,
    decode_message,
    poll_pause_s,
)
from batchscale.workers.slurm.client import TaskKey


@final
@dataclass(eq=False)
class SlurmWorker(WorkerHandle):
    """One worker process. ``registered`` is None until its first message came."""

    folder: Path
    found_at: float = field(default_factory=time.monotonic)
    registered: Registered | None = None
    leaving: str = ""
    cancelled: bool = False

    def __post_init__(self) -> None:
        self.received_at = self.found_at
        self._incoming = ChannelReader(self.folder / "out")
        self._outgoing = ChannelWriter(self.folder / "in")
        self._unsent: deque[bytes] = deque()
        self._poll_at = 0.0

    @property
    def key(self) -> TaskKey | None:
        """Its task of SLURM."""
        return None if self.registered is None else TaskKey(self.registered.job, self.registered.place)

    @property
    def restarts(self) -> int:
        """The number of earlier starts of the task."""
        return 0 if self.registered is None else self.registered.restarts

    @property
    def takes_jobs(self) -> bool:
        """True if a job may be submitted to it."""
        return self.ready and not self.draining and not self.leaving and not self.cancelled

    def send(self, message: Instruction) -> None:
        """Send an instruction; what cannot be written now is written later, in order."""
        self._unsent.append(encode_instruction(message))
        self.flush()

    def flush(self) -> None:
        """Write what could not be written before; nothing if the folder is gone."""
        with contextlib.suppress(OSError):
            while self._unsent:
                self._outgoing.write(self._unsent[0])
                self._unsent.popleft()

    def receive(self, at_once: bool = False) -> Iterator[WorkerMessage]:
        """Yield the messages since the last call; polls less often while there are none.

        Raises:
            RunError: something that is no message of a worker.
        """
        now = time.monotonic()
        if now < self._poll_at and not at_once:
            return
        try:
            lines = self._incoming.read()
        except OSError:
            lines = []  # SLURM reports whether it is gone
        if lines:
            self.received_at = now
        self._poll_at = now + poll_pause_s(now - self.received_at)
        for line in lines:
            yield decode_message(line)

    def remove(self) -> None:
        """Remove its folder: a process that should still live leaves when it polls there."""
        shutil.rmtree(self.folder, ignore_errors=True)
