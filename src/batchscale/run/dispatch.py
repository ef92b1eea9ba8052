"""Which worker trains what next: cheap information first, states where they are, few compilations.

Knows what workers hold and what studies have cost; decides nothing about results.
"""

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, takewhile

from batchscale.study.needs import Need
from batchscale.study.study_state import StudyState

JOB_S = 0.5
"""A job is made of enough trials to take about this long, so that handing it over costs nothing beside it."""

STRETCH_S = 10.0
"""No trial trains longer than about this before its measurements come back."""

FIRST_TRIALS = 8
"""How many trials the first job of a study has, before anything is known of their cost."""


@dataclass
class Pace:
    """What a study has cost so far."""

    seconds: float = 0.0
    trial_steps: int = 0
    step_s: float | None = None
    population: int = 1

    def note(self, seconds: float, steps: int, population: int) -> None:
        """Take in a finished job."""
        self.seconds += seconds
        self.trial_steps += steps
        self.population = population
        if steps > 0:
            latest = seconds / steps
            # the first job compiles: what comes later says more
            self.step_s = latest if self.step_s is None else min(latest, 0.7 * self.step_s + 0.3 * latest)


@dataclass(frozen=True)
class Assignment:
    """What a worker should train next."""

    state: StudyState
    needs: tuple[Need, ...]


