"""What was worked out from measurements once and is asked for again: kept with the records, a bounded number."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

MOST = 64  # about a megabyte each at the size of the published workloads

Value = TypeVar("Value")


class KeptFrames:
    """Values by key, the latest used ``most`` of them; shared by every selection of the same records."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._values: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value kept for the key, or the one made now.

        >>> kept = KeptFrames()
        >>> kept.get("a", lambda: 1), kept.get("a", lambda: 2)
        (1, 1)
        """
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
                found: Value = self._values[key]
                return found
        made = make()
        with self._lock:
            self._values[key] = made
            if len(self._values) > self._most:
                self._values.popitem(last=False)
        return made
