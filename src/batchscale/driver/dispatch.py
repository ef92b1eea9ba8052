"""Which worker trains what next: cheap information first, states where they are, few compilations.

Knows what workers hold; decides nothing about results.
"""

import math
from bisect import bisect_right
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from batchscale.protocol.search_state import Need
from batchscale.protocol.study_run import StudyRun

JOB_S = 0.5
"""A job is made of enough trials to take about this long, so that handing it over costs nothing beside it."""

SLAB_S = 10.0
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
class Choice:
    """What a worker should train next."""

    run: StudyRun
    needs: tuple[Need, ...]


@dataclass
class Dispatch:
    """Chooses jobs. ``holders`` says which worker has a trial's state, by batch size and trial id."""

    runs: Sequence[StudyRun]
    paces: dict[int, Pace] = field(default_factory=dict)
    holders: dict[tuple[int, int], int] = field(default_factory=dict)
    openers: dict[int, set[int]] = field(default_factory=dict)
    alone: set[tuple[int, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        for run in self.runs:
            self.paces.setdefault(run.study.batch_size, Pace())
            self.openers.setdefault(run.study.batch_size, set())

    def choose(self, worker: int, workers: int) -> Choice | None:
        """The worker's next job: of its own studies and new ones that with the least time spent, else of another's."""
        waiting = [run for run in self.runs if not run.done and run.ready()]
        waiting.sort(key=lambda run: self.paces[run.study.batch_size].seconds)
        own = [run for run in waiting if self._is_own(run, worker)]
        foreign = [run for run in waiting if not self._is_own(run, worker)]
        for run in own + foreign:
            if run.facts.population is None and self.openers[run.study.batch_size] - {worker}:
                continue  # whoever opened it first settles how many are trained together
            needs = self._own_needs(run, worker) or self._stolen_needs(run, worker)
            if needs:
                return Choice(run, self._cut(run, needs, workers))
        return None

    def _is_own(self, run: StudyRun, worker: int) -> bool:
        openers = self.openers[run.study.batch_size]
        return not openers or worker in openers

    def _holder(self, run: StudyRun, need: Need) -> int | None:
        if not self.holders or run.state.step_of(need.point) < 0:
            return None
        trial_id = run.facts.ledger.trial_id(run.search, need.point)
        return None if trial_id is None else self.holders.get((run.study.batch_size, trial_id))

    def _own_needs(self, run: StudyRun, worker: int) -> list[Need]:
        return [need for need in run.ready() if self._holder(run, need) in (None, worker)]

    def _stolen_needs(self, run: StudyRun, worker: int) -> list[Need]:
        """A trial that another worker holds, if that one has others to do: training it anew beats standing idle."""
        held = [need for need in run.ready() if self._holder(run, need) not in (None, worker)]
        return [min(held, key=lambda need: run.state.step_of(need.point))] if len(held) >= 2 else []

    def _cut(self, run: StudyRun, needs: list[Need], workers: int) -> tuple[Need, ...]:
        """As many of the needs as make a job, each no further than a slab."""
        pace = self.paces[run.study.batch_size]
        first = [n for n in needs if self._is_alone(run, n)][:1] if self.alone else []
        if first:
            return (self._bound(run, first[0], pace),)
        share = max(pace.population, math.ceil(len(needs) / max(1, workers)))
        if pace.step_s is None:
            return tuple(self._bound(run, need, pace) for need in needs[: min(FIRST_TRIALS, share)])
        chosen: list[Need] = []
        seconds = 0.0
        for whole in needs[:share]:
            if seconds >= JOB_S and len(chosen) % pace.population == 0:
                break
            need = self._bound(run, whole, pace)
            chosen.append(need)
            seconds += pace.step_s * (need.until - max(run.state.step_of(need.point), 0))
        return tuple(chosen)

    def _is_alone(self, run: StudyRun, need: Need) -> bool:
        trial_id = run.facts.ledger.trial_id(run.search, need.point)
        return trial_id is not None and (run.study.batch_size, trial_id) in self.alone

    def _bound(self, run: StudyRun, need: Need, pace: Pace) -> Need:
        """The need as far as a slab goes, at least to the next measurement; no further while the cost is unknown."""
        steps = run.study.evaluation_steps
        step = max(run.state.step_of(need.point), 0)
        slab = 0 if pace.step_s is None else int(SLAB_S / max(pace.step_s, 1e-9))
        index = max(bisect_right(steps, step + slab) - 1, bisect_right(steps, step))
        return Need(need.point, min(need.until, steps[min(index, len(steps) - 1)]))

    def keep_workers(self, workers: Collection[int]) -> None:
        """Forget what workers held that are not there any more."""
        gone = {worker for openers in self.openers.values() for worker in openers if worker not in workers}
        if gone:
            self.holders = {key: holder for key, holder in self.holders.items() if holder not in gone}
            for openers in self.openers.values():
                openers -= gone
