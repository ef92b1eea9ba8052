"""Processes that say themselves who they are, so that no moment is left in which a server could die and not know them.

The server notes what it is about to start in a file of its state folder; the process that is started writes its own
number and start time into it before it does anything else. A number and a start time together are never another's.
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
"""So long a note without a process counts as a start: a process writes itself down within a fraction of it."""


@dataclass(frozen=True)
class Claim:
    """Who a started process is: ``pid`` is None until it says so, ``noted_at`` when a server was about to start it."""

    pid: int | None
    began: str
    noted_at: float

    @property
    def is_alive(self) -> bool:
        """Whether the process lives, or may be just about to."""
        if self.pid is None:
            return 0 <= time.time() - self.noted_at < STARTING_S
        return bool(start_of(self.pid) == self.began)


def note(file: Path, facts: dict[str, Any]) -> None:
    """Write down what is about to be started."""
    _write(file, {**facts, "claim": asdict(Claim(None, "", time.time()))})


def claim(file: Path) -> None:
    """Write down that it is this process."""
    facts = json.loads(file.read_bytes())
    number = os.getpid()
    _write(file, {**facts, "claim": {**facts["claim"], "pid": number, "began": start_of(number)}})


def read_claimed(file: Path) -> tuple[dict[str, Any], Claim] | None:
    """What was noted, and whose it is; None where nothing was."""
    try:
        facts = json.loads(file.read_bytes())
        return facts, Claim(**facts.pop("claim"))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def start_of(pid: int) -> str:
    """When a living process began: the boot of the machine and the tick of its clock; empty if there is none.

    The time of day would not do: it is worked out anew from the boot's, which moves when clocks are set.
    """
    try:
        if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
            return ""
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        after_name = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return f"{boot} {int(after_name[19])}"
    except (OSError, psutil.Error, ValueError, IndexError):
        return ""


def _write(file: Path, facts: dict[str, Any]) -> None:
    replace_atomically(file, json.dumps(facts))
