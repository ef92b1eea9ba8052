"""Records of processes: what a server started, and which process it became.

The server writes a record before it starts a process. The process adds its number and start time before anything else,
so a server may be killed at any moment and the next one recognises the process. Number and start time together never
name another process; a number alone may be reused.
"""

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

from batchscale.records.durable import replace_atomically

STARTING_S = 10.0
"""A record without a process counts as a start for so long; a process registers within a fraction of it."""


@dataclass(frozen=True)
class ProcessRecord:
    """The identity of a process; ``pid`` is None until it has registered, ``noted_at`` is the time of its start."""

    pid: int | None
    began: str
    noted_at: float

    @property
    def is_alive(self) -> bool:
        """True if the process is running or may be about to start."""
        if self.pid is None:
            return 0 <= time.time() - self.noted_at < STARTING_S
        return bool(process_start(self.pid) == self.began)


@dataclass(frozen=True)
class StartedProcess:
    """A process that was started here: its kind, the details it was started with, and its record."""

    details: dict[str, Any]
    record: ProcessRecord

    @property
    def kind(self) -> str:
        """The kind of work, such as "run" or "train"."""
        return str(self.details.get("kind", "run"))


def process_start(pid: int) -> str:
    """Return the boot of the machine and the clock tick at which a live process began; empty if there is none.

    The time of day would not do: it is computed from the time of the boot, which moves when clocks are set.
    """
    try:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return ""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        after_name = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return f"{boot} {int(after_name[19])}"
    except (OSError, psutil.Error, ValueError, IndexError):
        return ""


def write_record(file: Path, details: dict[str, Any]) -> None:
    """Write the record of a process that is about to be started."""
    replace_atomically(file, json.dumps({**details, "claim": asdict(ProcessRecord(None, "", time.time()))}))


def register_process(file: Path) -> None:
    """Add number and start time of this process to its record."""
    details = json.loads(file.read_bytes())
    pid = os.getpid()
    replace_atomically(
        file, json.dumps({**details, "claim": {**details["claim"], "pid": pid, "began": process_start(pid)}})
    )


def read_record(file: Path) -> StartedProcess | None:
    """Return the process of a record; None if there is none, or the file is damaged."""
    try:
        details = json.loads(file.read_bytes())
        record = ProcessRecord(**details.pop("claim"))
        return StartedProcess(details, record)
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
