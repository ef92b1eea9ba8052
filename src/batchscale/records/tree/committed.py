"""The committed trials of a study, in little memory: the numbers of each trial that a run needs at all times.

A whole record takes some thousands of bytes, and a run may have hundreds of thousands of them: a whole record is read
from the disk again.
"""

import math
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from batchscale.records.model import Status, TrialRecord

_STATUSES = tuple(Status)
_NONE = -1


@dataclass(frozen=True, slots=True)
class CommittedTrial:
    """The outcome of a committed trial; ``best`` is None where the record has none."""

    trial_id: int
    status: Status
    steps: int
    parameters: Mapping[str, float]
    reached_at: int | None
    best: float | None


class CommittedTrials(Mapping[int, TrialRecord]):
    """The trials by growing id; ``read`` reads a whole record from the disk."""

    def __init__(self, read: Callable[[int], TrialRecord]) -> None:
        self._read = read
        self._ids = array("q")
        self._statuses = array("b")
        self._steps = array("q")
        self._reached = array("q")
        self._best = array("d")
        self._parameters: dict[str, array[float]] = {}  # NaN: the trial has no such metaparameter
        self.counts: Counter[Status] = Counter()

    def __getitem__(self, trial_id: int) -> TrialRecord:
        if trial_id not in self:
            raise KeyError(trial_id)
        return self._read(trial_id)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __contains__(self, trial_id: object) -> bool:
        return isinstance(trial_id, int) and self._find(trial_id)[1]

    def put(self, record: TrialRecord) -> None:
        """Add a trial that was committed, or replace one that was committed again."""
        place, exists = self._find(record.trial_id)
        metadata = record.metadata
        reached = _NONE if metadata is None or metadata.reached_at is None else metadata.reached_at
        best = math.nan if metadata is None or metadata.best is None else metadata.best
        for name in record.parameters:
            if name not in self._parameters:
                self._parameters[name] = array("d", [math.nan]) * len(self._ids)
        columns: list[tuple[array[int] | array[float], float]] = [
            (self._ids, record.trial_id),
            (self._statuses, _STATUSES.index(record.status)),
            (self._steps, record.steps),
            (self._reached, reached),
            (self._best, best),
            *((column, record.parameters.get(name, math.nan)) for name, column in self._parameters.items()),
        ]
        if exists:
            self.counts[_STATUSES[self._statuses[place]]] -= 1
        for column, value in columns:
            if exists:
                column[place] = value  # type: ignore[call-overload]  # each column has values of its kind
            else:
                column.insert(place, value)  # type: ignore[arg-type]
        self.counts[record.status] += 1

    def trial(self, trial_id: int) -> CommittedTrial:
        """Return one trial."""
        place, exists = self._find(trial_id)
        if not exists:
            raise KeyError(trial_id)
        return self._trial(place)

    def trials(self) -> Iterator[CommittedTrial]:
        """Return all trials, by growing id."""
        return map(self._trial, range(len(self._ids)))

    def _trial(self, place: int) -> CommittedTrial:
        reached, best = self._reached[place], self._best[place]
        values = {name: column[place] for name, column in self._parameters.items()}
        return CommittedTrial(
            self._ids[place],
            _STATUSES[self._statuses[place]],
            self._steps[place],
            {name: value for name, value in values.items() if not math.isnan(value)},
            None if reached == _NONE else reached,
            None if math.isnan(best) else best,
        )

    def _find(self, trial_id: int) -> tuple[int, bool]:
        """Return the position of a trial, or the one to insert it at, and True if it exists."""
        place = bisect_left(self._ids, trial_id)
        return place, place < len(self._ids) and self._ids[place] == trial_id
