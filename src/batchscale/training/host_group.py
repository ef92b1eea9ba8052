"""The hosts that train a trial together, as the engine sees them.

A `SingleHost` decides alone. In a cluster the answers come from the other processes, and only the chief stores states:
the others receive what it read (`state_store.SharedStateStore`).
"""

from typing import Protocol, final


class HostGroup(Protocol):
    """All processes call the same methods in the same order with the same tags; all get the same result."""

    @property
    def is_chief(self) -> bool:
        """True if this process writes."""

    def any(self, tag: str, mine: bool) -> bool:
        """Return True if any process passed True."""

    def chiefs(self, tag: str, mine: int) -> int:
        """Return the chief's number."""

    def share(self, tag: str, payload: bytes) -> bytes:
        """Return the chief's bytes."""


@final
class SingleHost:
    """A process that trains alone."""

    is_chief = True

    def any(self, tag: str, mine: bool) -> bool:
        """Return its own value."""
        del tag
        return mine

    def chiefs(self, tag: str, mine: int) -> int:
        """Return its own number."""
        del tag
        return mine

    def share(self, tag: str, payload: bytes) -> bytes:
        """Return its own bytes."""
        del tag
        return payload
