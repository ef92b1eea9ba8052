"""A worker of SLURM as the driver knows it: its mailboxes, and what its scheduler says of it."""

import contextlib
import shutil
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from batchscale.workers.codec import encode_instruction
from batchscale.workers.handle import WorkerHandle
from batchscale.workers.messages import Instruction
from batchscale.workers.slurm.commands import TaskKey
from batchscale.workers.slurm.letters import Arrived, Letter, decode_letter
from batchscale.workers.slurm.mailbox import LetterReader, LetterWriter, pause_s


@final
@dataclass(eq=False)
class SlurmWorker(WorkerHandle):
    """One worker process. ``arrived`` is None until its first letter came."""

    folder: Path
    found_at: float = field(default_factory=time.monotonic)
    arrived: Arrived | None = None
    leaving: str = ""
    cancelled: bool = False

    def __post_init__(self) -> None:
        self.heard_at = self.found_at
        self._incoming = LetterReader(self.folder / "out")
        self._outgoing = LetterWriter(self.folder / "in")
        self._unsent: deque[bytes] = deque()
        self._look_at = 0.0

    @property
    def key(self) -> TaskKey | None:
        """Which task of SLURM it is."""
        return None if self.arrived is None else TaskKey(self.arrived.job, self.arrived.place)

    @property
    def restarts(self) -> int:
        """How often that task was started before."""
        return 0 if self.arrived is None else self.arrived.restarts

    @property
    def takes_jobs(self) -> bool:
        """Whether it may be given a job."""
        return self.ready and not self.draining and not self.leaving and not self.cancelled

    def tell(self, message: Instruction) -> None:
        """Send an instruction; what cannot be written now is written later, in order."""
        self._unsent.append(encode_instruction(message))
        self.flush()

    def flush(self) -> None:
        """Write what could not be written before. A folder that is gone takes nothing."""
        with contextlib.suppress(OSError):
            while self._unsent:
                self._outgoing.write(self._unsent[0])
                self._unsent.popleft()

    def letters(self, at_once: bool = False) -> Iterator[Letter]:
        """What it has said since the last look; looks less often while it says nothing.

        Raises:
            RunError: something that is no letter.
        """
        now = time.monotonic()
        if now < self._look_at and not at_once:
            return
        try:
            found = self._incoming.read()
        except OSError:
            found = []  # whether it is gone is for SLURM to say
        if found:
            self.heard_at = now
        self._look_at = now + pause_s(now - self.heard_at)
        for data in found:
            yield decode_letter(data)

    def remove(self) -> None:
        """Take its folder away: a process that should still live leaves when it looks there."""
        shutil.rmtree(self.folder, ignore_errors=True)
