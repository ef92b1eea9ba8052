"""What every source of an import is: one stream of files with positions to resume at."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any

from batchscale.records.archive.members import Member


class Source(ABC):
    """A source of record files.

    ``facts`` go into the table's manifest. ``has_root`` says whether one top folder may hold everything.
    """

    facts: dict[str, Any]
    has_root: bool

    @abstractmethod
    def fingerprint(self, position: int) -> dict[str, Any]:
        """What changes when the source before a position does: an import resumes there only if it is equal.

        Positions asked for grow. It is asked for before `entries` from there on, or behind them.
        """

    @abstractmethod
    def entries(self, position: int) -> Iterator[Member]:
        """Every file from a position on that an earlier entry named; 0 is the start."""

    @abstractmethod
    def fraction(self) -> float:
        """About how much of the source was read, from 0 to 1."""
