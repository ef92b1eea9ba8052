"""One study while it runs: what it knows, what it needs next, and when its trials become records.

It is told what trials did (`learn`, `give_up`) and asked what to train (`ready`, `begin`). Records are written in
`keep_house` only, in small portions; a full disk may refuse any of them: then nothing is forgotten and the same call
is made again later.
"""

import time
from collections import deque
from collections.abc import Mapping

from batchscale.protocol.guards import TrialResult, Verdict, judge
from batchscale.protocol.knowledge import Knowledge
from batchscale.protocol.pacing import order_needs
from batchscale.protocol.points import PointStream, trial_seed
from batchscale.protocol.search_state import Ending, Need, SearchRules, SearchState
from batchscale.protocol.study_facts import (
    DamagedStudyError,
    StudyFacts,
    recall,
    record_parameters,
    trial_facts,
)
from batchscale.protocol.tasks import Row, TrialProgress, TrialTask
from batchscale.protocol.trial_store import TrialStore
from batchscale.records.model import OWN_KEY, Status, TrialRecord
from batchscale.records.tree.writer import StudyWriter
from batchscale.spec import Experiment, StopRule, Study


class StudyRun:
    """The protocol of one study."""

    def __init__(
        self, study: Study, experiment: Experiment, writer: StudyWriter, facts: StudyFacts, retry: bool = False
    ) -> None:
        self.study = study
        self.experiment = experiment
        self.facts = facts
        self.done = False
        self.problem: str | None = None
        self._writer = writer
        self._store = TrialStore(writer, study.evaluation_steps)
        self._states: list[SearchState] = []
        self._current = 0  # index of the search that trains
        self._busy: set[int] = set()
        self._to_commit: deque[tuple[int, Ending]] = deque()
        self._to_forget: list[int] = []
        self._to_shelve: dict[int, int] = {}
        self._points: dict[int, dict[str, float]] = {}
        self._ready: list[Need] | None = None
        self._facts_due = False
        self._news = False  # something was learned since the last look at what is to be recorded
        self._settled = False  # the current search was decided at that look: what comes now is not needed
        self._load(retry)

    # --- what is there ---------------------------------------------------------------------------------------

    def _load(self, retry: bool) -> None:
        for trial_id, reason in self._writer.damaged_trials.items():
            raise DamagedStudyError(
                f"{self._writer.folder}: trial {trial_id} is damaged: {reason} Move its folder out of the tree and run "
                "again."
            )
        for _ in self.facts.ledger.searches:
            self._states.append(SearchState(self._rules(-1)))
        for trial_id, record in self._writer.committed_trials().items():
            self._set(trial_id, self._recall(record))
            if retry and record.status is Status.INCOMPLETE:
                self._set(trial_id, self._relearn(self._store.rows(trial_id)))
        for trial_id in self._store.journaled:
            self._known(trial_id).learn(self._store.rows(trial_id), None, self.study.goal)
        self._enter(0)

    def _recall(self, record: TrialRecord) -> Knowledge:
        try:
            return recall(record)
        except DamagedStudyError as error:
            raise DamagedStudyError(
                f"{self._writer.folder}: {error} Put its metadata.json back from a copy, or move the trial's folder "
                "out of the tree, and run again."
            ) from None

    def _relearn(self, rows: list[Row]) -> Knowledge:
        known = Knowledge()
        known.learn(rows, None, self.study.goal)
        return known

    def _rules(self, index: int) -> SearchRules:
        others = [p.reached_at for i, s in enumerate(self._states) if i != index for p in s.points]
        return SearchRules(
            stop=self.study.stop,
            steps=self.study.evaluation_steps,
            trials=self.study.trials,
            max_attempts=self.study.max_attempts,
            finishers=self.experiment.finishers,
            others_reached=tuple(step for step in others if step is not None),
        )

    def _set(self, trial_id: int, known: Knowledge) -> None:
        search, point = self.facts.ledger.place(trial_id)
        self._states[search - 1].put(point, known)

    def _known(self, trial_id: int) -> Knowledge:
        search, point = self.facts.ledger.place(trial_id)
        return self._states[search - 1].get(point)

    @property
    def state(self) -> SearchState:
        """The search that trains now (the last one when the study is done)."""
        return self._states[self._current]

    @property
    def states(self) -> tuple[SearchState, ...]:
        """All searches, oldest first."""
        return tuple(self._states)

    @property
    def search(self) -> int:
        """The number of the search that trains now, from 1."""
        return self._current + 1

    @property
    def busy(self) -> int:
        """How many trials are being trained."""
        return len(self._busy)

    @property
    def records(self) -> Mapping[int, TrialRecord]:
        """The recorded trials by id."""
        return self._writer.committed_trials()

    # --- what to train ---------------------------------------------------------------------------------------

    def ready(self) -> list[Need]:
        """What may be trained now, best first."""
        if self.done:
            return []
        if self._ready is None:
            self._ready = list(order_needs(self.state, self._busy))
        return self._ready

    def trial_id(self, point: int) -> int:
        """The id of a point of the current search; a search that goes on after a later one gets a further range."""
        ledger = self.facts.ledger
        trial_id = ledger.trial_id(self.search, point)
        if trial_id is None:
            trial_id = self._next_id()
            ledger.extend(self.search, point, trial_id)
            self.write_facts()
        return trial_id

    def _next_id(self) -> int:
        counts = [(k, len(s.points)) for k, s in enumerate(self._states, 1)]
        ids = [self.facts.ledger.trial_id(k, count - 1) or 0 for k, count in counts if count]
        return max([0, *ids]) + 1

    def begin(self, need: Need) -> TrialTask:
        """The task for a need, which is busy from now on."""
        self._write_due_facts()
        trial_id = self.trial_id(need.point)
        known = self._known(trial_id)
        self._busy.add(need.point)
        self._ready = None
        values = self._values(need.point)
        seed = trial_seed(self.study, self.search, need.point)
        return TrialTask(trial_id, {**self.study.fixed, **values}, seed, need.until, known.step)

    def _values(self, point: int) -> dict[str, float]:
        if point not in self._points:
            space = self.facts.ledger.searches[self._current].space
            stream = PointStream(self.study, self.search, space, self.experiment.search.algorithm)
            count = max(64, self.study.trials)
            start = point - point % count
            self._points |= dict(enumerate(stream.draw(start, count), start))
        return self._points[point]

    # --- what happened ---------------------------------------------------------------------------------------

    def learn(self, progress: TrialProgress, seconds: float, hardware: str) -> bool:
        """Take in what a trial did; False if that was nothing, though something was needed."""
        self.release(progress.trial_id)
        if self.done or self._settled:
            return True  # it was trained in case it was needed, and it is not
        known = self._known(progress.trial_id)
        before = known.step
        rows = [(step, self._recorded_metrics(values)) for step, values in progress.rows if step > before]
        self._store.add(progress.trial_id, rows, progress.timing, seconds, hardware)
        known.learn(rows, progress.diverged_at, self.study.goal)
        self.state.changed()
        self._news = True
        return known.step > before or known.over

    def _recorded_metrics(self, values: Mapping[str, float]) -> dict[str, float]:
        wanted = self.experiment.metrics
        return {n: float(v) for n, v in values.items() if wanted is None or n.partition("/")[2] in wanted}

    def release(self, trial_id: int) -> None:
        """A trial is not being trained any more."""
        _, point = self.facts.ledger.place(trial_id)
        self._busy.discard(point)
        self._ready = None

    def give_up(self, trial_id: int, reason: str) -> None:
        """A trial cannot be trained: it will be recorded INCOMPLETE with the reason."""
        self.release(trial_id)
        if not self.done and not self._settled:
            self._known(trial_id).failed = reason
            self.state.changed()
            self._news = True

    def _queue_commits(self) -> None:
        """Trials whose end is certain are recorded: at once when trials end by themselves, else with their search."""
        self._news, self._settled = False, self.state.decided
        if self.study.stop is StopRule.RACE and not self._settled:
            return
        queued = {point for point, _ in self._to_commit}
        self._to_commit.extend((p, ending) for p, ending in self.state.unrecorded() if p not in queued)

    # --- records ---------------------------------------------------------------------------------------------

    def keep_house(self, until: float) -> None:
        """Write what is due, as long as the monotonic clock is before ``until``; at least one thing."""
        self._write_due_facts()
        if self._news:
            self._queue_commits()
        if self._store.journal_due:
            self._store.write_journals(until)
        while self._to_commit:
            self._commit(*self._to_commit[0])
            self._to_commit.popleft()
            if time.monotonic() >= until:
                return
        if not self.done and not self._busy and self.state.decided:
            self._end_search()

    @property
    def has_work(self) -> bool:
        """Whether `keep_house` has something to do."""
        return bool(self._to_commit) or self._news

    def write_journals(self, until: float = float("inf")) -> None:
        """Make what is known survive this process."""
        self._store.write_journals(until)

    def _commit(self, point: int, ending: Ending) -> None:
        trial_id = self.trial_id(point)
        known = self.state.points[point]
        rows = [row for row in self._store.rows(trial_id) if row[0] <= ending.step]
        within = self._relearn(rows)  # rows beyond the end were computed for nothing and leave no trace
        within.failed = known.failed
        seed = trial_seed(self.study, self.search, point)
        own = trial_facts(seed, self.search, point, within, ending.reason) | self._store.cost(trial_id)
        space = self.facts.ledger.searches[self._current].space
        values = record_parameters(space, self._values(point))
        self._store.commit(TrialRecord(trial_id, ending.status, ending.step, values, {OWN_KEY: own}), rows)
        known.recorded, known.recorded_failed = ending.step, known.failed is not None
        known.step = max(known.step, ending.step)
        known.reached_at = within.reached_at
        self.state.changed()
        if ending.may_go_on:
            self._to_shelve[trial_id] = ending.step
        else:
            self._to_forget.append(trial_id)

    def forgettable(self) -> list[int]:
        """The trials that came to their end since the last call: no engine will see them again."""
        trials, self._to_forget = self._to_forget, []
        return trials

    def shelvable(self) -> dict[int, int]:
        """The trials ended or dropped since the last call that a later run might go on with, and how far they went."""
        steps, self._to_shelve = self._to_shelve, {}
        return steps

    def write_facts(self) -> None:
        """Bring ``study.json`` up to date; if the disk refuses, before anything else is trained or recorded."""
        self._facts_due = True
        self._writer.update(self.facts.to_record(self.study, self.experiment))
        self._facts_due = False

    def _write_due_facts(self) -> None:
        if self._facts_due:
            self.write_facts()

    def set_aside(self, problem: str) -> None:
        """Do nothing more here in this run: what is recorded needs to be looked at."""
        self.done, self.problem = True, problem

    def reopen(self) -> None:
        """More is asked of a study that may have ended before: what was said of it then does not hold any more."""
        if self.facts.verdict:
            self.facts.verdict = {}
            self.write_facts()

    def close(self) -> None:
        """Give back the study's lock."""
        self._writer.close()

    # --- from search to search -------------------------------------------------------------------------------

    def _enter(self, index: int) -> None:
        self._current = index
        self._points, self._ready = {}, None
        self.state.rules = self._rules(index)
        self.state.changed()
        self._queue_commits()

    def _end_search(self) -> None:
        """All trials of the search are recorded: go on to the next search, or a new one, or end the study."""
        self._drop_unneeded()
        if self._current + 1 < len(self._states):
            self._enter(self._current + 1)
            return
        verdict = self.verdict()
        spaces = [search.space for search in self.facts.ledger.searches]
        moved = spaces[-1].names and (verdict.next_space != spaces[-1] or not verdict.edges)
        if verdict.next_space is not None and moved and len(spaces) <= self.experiment.search.repeats:
            self.facts.ledger.open_search(verdict.next_space, self._next_id(), verdict.reason or "")
            self._states.append(SearchState(self._rules(-1)))
            self._enter(len(self._states) - 1)
            self.write_facts()
            return
        self._end_study(verdict)

    def _drop_unneeded(self) -> None:
        """Points that were started in case they were needed leave no records; more trials might need their states."""
        count = self.state.count()
        for point in range(count, len(self.state.points)):
            trial_id = self.facts.ledger.trial_id(self.search, point)
            if trial_id is not None:
                self._store.discard(trial_id)
                self._to_shelve[trial_id] = 0
        self.state.cut(count)

    def _end_study(self, verdict: Verdict) -> None:
        facts = {
            "goal_reached": any(p.reached_at is not None for s in self._states for p in s.points),
            "at_edge": [{"parameter": edge.parameter, "side": edge.side.value} for edge in verdict.edges],
            "short": any(state.short for state in self._states),
        }
        if facts != self.facts.verdict:
            self.facts.verdict = facts
            self.write_facts()
        self.done = True

    def verdict(self) -> Verdict:
        """What the guards say of the study as it is recorded."""
        results = []
        for trial_id, record in self._writer.committed_trials().items():
            if record.status is Status.COMPLETE:
                known = recall(record)
                results.append(TrialResult(trial_id, record.parameters, known.reached_at, known.best))
        spaces = [search.space for search in self.facts.ledger.searches]
        return judge(results, spaces, self.experiment.search.edge_margin)
