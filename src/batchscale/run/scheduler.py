"""The scheduler of a run: which worker trains which trials next, and which trials are tried again after a failure.

Cheap information first, states where they are, few compilations. The queues of the studies decide which trials are
ready; the scheduler decides nothing about results. Studies are identified by their batch size.
"""

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice, takewhile

from batchscale.formatting import count_text
from batchscale.run.time_left import MeasuredCost
from batchscale.study.failure import Failure
from batchscale.study.study_state import StudyState
from batchscale.study.trial import TrialRequest
from batchscale.workers.runner import LossReason

JOB_S = 0.5
"""A job is made of enough trials to take about this long, so that sending it costs nothing beside it."""

STRETCH_S = 10.0
"""No trial trains longer than about this before its measurements come back."""

FIRST_TRIALS = 8
"""The number of trials in the first job of a study, before their cost is measured."""

MAX_TIME_OUTS = 2
"""So many scripts may report nothing for their whole time-out before any trial is measured; each is retried once."""

MAX_DIVERGED = 10
"""So many trials of scripts may diverge before their first measurement while none is measured."""

MAX_GIVEN_UP = 3
"""So many trials may be given up in a row, from the first one on or at the furthest step of a study."""


@dataclass
class StudyCost:
    """The training time that a study has taken so far.

    For a user's script, ``start_s`` is the time of its last start and ``steady_step_s`` that of its steps after it.
    ``recent`` is the cost of the latest jobs, for estimates of the time left, ``setup_s`` that of the first one.
    """

    seconds: float = 0.0
    trial_steps: int = 0
    step_s: float | None = None
    population: int = 1
    start_s: float = 0.0
    steady_step_s: float = 0.0
    recent: MeasuredCost | None = None
    setup_s: float | None = None

    def add_job(self, seconds: float, steps: int, population: int, evaluations: int = 0) -> None:
        """Add a finished job."""
        self.seconds += seconds
        self.trial_steps += steps
        self.population = population
        if self.setup_s is None:
            self.setup_s = seconds  # the first job loads and compiles
        elif steps > 0:
            self.recent = (self.recent or MeasuredCost()).add(seconds, steps, evaluations)
        if steps > 0:
            latest = seconds / steps
            # the first job compiles: later ones are closer to the truth
            self.step_s = latest if self.step_s is None else min(latest, 0.7 * self.step_s + 0.3 * latest)


@dataclass(frozen=True)
class Assignment:
    """The trials of one study that a worker should train next."""

    state: StudyState
    requests: tuple[TrialRequest, ...]


