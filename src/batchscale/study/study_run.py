"""A study and its records while it runs: the state decides, the recorder writes, and here is the order of the two.

Records are written in `write_due` only, in small portions; a full disk may refuse any of them: then nothing is
forgotten and the same call is made again later.
"""

import time
from dataclasses import dataclass, field

from batchscale.records.metadata.study import EdgeEnd, StudyResult, TrainerMetadata
from batchscale.records.metadata.trial import Hardware
from batchscale.records.tree.committed import CommittedTrials
from batchscale.study.guards import Judgement, judge
from batchscale.study.needs import Ending, Need
from batchscale.study.recorder import EndedTrial, Recorder
from batchscale.study.study_facts import record_parameters
from batchscale.study.study_state import StudyState
from batchscale.study.tasks import TrialProgress, TrialTask


@dataclass
class Released:
    """What engines need not hold any more.

    ``forget`` are trials that came to their end; ``shelve`` those that a later run might go on with, and how far they
    went.
    """

    forget: list[int] = field(default_factory=list)
    shelve: dict[int, int] = field(default_factory=dict)


class StudyRun:
    """The protocol of one study."""

    def __init__(self, state: StudyState, recorder: Recorder) -> None:
        self.state = state
        self.problem: str | None = None
        self._recorder = recorder
        self._released = Released()

    @property
    def batch_size(self) -> int:
        """The batch size, by which a run tells its studies apart."""
        return self.state.study.batch_size

    @property
    def done(self) -> bool:
        """Whether nothing more happens here in this run."""
        return self.state.done

    @property
    def records(self) -> CommittedTrials:
        """The recorded trials by id."""
        return self._recorder.records

    # --- training --------------------------------------------------------------------------------------------

    def begin(self, need: Need) -> TrialTask:
        """The task for a need, which is busy from now on."""
        self._recorder.repeat_refused()
        self._name_trial(need.point)
        return self.state.begin(need)

    def learn(self, progress: TrialProgress, seconds: float, hardware: Hardware | None) -> bool:
        """Take in what a trial did; False if that was nothing, though something was needed."""
        if not self.state.takes_news:
            self.state.release(progress.trial_id)
            return True  # it was trained in case it was needed, and it is not
        rows = self.state.new_rows(progress)
        self._recorder.add(progress, rows, seconds, hardware)
        return self.state.learn(progress.trial_id, rows, progress.diverged_at)

    def set_population(self, population: int, framework: str | None = None) -> None:
        """How many trials are trained together from now on, and what with; the first job of a study settles it."""
        if self.state.memory.population is None:
            self.state.memory.population = population
            self.state.stirred()
            if framework is not None:
                name, _, version = framework.partition(" ")
                self.state.memory.framework = TrainerMetadata(name, version or None)
            self._write_study()

    def take_released(self) -> Released:
        """What engines need not hold any more since the last call."""
        released, self._released = self._released, Released()
        return released

    def _name_trial(self, point: int) -> int:
        """The id of a point; if it is a new range of ids, ``study.json`` says so before anything has that id."""
        trial_id = self.state.drawn.trial_id(point)
        if trial_id is None:
            trial_id = self.state.add_range(point)
            self._write_study()
        return trial_id

    def look(self) -> bool:
        """Work out what follows from what was learned; whether there is something to write."""
        if self.done:
            return False
        self.state.look()
        state, recorder = self.state, self._recorder
        return bool(state.endings) or recorder.journal_due or recorder.refused or state.search_over

    # --- records ---------------------------------------------------------------------------------------------

    def write_due(self, until: float) -> None:
        """Write what is due, as long as the monotonic clock is before ``until``; at least one thing."""
        self._recorder.repeat_refused()
        self.state.look()
        if self._recorder.journal_due:
            self._recorder.write_journals(until)
        while self.state.endings:
            self._record(*self.state.endings[0])
            if time.monotonic() >= until:
                return
        if self.state.search_over:
            self._leave_search()

    def write_journals(self, until: float = float("inf")) -> None:
        """Make what is known survive this process."""
        self._recorder.write_journals(until)

    def set_aside(self, problem: str) -> None:
        """Do nothing more here in this run: what is recorded needs to be looked at."""
        self.problem = problem
        self.state.set_aside()

    def reopen(self) -> None:
        """More is asked of a study that may have ended before: what was said of it then does not hold any more."""
        if self.state.memory.finding is not None:
            self.state.memory.finding = None
            self._write_study()

    def close(self) -> None:
        """Give back the study's lock."""
        self._recorder.close()

    def _write_study(self) -> None:
        self._recorder.write_study(self.state.memory.to_record(self.state.study, self.state.experiment))

    def _record(self, point: int, ending: Ending) -> None:
        state, trial_id = self.state, self._name_trial(point)
        parameters = record_parameters(state.drawn.space, state.drawn.values(point))
        failed = state.current.points[point].failed
        trial = EndedTrial(trial_id, ending, parameters, state.drawn.seed(point), state.search, point, failed)
        state.note_recorded(point, ending, self._recorder.commit(trial))
        if ending.may_go_on:
            self._released.shelve[trial_id] = ending.step
        else:
            self._released.forget.append(trial_id)

    # --- from search to search -------------------------------------------------------------------------------

    def _leave_search(self) -> None:
        """All trials of the search are recorded: go on to the next search, or a new one, or end the study."""
        self._drop_unneeded()
        if self.state.enter_next():
            return
        spaces = [search.space for search in self.state.memory.ledger.searches]
        margin = self.state.experiment.search.edge_margin
        judgement = judge(self._recorder.results(), spaces, margin, self.state.study.train_steps)
        if self.state.wants_search(judgement):
            assert judgement.next_space is not None
            self.state.open_search(judgement.next_space, judgement.reason or "")
            self._write_study()
        else:
            self._conclude(judgement)

    def _drop_unneeded(self) -> None:
        """Points that were started in case they were needed leave no records; more trials might need their states."""
        for trial_id in self.state.unneeded:
            self._recorder.discard(trial_id)
            self._released.shelve[trial_id] = 0
        self.state.drop_unneeded()

    def _conclude(self, judgement: Judgement) -> None:
        searches = self.state.searches
        finding = StudyResult(
            goal_reached=any(p.reached_at is not None for s in searches for p in s.points),
            at_edge=tuple(EdgeEnd(edge.parameter, edge.side) for edge in judgement.edges),
            short=any(search.short for search in searches),
        )
        if finding != self.state.memory.finding:
            self.state.memory.finding = finding
            self._write_study()
        self.state.end()
