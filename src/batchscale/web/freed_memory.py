"""Freed memory, given back to the system.

Records that are read again and again leave holes of all sizes, in the heaps of several threads; the C library keeps
them. A server that watches a run for days would hold tens of megabytes that it does not use.
"""

import ctypes
import functools
import time
from collections.abc import Callable

AT_MOST_EVERY_S = 20.0


class FreedMemory:
    """Gives back what is free, now and then."""

    def __init__(self) -> None:
        self._given_at = float("-inf")

    def give_back(self) -> bool:
        """Give back what is free, unless that was done lately; tells whether it was tried."""
        trim, now = _trim(), time.monotonic()
        if trim is None or now - self._given_at < AT_MOST_EVERY_S:
            return False
        self._given_at = now
        trim(0)
        return True


@functools.cache
def _trim() -> Callable[[int], int] | None:
    """The C library's own function for it; None where it has none (musl, macOS)."""
    found: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return found