class Scheduler:
    """Selects jobs for workers.

    A selection considers the studies that the worker has open, and all others only if those have nothing for it: its
    cost does not grow with the number of trials, studies or workers while there is work for everybody.
    """

    def __init__(self, states: Sequence[StudyState], stretch_s: float = STRETCH_S) -> None:
        self._states = {state.study.batch_size: state for state in states}
        self._positions = {batch_size: position for position, batch_size in enumerate(self._states)}
        self._stretch_s = stretch_s
        self._costs = {batch_size: StudyCost() for batch_size in self._states}
        self._openers: dict[int, set[str]] = {batch_size: set() for batch_size in self._states}  # workers by study
        self._opened: dict[str, set[int]] = defaultdict(set)  # the same, by worker
        self._holders: dict[tuple[int, int], str] = {}  # the worker that has a trial's state
        self._held: dict[str, set[tuple[int, int]]] = defaultdict(set)  # the same, by worker
        self._isolated: dict[int, set[int]] = defaultdict(set)  # trials that must be trained alone, by study
        self._changed = set(self._states)  # studies that changed since the last refresh
        self._ready: set[int] = set()  # studies that have something to train
        self._unopened: set[int] = set()  # those of them that no worker opened
        self._num_changes = 0
        self._changed_at: dict[int, int] = {}  # the number of each study's last change, the latest last
        self._idle_since: dict[str, int] = {}  # the number of changes when a worker found nothing to do
        for batch_size, state in self._states.items():
            state.on_change = partial(self._changed.add, batch_size)

    # --- updates ---------------------------------------------------------------------------------------------

    def mark_assigned(self, worker_id: str, batch_size: int, trial_ids: Iterable[int]) -> None:
        """Note that a worker trains these trials: it holds their states from now on."""
        self._openers[batch_size].add(worker_id)
        self._opened[worker_id].add(batch_size)
        self._changed.add(batch_size)
        for trial_id in trial_ids:
            self._release((batch_size, trial_id))
            self._holders[batch_size, trial_id] = worker_id
            self._held[worker_id].add((batch_size, trial_id))
            self._states[batch_size].set_holder(trial_id, worker_id)

    def add_cost(self, batch_size: int, seconds: float, steps: int, population: int, evaluations: int = 0) -> None:
        """Add the cost of a finished job."""
        self._costs[batch_size].add_job(seconds, steps, population, evaluations)

    def set_start_cost(self, batch_size: int, start_s: float, steady_step_s: float) -> None:
        """Set the time that a script of a study takes to start, and that of a step after it."""
        self._costs[batch_size].start_s = start_s
        self._costs[batch_size].steady_step_s = steady_step_s

    def cost(self, batch_size: int) -> StudyCost:
        """Return the cost of a study so far."""
        return self._costs[batch_size]

    def release(self, batch_size: int, trial_ids: Iterable[int]) -> None:
        """Note that no worker holds these trials any more."""
        for trial_id in trial_ids:
            self._release((batch_size, trial_id))

    def _release(self, key: tuple[int, int]) -> None:
        holder = self._holders.pop(key, None)
        if holder is not None:
            self._held[holder].discard(key)
            self._states[key[0]].set_holder(key[1], None)

    def isolate(self, batch_size: int, trial_ids: Iterable[int]) -> None:
        """Train each of these trials alone, because one of them made a job fail, until it makes progress."""
        self._isolated[batch_size].update(trial_ids)

    def end_isolation(self, batch_size: int, trial_id: int) -> None:
        """Allow a trial that made progress to be trained together with others."""
        self._isolated[batch_size].discard(trial_id)

    def set_workers(self, worker_ids: Collection[str]) -> None:
        """Release everything held by workers that are not among these."""
        for worker_id in [worker_id for worker_id in self._opened if worker_id not in worker_ids]:
            for key in self._held.pop(worker_id, set()):
                del self._holders[key]
                self._states[key[0]].set_holder(key[1], None)
            self._idle_since.pop(worker_id, None)
            for batch_size in self._opened.pop(worker_id):
                self._openers[batch_size].discard(worker_id)
                self._changed.add(batch_size)

    # --- selection -------------------------------------------------------------------------------------------

    def next_assignment(self, worker_id: str, num_workers: int) -> Assignment | None:
        """Return the worker's next job: of the studies it has open and new ones the cheapest so far, else another's."""
        self._refresh()
        ready = self._ready
        if worker_id in self._idle_since:  # elsewhere there is still nothing
            ready = ready.intersection(self._changed_since(self._idle_since[worker_id]))
        preferred = (self._unopened | self._opened[worker_id]) & ready
        assignment = self._select_from(preferred, worker_id, num_workers)
        if assignment is None and len(ready) > len(preferred):
            assignment = self._select_from(ready - preferred, worker_id, num_workers)
        if assignment is None:
            self._idle_since[worker_id] = self._num_changes
        else:
            self._idle_since.pop(worker_id, None)
        return assignment

    def _refresh(self) -> None:
        """Update which of the changed studies have something to train."""
        for batch_size in self._changed:
            is_ready = len(self._states[batch_size].queue.ready()) > 0
            _set_member(self._ready, batch_size, is_ready)
            _set_member(self._unopened, batch_size, is_ready and not self._openers[batch_size])
            self._num_changes += 1
            self._changed_at.pop(batch_size, None)
            self._changed_at[batch_size] = self._num_changes
        self._changed.clear()

    def _changed_since(self, change: int) -> Iterator[int]:
        return takewhile(lambda batch_size: self._changed_at[batch_size] > change, reversed(self._changed_at))

    def _select_from(self, studies: set[int], worker_id: str, num_workers: int) -> Assignment | None:
        for batch_size in self._by_cost(studies):
            state = self._states[batch_size]
            if state.saved.population is None and self._openers[batch_size] - {worker_id}:
                continue  # the first job of a study settles how many are trained together
            requests = state.queue.for_worker(worker_id)
            first = next(requests, None) or self._steal(state, worker_id)
            if first is not None:
                return Assignment(state, self._make_job(state, chain((first,), requests), num_workers))
        return None

    def _by_cost(self, studies: set[int]) -> Iterator[int]:
        """Yield the studies, the cheapest so far first; the others are sorted only if they are asked for."""
        if studies:
            first = min(studies, key=self._cost_key)
            yield first
            yield from sorted(studies - {first}, key=self._cost_key)

    def _cost_key(self, batch_size: int) -> tuple[float, int]:
        return self._costs[batch_size].seconds, self._positions[batch_size]

    def _steal(self, state: StudyState, worker_id: str) -> TrialRequest | None:
        """Return a trial that another worker holds, if that one has others: retraining it beats standing idle.

        A user's script that waits there would have to start again here: only if training it takes longer than that.
        """
        held = state.queue.held_elsewhere(worker_id)
        if len(held) < 2:
            return None
        request = min(held, key=lambda request: state.current.step_of(request.point))
        cost, steps = self._costs[state.study.batch_size], request.until - max(state.current.step_of(request.point), 0)
        return request if steps * cost.steady_step_s >= cost.start_s else None

    def _make_job(
        self, state: StudyState, requests: Iterator[TrialRequest], num_workers: int
    ) -> tuple[TrialRequest, ...]:
        """Take as many requests as make a job, each no further than a stretch."""
        cost = self._costs[state.study.batch_size]
        if isolated := self._isolated[state.study.batch_size]:
            candidates = list(requests)
            for candidate in candidates:
                if state.sampled.trial_id(candidate.point) in isolated:
                    return (self._shorten(state, candidate, cost),)
            requests = iter(candidates)
        share = max(cost.population, math.ceil(len(state.queue.ready()) / max(1, num_workers)))
        if cost.step_s is None:
            return tuple(self._shorten(state, request, cost) for request in islice(requests, min(FIRST_TRIALS, share)))
        job: list[TrialRequest] = []
        seconds = 0.0
        while len(job) < share and (seconds < JOB_S or len(job) % cost.population):
            whole = next(requests, None)  # lazily: it may be far down the queue
            if whole is None:
                break
            request = self._shorten(state, whole, cost)
            job.append(request)
            seconds += cost.step_s * (request.until - max(state.current.step_of(request.point), 0))
        return tuple(job)

    def _shorten(self, state: StudyState, request: TrialRequest, cost: StudyCost) -> TrialRequest:
        """Limit a request to a stretch, at least to the next measurement, and to that while the cost is unknown."""
        steps = state.study.evaluation_steps
        step = max(state.current.step_of(request.point), 0)
        if cost.step_s is not None and math.isinf(self._stretch_s):
            return request
        stretch = 0 if cost.step_s is None else int(self._stretch_s / max(cost.step_s, 1e-9))
        index = max(bisect_right(steps, step + stretch) - 1, bisect_right(steps, step))
        return TrialRequest(request.point, min(request.until, steps[min(index, len(steps) - 1)]))


