"""How often something may be done: buckets that fill with time."""

import threading
import time
from collections.abc import Callable


class Rate:
    """At most ``per_minute`` of something for each key, in bursts of at most as many."""

    def __init__(self, per_minute: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_minute = per_minute
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def take(self, key: str) -> bool:
        """Whether one more is allowed now; it is counted if so."""
        with self._lock:
            now = self._clock()
            left, since = self._left.get(key, (float(self._per_minute), now))
            left = min(self._per_minute, left + (now - since) * self._per_minute / 60)
            if len(self._left) > 10_000:
                self._left.clear()  # keys are few by design; a flood of them must not fill the memory
            self._left[key] = (left - 1 if left >= 1 else left, now)
            return left >= 1
