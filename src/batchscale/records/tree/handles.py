"""How many journals of this process may stay open: a system gives out file handles by number."""

import resource
import threading

SHARE = 0.5
"""The share of this process's file handles that journals may keep; the rest is for whatever else is opened."""


class Handles:
    """A number of handles that all studies share. Any thread may take one and give it back."""

    def __init__(self, limit: int | None = None) -> None:
        """Up to ``limit`` handles; without one, a share of what the system allows at the moment."""
        self._limit = limit
        self._taken = 0
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Take one; False if none is left."""
        limit = _system_limit() if self._limit is None else self._limit
        with self._lock:
            if self._taken >= limit:
                return False
            self._taken += 1
            return True

    def give_back(self) -> None:
        """Give one back."""
        with self._lock:
            self._taken -= 1


def _system_limit() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 2**31 if soft == resource.RLIM_INFINITY else int(SHARE * soft)


HANDLES = Handles()
"""The handles of this process."""
