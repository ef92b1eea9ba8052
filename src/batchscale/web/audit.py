"""The audit log: one JSON object on a line for every action and every refusal, in a file only its owner can read."""

import contextlib
import json
import os
import threading
import time
from pathlib import Path

from batchscale.errors import one_line

LARGEST_BYTES = 10 * 2**20


class AuditLog:
    """Appends to ``audit.jsonl``; a full file becomes ``audit.1.jsonl``. A disk that refuses is no reason to stop."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "audit.jsonl"
        self._lock = threading.Lock()

    def add(self, who: str, action: str, outcome: str, detail: str = "") -> None:
        """One line; names from outside become printable text."""
        entry = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "who": one_line(who, 60),
            "action": one_line(action, 120),
            "outcome": one_line(outcome, 300),
            "detail": one_line(detail, 300),
        }
        with self._lock, contextlib.suppress(OSError):
            if self.path.exists() and self.path.stat().st_size > LARGEST_BYTES:
                self.path.replace(self.path.with_name("audit.1.jsonl"))
            handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(handle, "a") as file:
                file.write(json.dumps(entry) + "\n")
