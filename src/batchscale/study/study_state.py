"""One study while it runs, as pure state: results of trials go in, trials to train and outcomes to record come out.

No files, processes or clocks. What must be written, and when, is in ``study.py``.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum

from batchscale.spec.experiment import Experiment, StopRule
from batchscale.spec.horizon_free import is_recorded
from batchscale.spec.plan import Study
from batchscale.study.failure import Failure
from batchscale.study.identity import SavedStudy
from batchscale.study.next_search import NextSearch
from batchscale.study.queue import TrialQueue
from batchscale.study.sampling import SampledPoints
from batchscale.study.search import SearchState
from batchscale.study.stop_rules.rule import SearchRules, find_rule
from batchscale.study.trial import Row, TrialOutcome, TrialProgress, TrialRequest, TrialSummary, TrialTask

CONFIRMATION = "the best trials are trained again with new seeds"
"""The reason of a confirmation."""


class Phase(StrEnum):
    """The phase of a study."""

    TRAINING = "training"
    """All results are evaluated; more must be trained."""

    UPDATED = "updated"
    """There are results that `StudyState.refresh` has not evaluated yet."""

    SETTLED = "settled"
    """The current search is decided: its trials are being recorded, and further results are ignored."""

    ENDED = "ended"
    SET_ASIDE = "set aside"
    """Nothing more is done here in this run: a person must look at the records."""


class StudyState:
    """The searches of a study, the queue of the current one, and the trials that have come to their end.

    ``outcomes`` are the points of the current search whose outcome is certain and not recorded. ``sampled`` holds the
    metaparameters and ids of its points, ``queue`` those that may be trained now. ``on_change`` is called whenever the
    queue may have changed.
    """

    def __init__(
        self, study: Study, experiment: Experiment, saved: SavedStudy, trials: Mapping[int, TrialSummary]
    ) -> None:
        self.study = study
        self.experiment = experiment
        self.saved = saved
        self.phase = Phase.TRAINING
        self.outcomes: deque[tuple[int, TrialOutcome]] = deque()
        self._searches: list[SearchState] = []
        for index in range(len(saved.history.searches)):
            self._searches.append(SearchState(self._rules(index)))
        for trial_id, trial in trials.items():
            search, point = saved.history.locate(trial_id)
            self._searches[search - 1].put(point, trial)
        self._current = 0  # index of the search that trains
        self._updated: set[int] = set()  # points with results since the last refresh
        self._basis = (-1, 0)  # the finish and the number of points at the last refresh
        self.on_change: Callable[[], None] = lambda: None
        self._enter(0)

    @property
    def current(self) -> SearchState:
        """The search that trains now (the last one when the study is done)."""
        return self._searches[self._current]

    @property
    def searches(self) -> Sequence[SearchState]:
        """All searches, oldest first."""
        return self._searches

    @property
    def search(self) -> int:
        """The number of the search that trains now, from 1."""
        return self._current + 1

    @property
    def is_confirming(self) -> bool:
        """True if the best trials are being trained again with new seeds."""
        return bool(self.saved.history.searches[self._current].confirms)

    @property
    def done(self) -> bool:
        """True if nothing more happens here in this run."""
        return self.phase in (Phase.ENDED, Phase.SET_ASIDE)

    @property
    def accepts_results(self) -> bool:
        """True if results of trials still matter."""
        return self.phase in (Phase.TRAINING, Phase.UPDATED)

    @property
    def search_over(self) -> bool:
        """True if the current search can be left: it is decided, its trials are recorded and none is running."""
        return not self.done and not self.queue.num_running and not self.outcomes and self.current.decided

    # --- what to train ---------------------------------------------------------------------------------------

    def set_holder(self, trial_id: int, worker_id: str | None) -> None:
        """Set the worker that holds the state of a trial; None: no worker."""
        search, point = self.saved.history.locate(trial_id)
        if search == self.search:
            self.queue.set_holder(point, worker_id)

    def add_range(self, point: int) -> int:
        """Continue the search at this point in a further range of ids, and return the point's id."""
        trial_id = self.saved.history.next_trial_id(self._searches)
        self.saved.history.add_range(self.search, point, trial_id)
        return trial_id

    def start(self, request: TrialRequest) -> TrialTask:
        """Mark a requested trial, which has an id, as running and return its task."""
        trial_id = self.sampled.trial_id(request.point)
        assert trial_id is not None
        skipped = range(len(self.current.points), request.point)
        trial = self.current.get_or_add(request.point)  # so that its id is taken
        self.queue.start(request.point, skipped)
        self.on_change()
        parameters = {**self.study.fixed, **self.sampled.values(request.point)}
        return TrialTask(trial_id, parameters, self.sampled.seed(request.point), request.until, trial.step)

    # --- results ---------------------------------------------------------------------------------------------

    def new_rows(self, progress: TrialProgress) -> list[Row]:
        """Return the measurements that are new, with the metrics that are recorded."""
        last, metrics = self._trial(progress.trial_id).step, self.experiment.metrics
        return [
            (step, {name: float(value) for name, value in values.items() if is_recorded(name, metrics)})
            for step, values in progress.rows
            if step > last
        ]

    def update(self, trial_id: int, rows: Sequence[Row], diverged_at: int | None) -> bool:
        """Add the results of a trial and mark it as not running; False if it made no progress."""
        trial = self._trial(trial_id)
        before = trial.step
        trial.update(rows, diverged_at, self.study.goal)
        self._mark_updated(trial_id)
        return trial.step > before or trial.over

    def give_up(self, trial_id: int, failure: Failure) -> None:
        """End a trial that cannot be trained as INCOMPLETE."""
        if self.accepts_results:
            self._trial(trial_id).failed = failure
            self._mark_updated(trial_id)
        else:
            self.release(trial_id)

    def release(self, trial_id: int) -> None:
        """Mark a trial as not running."""
        search, point = self.saved.history.locate(trial_id)
        if search == self.search and point < len(self.current.points):
            self.queue.release(point)
        self.on_change()

    def _mark_updated(self, trial_id: int) -> None:
        search, point = self.saved.history.locate(trial_id)
        if search == self.search:
            self.current.mark_changed(point)
            self._updated.add(point)
        else:
            self._searches[search - 1].mark_changed()
        self.release(trial_id)
        self.phase = Phase.UPDATED

    def _trial(self, trial_id: int) -> TrialSummary:
        search, point = self.saved.history.locate(trial_id)
        return self._searches[search - 1].get_or_add(point)

    # --- outcomes --------------------------------------------------------------------------------------------

    def refresh(self) -> None:
        """Evaluate new results: is the search decided, and which trials have come to their end?

        Trials are recorded as soon as their outcome is certain; where they end together, with their search.
        """
        if self.phase is Phase.UPDATED:
            self._evaluate()

    def _evaluate(self) -> None:
        self.phase = Phase.SETTLED if self.current.decided else Phase.TRAINING
        if self.current.rules.rule.ends_together and self.phase is Phase.TRAINING:
            return
        queued = {point for point, _ in self.outcomes}
        unrecorded = self.current.unrecorded(self._possibly_ended())
        self.outcomes.extend((point, outcome) for point, outcome in unrecorded if point not in queued)

    def _possibly_ended(self) -> Iterable[int] | None:
        """Return the points that may have come to their end since the last refresh; None if that may be any."""
        (finish, count), self._basis = self._basis, (self.current.until, self.current.count())
        updated, self._updated = self._updated, set()
        if self.current.rules.rule.ends_together or finish != self._basis[0]:
            return None
        return sorted(updated.union(range(count, self._basis[1])))

    def mark_recorded(self, point: int, outcome: TrialOutcome, recorded: TrialSummary) -> None:
        """Remove the first of ``outcomes``, which is on disk now; ``recorded`` summarises the rows within it."""
        trial = self.current.points[point]
        trial.recorded, trial.recorded_failed = outcome.step, trial.failed is not None
        trial.step = max(trial.step, outcome.step)
        trial.reached_at = recorded.reached_at
        self.current.mark_changed(point)
        self.sampled.release(point)
        self.outcomes.popleft()
        self.on_change()

    # --- from search to search -------------------------------------------------------------------------------

    @property
    def unneeded(self) -> list[int]:
        """The trials of the decided search that were started early, and are not part of it."""
        points = range(self.current.count(), len(self.current.points))
        return [trial_id for trial_id in map(self.sampled.trial_id, points) if trial_id is not None]

    def drop_unneeded(self) -> None:
        """Remove the unneeded trials."""
        self.current.truncate(self.current.count())
        self.queue.reset()

    def enter_next(self) -> bool:
        """Continue with the next existing search; False if this was the last."""
        if self._current + 1 == len(self._searches):
            return False
        self._enter(self._current + 1)
        return True

    def accepts(self, proposal: NextSearch) -> bool:
        """True if the study is searched once more, in the proposed space."""
        spaces = self.saved.history.spaces
        moved = spaces[-1].names and (proposal.space != spaces[-1] or not proposal.edges)
        return bool(proposal.space is not None and moved and len(spaces) <= self.experiment.search.repeats)

    def add_search(self, proposal: NextSearch) -> None:
        """Begin a further search in the proposed space."""
        assert proposal.space is not None
        history = self.saved.history
        history.add_search(proposal.space, history.next_trial_id(self._searches), proposal.reason or "")
        self._searches.append(SearchState(self._rules(len(self._searches))))
        self._enter(len(self._searches) - 1)

    def add_confirmation(self, trial_ids: Sequence[int]) -> None:
        """Begin to train these trials again with new seeds."""
        history = self.saved.history
        space = history.searches[history.locate(trial_ids[0])[0] - 1].space
        history.add_search(space, history.next_trial_id(self._searches), CONFIRMATION, tuple(trial_ids))
        self._searches.append(SearchState(self._rules(len(self._searches))))
        self._enter(len(self._searches) - 1)

    def end(self) -> None:
        """Mark the study as done."""
        self._close(Phase.ENDED)

    def set_aside(self) -> None:
        """Do nothing more here in this run."""
        self._close(Phase.SET_ASIDE)

    def _close(self, phase: Phase) -> None:
        self.phase = phase
        self.queue.close()
        self.on_change()

    def _enter(self, index: int) -> None:
        self._current = index
        self._updated, self._basis = set(), (-1, 0)
        self.current.rules = self._rules(index)
        self.current.mark_changed()
        self.sampled = SampledPoints(self.study, self.experiment, self.saved.history, self.search)
        self.queue = TrialQueue(self.current)
        self._evaluate()
        self.on_change()

    def _rules(self, index: int) -> SearchRules:
        entries = self.saved.history.searches
        confirms = entries[index].confirms
        rule = find_rule(self.study.stop)
        if confirms:  # each on its own, as one training would be; one that diverges is not replaced
            count = len(confirms) * self.experiment.confirm
            alone = find_rule(StopRule.GOAL) if rule.ends_together else rule
            return SearchRules(alone, self.study.evaluation_steps, count, count)
        others = [
            trial.reached_at
            for i, search in enumerate(self._searches)
            if i != index and not entries[i].confirms
            for trial in search.points
        ]
        return SearchRules(
            rule=rule,
            steps=self.study.evaluation_steps,
            trials=self.study.trials,
            max_attempts=self.study.max_attempts,
            finishers=self.experiment.finishers,
            others_reached=tuple(step for step in others if step is not None),
        )
