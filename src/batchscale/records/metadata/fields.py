"""Typed values out of a JSON object: each is there with its kind, or absent, or an error that names its key."""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from batchscale.errors import one_line
from batchscale.records.metadata.base import MetadataError

T = TypeVar("T")

MAX_WHOLE = 2**63 - 1  # seeds use all of it


class Fields:
    """One JSON object of our facts; ``null`` counts as absent.

    ``where`` is the path of the file and the keys that lead here, for messages.
    """

    def __init__(self, data: object, where: str) -> None:
        if not isinstance(data, Mapping):
            raise MetadataError(f"{where} is an object. Found {one_line(repr(data), 80)}.", where.rpartition(".")[2])
        self._data, self._where = data, where
        self._asked: set[str] = set()

    def text(self, key: str) -> str | None:
        """A text."""
        value = self._get(key)
        if value is not None and not isinstance(value, str):
            raise self.refuse(key, "is text")
        return value

    def flag(self, key: str) -> bool | None:
        """True or false."""
        value = self._get(key)
        if value is not None and not isinstance(value, bool):
            raise self.refuse(key, "is true or false")
        return value

    def whole(self, key: str, least: int = 0) -> int | None:
        """A whole number."""
        value = self._get(key)
        if value is None:
            return None
        if type(value) is int and least <= value <= MAX_WHOLE:  # nearly always
            return value
        if not is_whole(value, least):
            raise self.refuse(key, f"is a whole number of at least {least}")
        return int(value)

    def number(self, key: str) -> float | None:
        """A finite number."""
        value = self._get(key)
        if value is None:
            return None
        if type(value) is float and math.isfinite(value):  # nearly always
            return value
        if not is_finite(value):
            raise self.refuse(key, "is a finite number")
        return float(value)

    def items(self, key: str) -> list[Any]:
        """A list; empty if absent."""
        value = self._get(key)
        if value is not None and not isinstance(value, list):
            raise self.refuse(key, "is a list")
        return value or []

    def mapping(self, key: str) -> Mapping[str, Any]:
        """An object as it is; empty if absent."""
        value = self._get(key)
        if value is not None and not isinstance(value, Mapping):
            raise self.refuse(key, "is an object")
        return value or {}

    def part(self, key: str, read: Callable[["Fields"], T]) -> T | None:
        """An object with keys of its own."""
        value = self._get(key)
        return None if value is None else read(Fields(value, f"{self._where}.{key}"))

    def parts(self, key: str, read: Callable[["Fields"], T]) -> tuple[T, ...]:
        """A list of such objects."""
        return tuple(read(Fields(item, f"{self._where}.{key}[{index}]")) for index, item in enumerate(self.items(key)))

    def rest(self) -> dict[str, Any]:
        """The keys that nobody asked for: kept, so that what is read and written again loses nothing."""
        return {key: value for key, value in self._data.items() if key not in self._asked}

    def refuse(self, key: str, rule: str) -> MetadataError:
        """The error that a key breaks this rule."""
        found = one_line(repr(self._data.get(key)), 80)
        return MetadataError(f"{self._where}.{one_line(key, 60)} {rule}. Found {found}.", key)

    def _get(self, key: str) -> Any:
        self._asked.add(key)
        return self._data.get(key)


def is_whole(value: object, least: int = 0) -> bool:
    """Whether a JSON value is a whole number of at least this."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= MAX_WHOLE


def is_finite(value: object) -> bool:
    """Whether a JSON value is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond the largest float
        return False


def without_none(**values: Any) -> dict[str, Any]:
    """The keys that say something."""
    return {key: value for key, value in values.items() if value is not None}
