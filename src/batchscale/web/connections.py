"""Open connections: a limited number, of which those of strangers end first.

A connection belongs to a stranger until a request on it carried a session or the token. Sockets that send nothing and
requests that never end are cheap to open, so the oldest of them makes room for a new one, and nobody else is refused.
"""

from typing import Protocol

MAX_CONNECTIONS = 400
MAX_OF_STRANGER = 100
"""The most connections of one address without a session."""


class ClientConnection(Protocol):
    """One connection; ``is_busy`` is True while a request on it is handled."""

    @property
    def address(self) -> str:
        """The address of the visitor."""

    @property
    def is_signed_in(self) -> bool:
        """True if its last request carried a session or the token."""

    @property
    def is_busy(self) -> bool:
        """True while a request is handled."""

    def evict(self) -> None:
        """Close it at once."""


class Connections:
    """The open connections, oldest first."""

    def __init__(self, most: int = MAX_CONNECTIONS, most_of_stranger: int = MAX_OF_STRANGER) -> None:
        self._most, self._most_of_stranger = most, most_of_stranger
        self._open: dict[ClientConnection, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: ClientConnection) -> None:
        """Add a new connection, and evict another if there are too many."""
        others = list(self._open)
        strangers = [item for item in others if item.address == connection.address and not item.is_signed_in]
        self._open[connection] = None
        if len(strangers) >= self._most_of_stranger:
            self._evict(strangers, connection)
        elif len(others) >= self._most:
            self._evict(others, connection)

    def remove(self, connection: ClientConnection) -> None:
        """Remove a connection that has ended."""
        self._open.pop(connection, None)

    def _evict(self, others: list[ClientConnection], new: ClientConnection) -> None:
        """Evict the oldest of the least important: idle strangers, busy strangers, idle sessions; else the new one."""
        victim = min(others, key=lambda item: (item.is_signed_in, item.is_busy))
        if victim.is_signed_in and victim.is_busy:
            victim = new
        self.remove(victim)
        victim.evict()
