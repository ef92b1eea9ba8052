"""One study while it runs, as pure state: told what trials did, it says what to train and how trials end.

Knows numbers and the ledger, no files, processes or clocks. What must be written, and when, is ``study_run``'s.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum

from batchscale.spec.experiment import Experiment
from batchscale.spec.plan import Study
from batchscale.spec.space import SearchSpace
from batchscale.study.drawn_points import DrawnPoints, next_trial_id
from batchscale.study.failure import Failure
from batchscale.study.guards import Judgement
from batchscale.study.knowledge import Knowledge
from batchscale.study.needs import Ending, Need
from batchscale.study.search_rules import SearchRules
from batchscale.study.search_state import SearchState
from batchscale.study.stop_rules import find_rule
from batchscale.study.study_facts import StudyMemory
from batchscale.study.tasks import Row, TrialProgress, TrialTask
from batchscale.study.waiting_points import WaitingPoints


class Phase(StrEnum):
    """Where a study stands."""

    TRAINING = "training"
    """What follows from all that is known is worked out; more must be trained."""

    LEARNED = "learned"
    """Something was learned that was not looked at yet."""

    SETTLED = "settled"
    """The current search is decided: its trials are being recorded, and what still comes in is not needed."""

    ENDED = "ended"
    SET_ASIDE = "set aside"
    """Nothing more is done here in this run: what is recorded must be looked at by a person."""


class StudyState:
    """What is known of a study, what it needs next, and which trials have come to their end.

    ``endings`` are the points of the current search whose end is certain and not recorded, with how they end.
    ``drawn`` says what its points are, ``waiting`` which of them may be trained now.
    ``stirred`` is called whenever what may be trained now may have changed.
    """

    def __init__(
        self, study: Study, experiment: Experiment, memory: StudyMemory, known: Mapping[int, Knowledge]
    ) -> None:
        self.study = study
        self.experiment = experiment
        self.memory = memory
        self.rule = find_rule(study.stop)
        self.phase = Phase.TRAINING
        self.endings: deque[tuple[int, Ending]] = deque()
        self._searches: list[SearchState] = []
        for _ in memory.ledger.searches:
            self._searches.append(SearchState(self._rules(-1)))
        for trial_id, one in known.items():
            search, point = memory.ledger.place(trial_id)
            self._searches[search - 1].put(point, one)
        self._current = 0  # index of the search that trains
        self._news: set[int] = set()  # points that something was learned of since the last look
        self._basis = (-1, 0)  # the finish and the number of points at the last look
        self.stirred: Callable[[], None] = lambda: None
        self._enter(0)

    # --- how it stands ---------------------------------------------------------------------------------------

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
    def done(self) -> bool:
        """Whether nothing more happens here in this run."""
        return self.phase in (Phase.ENDED, Phase.SET_ASIDE)

    @property
    def takes_news(self) -> bool:
        """Whether what trials do still matters."""
        return self.phase in (Phase.TRAINING, Phase.LEARNED)

    @property
    def search_over(self) -> bool:
        """Whether the current search can be left: it is decided, its trials are recorded and none is trained."""
        return not self.done and not self.waiting.num_busy and not self.endings and self.current.decided

    # --- what to train ---------------------------------------------------------------------------------------

    def hold(self, trial_id: int, worker: str | None) -> None:
        """A worker has the state of a trial from now on; None: nobody has."""
        search, point = self.memory.ledger.place(trial_id)
        if search == self.search:
            self.waiting.hold(point, worker)

    def add_range(self, point: int) -> int:
        """The id of a point from which its search, after a later one, goes on in a further range."""
        trial_id = next_trial_id(self.memory.ledger, self._searches)
        self.drawn.add_range(point, trial_id)
        return trial_id

    def begin(self, need: Need) -> TrialTask:
        """The task for a need whose point has an id; it is busy from now on."""
        trial_id = self.drawn.trial_id(need.point)
        assert trial_id is not None
        skipped = range(len(self.current.points), need.point)
        known = self.current.get(need.point)  # the point is known of from now on, so that its id is taken
        self.waiting.take(need.point, skipped)
        self.stirred()
        parameters = {**self.study.fixed, **self.drawn.values(need.point)}
        return TrialTask(trial_id, parameters, self.drawn.seed(need.point), need.until, known.step)

    # --- what happened ---------------------------------------------------------------------------------------

    def new_rows(self, progress: TrialProgress) -> list[Row]:
        """The measurements that were not known, with the metrics that are recorded."""
        before, wanted = self._known(progress.trial_id).step, self.experiment.metrics
        return [
            (step, {n: float(v) for n, v in values.items() if wanted is None or n.partition("/")[2] in wanted})
            for step, values in progress.rows
            if step > before
        ]

    def learn(self, trial_id: int, rows: Sequence[Row], diverged_at: int | None) -> bool:
        """Take in what a trial measured and where it diverged, and train it no more; False if that was nothing."""
        known = self._known(trial_id)
        before = known.step
        known.learn(rows, diverged_at, self.study.goal)
        self._note_news(trial_id)
        return known.step > before or known.over

    def give_up(self, trial_id: int, failure: Failure) -> None:
        """A trial cannot be trained: it ends INCOMPLETE with the reason."""
        if self.takes_news:
            self._known(trial_id).failed = failure
            self._note_news(trial_id)
        else:
            self.release(trial_id)

    def release(self, trial_id: int) -> None:
        """A trial is not being trained any more."""
        search, point = self.memory.ledger.place(trial_id)
        if search == self.search and point < len(self.current.points):
            self.waiting.put_back(point)
        self.stirred()

    def note_recorded(self, point: int, ending: Ending, within: Knowledge) -> None:
        """The first of ``endings`` is recorded, with what is known within its end."""
        known = self.current.points[point]
        known.recorded, known.recorded_failed = ending.step, known.failed is not None
        known.step = max(known.step, ending.step)
        known.reached_at = within.reached_at
        self.current.changed(point)
        self.drawn.let_go(point)
        self.endings.popleft()
        self.stirred()

    def look(self) -> None:
        """Work out what follows from what was learned.

        Trials are recorded as soon as their end is certain; where they end together, with their search.
        """
        if self.phase is Phase.LEARNED:
            self._work_out()

    def _work_out(self) -> None:
        self.phase = Phase.SETTLED if self.current.decided else Phase.TRAINING
        if self.rule.ends_together and self.phase is Phase.TRAINING:
            return
        queued = {point for point, _ in self.endings}
        found = self.current.unrecorded(self._maybe_ended())
        self.endings.extend((p, ending) for p, ending in found if p not in queued)

    def _maybe_ended(self) -> Iterable[int] | None:
        """The points that may have come to their end since the last look; None if that may be any."""
        (finish, count), self._basis = self._basis, (self.current.until, self.current.count())
        news, self._news = self._news, set()
        if self.rule.ends_together or finish != self._basis[0]:
            return None
        return sorted(news.union(range(count, self._basis[1])))

    def _note_news(self, trial_id: int) -> None:
        search, point = self.memory.ledger.place(trial_id)
        if search == self.search:
            self.current.changed(point)
            self._news.add(point)
        else:
            self._searches[search - 1].changed()
        self.release(trial_id)
        self.phase = Phase.LEARNED

    def _known(self, trial_id: int) -> Knowledge:
        search, point = self.memory.ledger.place(trial_id)
        return self._searches[search - 1].get(point)

    # --- from search to search -------------------------------------------------------------------------------

    @property
    def unneeded(self) -> list[int]:
        """The trials of the decided search that were started in case they were needed, and are not."""
        points = range(self.current.count(), len(self.current.points))
        return [trial_id for trial_id in map(self.drawn.trial_id, points) if trial_id is not None]

    def drop_unneeded(self) -> None:
        """Forget them."""
        self.current.cut(self.current.count())
        self.waiting.forget()

    def enter_next(self) -> bool:
        """Go on to the next search that is there; False if this was the last."""
        if self._current + 1 == len(self._searches):
            return False
        self._enter(self._current + 1)
        return True

    def wants_search(self, judgement: Judgement) -> bool:
        """Whether the study is searched once more, in the space that the guards propose."""
        spaces = [search.space for search in self.memory.ledger.searches]
        moved = spaces[-1].names and (judgement.next_space != spaces[-1] or not judgement.edges)
        return bool(judgement.next_space is not None and moved and len(spaces) <= self.experiment.search.repeats)

    def open_search(self, space: SearchSpace, reason: str) -> None:
        """Begin a further search."""
        self.memory.ledger.open_search(space, next_trial_id(self.memory.ledger, self._searches), reason)
        self._searches.append(SearchState(self._rules(-1)))
        self._enter(len(self._searches) - 1)

    def end(self) -> None:
        """The study is done."""
        self._close(Phase.ENDED)

    def set_aside(self) -> None:
        """Nothing more is done here in this run."""
        self._close(Phase.SET_ASIDE)

    def _close(self, phase: Phase) -> None:
        self.phase = phase
        self.waiting.close()
        self.stirred()

    def _enter(self, index: int) -> None:
        self._current = index
        self._news, self._basis = set(), (-1, 0)
        self.current.rules = self._rules(index)
        self.current.changed()
        self.drawn = DrawnPoints(self.study, self.experiment, self.memory.ledger, self.search)
        self.waiting = WaitingPoints(self.current)
        self._work_out()
        self.stirred()

    def _rules(self, index: int) -> SearchRules:
        others = [p.reached_at for i, s in enumerate(self._searches) if i != index for p in s.points]
        return SearchRules(
            rule=self.rule,
            steps=self.study.evaluation_steps,
            trials=self.study.trials,
            max_attempts=self.study.max_attempts,
            finishers=self.experiment.finishers,
            others_reached=tuple(step for step in others if step is not None),
        )
