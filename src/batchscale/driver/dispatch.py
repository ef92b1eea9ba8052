"""Which worker trains what next: cheap information first, states where they are, few compilations.

Knows what workers hold and what studies have cost; decides nothing about results.
"""

import math
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from batchscale.protocol.needs import Need
from batchscale.protocol.study_state import StudyState

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
    """Chooses jobs for workers, by what it is told of them. Studies are told apart by their batch size."""

    def __init__(self, states: Sequence[StudyState], stretch_s: float = STRETCH_S) -> None:
        self._states = states
        self._stretch_s = stretch_s
        self._paces = {state.study.batch_size: Pace() for state in states}
        self._openers: dict[int, set[str]] = {state.study.batch_size: set() for state in states}
        self._holders: dict[tuple[int, int], str] = {}  # which worker has a trial's state
        self._alone: set[tuple[int, int]] = set()

    # --- what happened ---------------------------------------------------------------------------------------

    def note_given(self, worker: str, batch_size: int, trial_ids: Iterable[int]) -> None:
        """A worker was given these trials: it holds their states from now on."""
        self._openers[batch_size].add(worker)
        for trial_id in trial_ids:
            self._holders[batch_size, trial_id] = worker

    def note_cost(self, batch_size: int, seconds: float, steps: int, population: int) -> None:
        """A job of a study is done: what it took."""
        self._paces[batch_size].note(seconds, steps, population)

    def note_released(self, batch_size: int, trial_ids: Iterable[int]) -> None:
        """Workers hold these trials no more."""
        for trial_id in trial_ids:
            self._holders.pop((batch_size, trial_id), None)

    def suspect(self, batch_size: int, trial_ids: Iterable[int]) -> None:
        """One of these trials made a job fail: each is trained alone until it shows that it is not to blame."""
        self._alone |= {(batch_size, trial_id) for trial_id in trial_ids}

    def trust(self, batch_size: int, trial_id: int) -> None:
        """A trial made progress: it may be trained together with others."""
        self._alone.discard((batch_size, trial_id))

    def keep_workers(self, workers: Collection[str]) -> None:
        """Forget what workers held that are not there any more."""
        gone = {worker for openers in self._openers.values() for worker in openers if worker not in workers}
        if gone:
            self._holders = {key: holder for key, holder in self._holders.items() if holder not in gone}
            for openers in self._openers.values():
                openers -= gone

    def pace(self, batch_size: int) -> Pace:
        """What a study has cost so far."""
        return self._paces[batch_size]

    # --- what next -------------------------------------------------------------------------------------------

    def choose(self, worker: str, workers: int) -> Assignment | None:
        """The worker's next job: of its own studies and new ones that with the least time spent, else of another's."""
        waiting = [state for state in self._states if not state.done and state.ready()]
        waiting.sort(key=lambda state: self._paces[state.study.batch_size].seconds)
        own = [state for state in waiting if self._is_own(state, worker)]
        foreign = [state for state in waiting if not self._is_own(state, worker)]
        for state in own + foreign:
            if state.memory.population is None and self._openers[state.study.batch_size] - {worker}:
                continue  # whoever opened it first settles how many are trained together
            needs = self._own_needs(state, worker) or self._stolen_needs(state, worker)
            if needs:
                return Assignment(state, self._cut(state, needs, workers))
        return None

    def _is_own(self, state: StudyState, worker: str) -> bool:
        openers = self._openers[state.study.batch_size]
        return not openers or worker in openers

    def _holder(self, state: StudyState, need: Need) -> str | None:
        if not self._holders or state.current.step_of(need.point) < 0:
            return None
        trial_id = state.trial_id(need.point)
        return None if trial_id is None else self._holders.get((state.study.batch_size, trial_id))

    def _own_needs(self, state: StudyState, worker: str) -> list[Need]:
        return [need for need in state.ready() if self._holder(state, need) in (None, worker)]

    def _stolen_needs(self, state: StudyState, worker: str) -> list[Need]:
        """A trial that another worker holds, if that one has others to do: training it anew beats standing idle."""
        held = [need for need in state.ready() if self._holder(state, need) not in (None, worker)]
        return [min(held, key=lambda need: state.current.step_of(need.point))] if len(held) >= 2 else []

    def _cut(self, state: StudyState, needs: list[Need], workers: int) -> tuple[Need, ...]:
        """As many of the needs as make a job, each no further than a stretch."""
        pace = self._paces[state.study.batch_size]
        first = [need for need in needs if self._is_alone(state, need)][:1] if self._alone else []
        if first:
            return (self._bound(state, first[0], pace),)
        share = max(pace.population, math.ceil(len(needs) / max(1, workers)))
        if pace.step_s is None:
            return tuple(self._bound(state, need, pace) for need in needs[: min(FIRST_TRIALS, share)])
        chosen: list[Need] = []
        seconds = 0.0
        for whole in needs[:share]:
            if seconds >= JOB_S and len(chosen) % pace.population == 0:
                break
            need = self._bound(state, whole, pace)
            chosen.append(need)
            seconds += pace.step_s * (need.until - max(state.current.step_of(need.point), 0))
        return tuple(chosen)

    def _is_alone(self, state: StudyState, need: Need) -> bool:
        trial_id = state.trial_id(need.point)
        return trial_id is not None and (state.study.batch_size, trial_id) in self._alone

    def _bound(self, state: StudyState, need: Need, pace: Pace) -> Need:
        """The need as far as a stretch goes, at least to the next measurement; no further while the cost is unknown."""
        steps = state.study.evaluation_steps
        step = max(state.current.step_of(need.point), 0)
        if pace.step_s is not None and math.isinf(self._stretch_s):
            return need
        stretch = 0 if pace.step_s is None else int(self._stretch_s / max(pace.step_s, 1e-9))
        index = max(bisect_right(steps, step + stretch) - 1, bisect_right(steps, step))
        return Need(need.point, min(need.until, steps[min(index, len(steps) - 1)]))