class Dispatch:
    """Chooses jobs for workers, by what it is told of them. Studies are told apart by their batch size.

    A choice looks at the studies that the worker knows, and at all others only if those have nothing for it: what it
    costs does not grow with the number of trials, studies or workers while there is work for everybody.
    """

    def __init__(self, states: Sequence[StudyState], stretch_s: float = STRETCH_S) -> None:
        self._states = {state.study.batch_size: state for state in states}
        self._places = {batch_size: place for place, batch_size in enumerate(self._states)}
        self._stretch_s = stretch_s
        self._paces = {batch_size: Pace() for batch_size in self._states}
        self._openers: dict[int, set[str]] = {batch_size: set() for batch_size in self._states}
        self._opened: dict[str, set[int]] = defaultdict(set)  # the same, by worker
        self._holders: dict[tuple[int, int], str] = {}  # which worker has a trial's state
        self._held: dict[str, set[tuple[int, int]]] = defaultdict(set)  # the same, by worker
        self._alone: dict[int, set[int]] = defaultdict(set)  # suspected trials, by study
        self._stirred = set(self._states)  # studies that were not looked at since something changed there
        self._waiting: set[int] = set()  # studies that have something to train
        self._new: set[int] = set()  # those of them that nobody opened
        self._changes = 0
        self._changed_at: dict[int, int] = {}  # the number of each study's last change, the latest last
        self._nothing_at: dict[str, int] = {}  # after which change a worker found nothing to do
        for batch_size, state in self._states.items():
            state.stirred = partial(self._stirred.add, batch_size)

    # --- what happened ---------------------------------------------------------------------------------------

    def note_given(self, worker: str, batch_size: int, trial_ids: Iterable[int]) -> None:
        """A worker was given these trials: it holds their states from now on."""
        self._openers[batch_size].add(worker)
        self._opened[worker].add(batch_size)
        self._stirred.add(batch_size)
        for trial_id in trial_ids:
            self._release((batch_size, trial_id))
            self._holders[batch_size, trial_id] = worker
            self._held[worker].add((batch_size, trial_id))
            self._states[batch_size].hold(trial_id, worker)

    def note_cost(self, batch_size: int, seconds: float, steps: int, population: int) -> None:
        """A job of a study is done: what it took."""
        self._paces[batch_size].note(seconds, steps, population)

    def note_released(self, batch_size: int, trial_ids: Iterable[int]) -> None:
        """Workers hold these trials no more."""
        for trial_id in trial_ids:
            self._release((batch_size, trial_id))

    def _release(self, key: tuple[int, int]) -> None:
        holder = self._holders.pop(key, None)
        if holder is not None:
            self._held[holder].discard(key)
            self._states[key[0]].hold(key[1], None)

    def suspect(self, batch_size: int, trial_ids: Iterable[int]) -> None:
        """One of these trials made a job fail: each is trained alone until it shows that it is not to blame."""
        self._alone[batch_size].update(trial_ids)

    def trust(self, batch_size: int, trial_id: int) -> None:
        """A trial made progress: it may be trained together with others."""
        self._alone[batch_size].discard(trial_id)

    def keep_workers(self, workers: Collection[str]) -> None:
        """Forget what workers held that are not there any more."""
        for worker in [worker for worker in self._opened if worker not in workers]:
            for key in self._held.pop(worker, set()):
                del self._holders[key]
                self._states[key[0]].hold(key[1], None)
            self._nothing_at.pop(worker, None)
            for batch_size in self._opened.pop(worker):
                self._openers[batch_size].discard(worker)
                self._stirred.add(batch_size)

    def pace(self, batch_size: int) -> Pace:
        """What a study has cost so far."""
        return self._paces[batch_size]

    # --- what next -------------------------------------------------------------------------------------------

    def choose(self, worker: str, workers: int) -> Assignment | None:
        """The worker's next job: of its own studies and new ones that with the least time spent, else of another's."""
        self._look()
        waiting = self._waiting if worker not in self._nothing_at else self._changed_since(self._nothing_at[worker])
        own = (self._new | self._opened[worker]) & waiting
        chosen = self._choose_of(own, worker, workers)
        if chosen is None and len(waiting) > len(own):
            chosen = self._choose_of(waiting - own, worker, workers)
        if chosen is None:
            self._nothing_at[worker] = self._changes
        else:
            self._nothing_at.pop(worker, None)
        return chosen

    def _look(self) -> None:
        """See which of the studies where something changed have something to train."""
        for batch_size in self._stirred:
            waits = len(self._states[batch_size].waiting.offer()) > 0
            for studies, fits in ((self._waiting, waits), (self._new, waits and not self._openers[batch_size])):
                if fits:
                    studies.add(batch_size)
                else:
                    studies.discard(batch_size)
            self._changes += 1
            self._changed_at.pop(batch_size, None)
            self._changed_at[batch_size] = self._changes
        self._stirred.clear()

    def _changed_since(self, change: int) -> set[int]:
        """The studies with something to train where something changed later: elsewhere there is still nothing."""
        later = takewhile(lambda batch_size: self._changed_at[batch_size] > change, reversed(self._changed_at))
        return self._waiting.intersection(later)

    def _choose_of(self, studies: set[int], worker: str, workers: int) -> Assignment | None:
        for batch_size in self._by_time(studies):
            state = self._states[batch_size]
            if state.memory.population is None and self._openers[batch_size] - {worker}:
                continue  # whoever opened it first settles how many are trained together
            own = state.waiting.own(worker)
            first = next(own, None) or self._stolen_need(state, worker)
            if first is not None:
                return Assignment(state, self._cut(state, chain((first,), own), workers))
        return None

    def _by_time(self, studies: set[int]) -> Iterator[int]:
        """The studies, that with the least time spent first; the others are put in order only if they are asked for."""
        if studies:
            first = min(studies, key=self._time)
            yield first
            yield from sorted(studies - {first}, key=self._time)

    def _time(self, batch_size: int) -> tuple[float, int]:
        return self._paces[batch_size].seconds, self._places[batch_size]

    def _stolen_need(self, state: StudyState, worker: str) -> Need | None:
        """A trial that another worker holds, if that one has others to do: training it anew beats standing idle."""
        held = state.waiting.held_by_others(worker)
        return min(held, key=lambda need: state.current.step_of(need.point)) if len(held) >= 2 else None

    def _cut(self, state: StudyState, needs: Iterator[Need], workers: int) -> tuple[Need, ...]:
        """As many of the needs as make a job, each no further than a stretch."""
        pace = self._paces[state.study.batch_size]
        if self._alone[state.study.batch_size]:
            listed = list(needs)
            for need in listed:
                if self._is_alone(state, need):
                    return (self._bound(state, need, pace),)
            needs = iter(listed)
        share = max(pace.population, math.ceil(len(state.waiting.offer()) / max(1, workers)))
        if pace.step_s is None:
            return tuple(self._bound(state, need, pace) for need in islice(needs, min(FIRST_TRIALS, share)))
        chosen: list[Need] = []
        seconds = 0.0
        while len(chosen) < share and (seconds < JOB_S or len(chosen) % pace.population):
            whole = next(needs, None)  # only when it is wanted: it may be far down the offer
            if whole is None:
                break
            need = self._bound(state, whole, pace)
            chosen.append(need)
            seconds += pace.step_s * (need.until - max(state.current.step_of(need.point), 0))
        return tuple(chosen)

    def _is_alone(self, state: StudyState, need: Need) -> bool:
        trial_id = state.drawn.trial_id(need.point)
        return trial_id is not None and trial_id in self._alone[state.study.batch_size]

    def _bound(self, state: StudyState, need: Need, pace: Pace) -> Need:
        """The need as far as a stretch goes, at least to the next measurement; no further while the cost is unknown."""
        steps = state.study.evaluation_steps
        step = max(state.current.step_of(need.point), 0)
        if pace.step_s is not None and math.isinf(self._stretch_s):
            return need
        stretch = 0 if pace.step_s is None else int(self._stretch_s / max(pace.step_s, 1e-9))
        index = max(bisect_right(steps, step + stretch) - 1, bisect_right(steps, step))
        return Need(need.point, min(need.until, steps[min(index, len(steps) - 1)]))