def _set_member(studies: set[int], batch_size: int, present: bool) -> None:
    if present:
        studies.add(batch_size)
    else:
        studies.discard(batch_size)


class RetryPolicy:
    """Failures of workers and trials, counted apart from the outcomes of trials, and when to stop trying.

    ``retries`` is how often a trial is tried again without progress in between. ``counts`` are all failures by their
    kind, ``last`` is the latest, and ``given_up`` the number of trials that are not tried again.
    """

    def __init__(self, retries: int) -> None:
        self.counts: Counter[LossReason] = Counter()
        self.first = self.last = ""
        self.given_up = 0
        self._retries = retries
        self._num_successes = 0
        self._num_diverged_at_once = 0
        self._tries: Counter[tuple[int, int]] = Counter()  # by batch size and trial
        self._steps: dict[tuple[int, int], int] = {}  # the last step of each trial that is not over
        self._furthest: dict[int, int] = defaultdict(int)  # the last step of any trial, by batch size
        self._gave_up_at: dict[int, list[int]] = defaultdict(list)  # by batch size

    def count_failure(self, loss: LossReason, failure: Failure) -> None:
        """Count a failed job or trial."""
        self.counts[loss] += 1
        self.last = str(failure)
        self.first = self.first or self.last

    def count_success(self) -> None:
        """Count a job in which nothing failed."""
        self._num_successes += 1

    def count_divergence(self) -> None:
        """Count a trial that diverged before its first measurement."""
        self._num_diverged_at_once += 1

    @property
    def only_time_outs(self) -> bool:
        """True if scripts reported nothing again and again, and none was ever measured."""
        return not self._num_successes and self.counts[LossReason.TIMED_OUT] >= MAX_TIME_OUTS

    @property
    def only_divergence(self) -> bool:
        """True if all trials so far, and enough of them, diverged before their first measurement."""
        return not self._num_successes and self._num_diverged_at_once >= MAX_DIVERGED

    def set_step(self, batch_size: int, trial_id: int, step: int) -> None:
        """Set the last step of a trial."""
        self._steps[batch_size, trial_id] = step
        self._furthest[batch_size] = max(self._furthest[batch_size], step)

    def reset_tries(self, batch_size: int, trial_id: int) -> None:
        """Count the tries of a trial that made progress from zero again."""
        self._tries.pop((batch_size, trial_id), None)

    def release(self, batch_size: int, trial_ids: Iterable[int]) -> None:
        """Remove trials that are over."""
        for trial_id in trial_ids:
            self._steps.pop((batch_size, trial_id), None)
            self._tries.pop((batch_size, trial_id), None)

    def count_try(
        self, batch_size: int, trial_id: int, failure: Failure, loss: LossReason = LossReason.ERROR
    ) -> Failure | None:
        """Count a failed try; return the failure if the trial is not tried again."""
        key = (batch_size, trial_id)
        self._tries[key] += 1
        if self._tries[key] <= (min(1, self._retries) if loss is LossReason.TIMED_OUT else self._retries):
            return None
        self.given_up += 1
        self._gave_up_at[batch_size].append(self._steps.get(key, 0))
        return failure.preceded_by(f"Tried {count_text(self._tries[key], 'time')}. ")

    def is_hopeless(self, batch_size: int) -> bool:
        """True if nothing was ever trained, or no trial of the study came past the step where several gave up."""
        if not self._num_successes:
            return self.given_up >= MAX_GIVEN_UP
        furthest = self._furthest[batch_size]
        return sum(step >= furthest for step in self._gave_up_at[batch_size]) >= MAX_GIVEN_UP and furthest > 0
