"""A study and its records while it runs: the state decides, the recorder writes, and here is the order of the two.

Records are written in `write_due` only, in small portions; a full disk may refuse any of them: then nothing is lost
and the same call is made again later. `open_study_run` opens a new study, or one that a folder has.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from batchscale.errors import RecordsError, RunError
from batchscale.records.metadata.study import EdgeEnd, StudyResult, TrainerMetadata
from batchscale.records.metadata.trial import Hardware
from batchscale.records.model import StudyRecord, parse_study
from batchscale.records.tree.committed import CommittedTrials
from batchscale.records.tree.folders import read_file
from batchscale.records.tree.layout import StudyPaths, folder_number
from batchscale.records.tree.open_study import open_study
from batchscale.spec.experiment import Experiment
from batchscale.spec.horizon_free import HALF_LIFE
from batchscale.spec.plan import Study
from batchscale.spec.space import ParameterType
from batchscale.study.identity import DamagedStudyError, SavedStudy
from batchscale.study.next_search import NextSearch, TrialResult, plan_next_search
from batchscale.study.recorder import EndedTrial, Recorder
from batchscale.study.sampling import SearchHistory
from batchscale.study.study_state import StudyState
from batchscale.study.trial import TrialOutcome, TrialProgress, TrialRequest, TrialTask


@dataclass
class Released:
    """The states that engines need not hold any more.

    ``discard`` are trials that came to their end; ``finish`` those that a later run might continue, with the step that
    they are recorded to.
    """

    discard: list[int] = field(default_factory=list)
    finish: dict[int, int] = field(default_factory=dict)


class StudyRun:
    """One study of a run: its state and its recorder."""

    def __init__(self, state: StudyState, recorder: Recorder) -> None:
        self.state = state
        self.problem: str | None = None
        self._recorder = recorder
        self._released = Released()

    @property
    def batch_size(self) -> int:
        """The batch size, which identifies a study within a run."""
        return self.state.study.batch_size

    @property
    def done(self) -> bool:
        """True if nothing more happens here in this run."""
        return self.state.done

    @property
    def records(self) -> CommittedTrials:
        """The recorded trials by id."""
        return self._recorder.records

    # --- training --------------------------------------------------------------------------------------------

    def start(self, request: TrialRequest) -> TrialTask:
        """Return the task of a requested trial, which is running from now on."""
        self._recorder.repeat_refused()
        self._assign_id(request.point)
        task = self.state.start(request)
        return replace(task, parameters={**task.parameters, **self._confirmed_half_life(request.point)})

    def handle_progress(self, progress: TrialProgress, seconds: float, hardware: Hardware | None) -> bool:
        """Add the results of a trial; False if it made no progress though the study needed some."""
        if not self.state.accepts_results:
            self.state.release(progress.trial_id)
            return True  # it was trained in case it was needed, and it is not
        rows = self.state.new_rows(progress)
        self._recorder.add(progress, rows, seconds, hardware)
        return self.state.update(progress.trial_id, rows, progress.diverged_at)

    def set_tokens(self, tokens_per_example: int | None) -> None:
        """Store the tokens of an example that a script has reported.

        Raises:
            RunError: another trial of the study has reported another number.
        """
        saved = self.state.saved
        stored = self.state.study.tokens_per_example or saved.tokens_per_example
        if tokens_per_example in (None, stored):
            return
        if stored is not None:
            raise RunError(
                "A script must report the same tokens_per_example in all trials. Found "
                f"{tokens_per_example:,} after {stored:,}. Correct the script and run again."
            )
        saved.tokens_per_example = tokens_per_example
        self._write_study()

    def set_population(self, population: int) -> None:
        """Store how many trials are trained together; the first job of a study settles it."""
        if self.state.saved.population is None:
            self.state.saved.population = population
            self.state.on_change()
            self._write_study()

    def set_framework(self, framework: str | None) -> None:
        """Store the framework that a script has reported, as in "torch 2.13"; the first one stays."""
        if framework is not None and self.state.saved.framework is None:
            name, _, version = framework.partition(" ")
            self.state.saved.framework = TrainerMetadata(name, version or None)
            self._write_study()

    def take_released(self) -> Released:
        """Return the states that engines need not hold any more since the last call."""
        released, self._released = self._released, Released()
        return released

    def _confirmed_half_life(self, point: int) -> dict[str, float]:
        """Return the half-life of the average that a confirmation measures: that of the trial that it confirms."""
        confirmed = self.state.sampled.confirmed_trial(point)
        parameters = {} if confirmed is None else self.records.trial(confirmed).parameters
        return {HALF_LIFE: parameters[HALF_LIFE]} if HALF_LIFE in parameters else {}

    def _assign_id(self, point: int) -> int:
        """Return the id of a point; a new range of ids is in ``study.json`` before any trial uses it."""
        trial_id = self.state.sampled.trial_id(point)
        if trial_id is None:
            trial_id = self.state.add_range(point)
            self._write_study()
        return trial_id

    # --- records ---------------------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Evaluate new results; True if there is something to write."""
        if self.done:
            return False
        self.state.refresh()
        state, recorder = self.state, self._recorder
        return bool(state.outcomes) or recorder.journal_due or recorder.refused or state.search_over

    def write_due(self, until: float) -> None:
        """Write what is due, as long as the monotonic clock is before ``until``; at least one thing."""
        self._recorder.repeat_refused()
        self.state.refresh()
        if self._recorder.journal_due:
            self._recorder.write_journals(until)
        while self.state.outcomes:
            self._record(*self.state.outcomes[0])
            if time.monotonic() >= until:
                return
        if self.state.search_over:
            self._leave_search()

    def write_journals(self, until: float = float("inf")) -> None:
        """Write all measurements in memory, so that they survive this process."""
        self._recorder.write_journals(until)

    def set_aside(self, problem: str) -> None:
        """Do nothing more here in this run: a person must look at the records."""
        self.problem = problem
        self.state.set_aside()

    def reopen(self) -> None:
        """Remove the result of a study that ended before and is trained further now."""
        if self.state.saved.result is not None:
            self.state.saved.result = None
            self._write_study()

    def close(self) -> None:
        """Release the study's lock."""
        self._recorder.close()

    def _write_study(self) -> None:
        self._recorder.write_study(self.state.saved.to_record(self.state.study, self.state.experiment))

    def _record(self, point: int, outcome: TrialOutcome) -> None:
        state, trial_id = self.state, self._assign_id(point)
        space = state.sampled.space
        parameters = {  # whole numbers where they are INTEGER
            name: int(value) if space[name].type is ParameterType.INTEGER else float(value)
            for name, value in state.sampled.values(point).items()
        } | self._confirmed_half_life(point)
        failed = state.current.points[point].failed
        seed, confirms = state.sampled.seed(point), state.sampled.confirmed_trial(point)
        trial = EndedTrial(trial_id, outcome, parameters, seed, state.search, point, failed, confirms)
        state.mark_recorded(point, outcome, self._recorder.commit(trial))
        if outcome.may_continue:
            self._released.finish[trial_id] = outcome.step
        else:
            self._released.discard.append(trial_id)

    # --- from search to search -------------------------------------------------------------------------------

    def _leave_search(self) -> None:
        """Continue with the next search, start one, confirm the best trials, or end: all trials are recorded."""
        self._drop_unneeded()
        if self.state.enter_next():
            return
        history, experiment = self.state.saved.history, self.state.experiment
        results = [result for result in self._recorder.results() if not history.is_confirmation(result.trial_id)]
        margin = experiment.search.edge_margin
        proposal = plan_next_search(results, history.spaces, margin, self.state.study.train_steps)
        if self.state.accepts(proposal):
            self.state.add_search(proposal)
            self._write_study()
        elif unconfirmed := unconfirmed_trials(results, history, experiment):
            self.state.add_confirmation(unconfirmed)
            self._write_study()
        else:
            self._end(proposal)

    def _drop_unneeded(self) -> None:
        """Discard trials that were started early and not needed; a run with more trials might need their states."""
        for trial_id in self.state.unneeded:
            self._recorder.discard(trial_id)
            self._released.finish[trial_id] = 0
        self.state.drop_unneeded()

    def _end(self, proposal: NextSearch) -> None:
        searches = self.state.searches
        result = StudyResult(
            goal_reached=any(p.reached_at is not None for s in searches for p in s.points),
            at_edge=tuple(EdgeEnd(edge.parameter, edge.side) for edge in proposal.edges),
            short=any(
                search.short
                for search, entry in zip(searches, self.state.saved.history.searches, strict=True)
                if not entry.confirms
            ),
        )
        if result != self.state.saved.result:
            self.state.saved.result = result
            self._write_study()
        self.state.end()


def unconfirmed_trials(results: Sequence[TrialResult], history: SearchHistory, experiment: Experiment) -> list[int]:
    """Return those of the best trials that are still to be trained again with new seeds: first those of one search."""
    if not experiment.confirm:
        return []
    reached = sorted((r.reached_at, r.trial_id) for r in results if r.reached_at is not None)
    best = [trial_id for _, trial_id in reached[: experiment.confirm_best]]
    unconfirmed = [trial_id for trial_id in best if trial_id not in history.confirmed]
    return [trial_id for trial_id in unconfirmed if history.locate(trial_id)[0] == history.locate(unconfirmed[0])[0]]


def open_study_run(root: Path, study: Study, experiment: Experiment, retry: bool = False) -> StudyRun:
    """Return the study in its folder, new or resumed; with ``retry`` INCOMPLETE trials are trained again.

    Raises:
        StudyLockedError: another process is writing it.
        DamagedStudyError: its file or one of its trials cannot be read, or belongs to another experiment.
        RecordsError: the existing study was not made by a run.
        RunError: an earlier run asked for more.
        StorageError: the file system refuses.
    """
    new = SavedStudy(budgets=[study.train_steps])
    new.history.add_search(study.space, first_trial_id=1)
    _require_study_file(StudyPaths.of(root, study.workload, study.batch_size), study)
    try:
        writer = open_study(root, new.to_record(study, experiment))
    except RecordsError as error:
        raise DamagedStudyError(str(error)) from None  # the folder is this experiment's: other studies continue
    try:
        saved = SavedStudy.from_record(writer.record, str(writer.folder))
        _require_growth(writer.record, saved, study, experiment, str(writer.folder))
        if study.train_steps > saved.budgets[-1]:
            saved.budgets.append(study.train_steps)
        study = saved.apply_to(study, experiment)
        recorder = Recorder(writer, study.goal, study.evaluation_steps, study.half_lives)
        run = StudyRun(StudyState(study, experiment, saved, recorder.read_summaries(retry)), recorder)
        record = saved.to_record(study, experiment)
        if record.to_json() != writer.record.to_json():
            recorder.write_study(record)
    except BaseException:
        writer.close()
        raise
    return run


def _require_study_file(paths: StudyPaths, study: Study) -> None:
    """Refuse trials without a readable ``study.json``: only there is stored which search each trial belongs to."""
    advice = "Restore it from a copy, or move the folder out of the tree, and run again."
    if paths.study_file.exists():
        try:
            parse_study(read_file(paths.study_file), study.workload, str(paths.study_file))
        except RecordsError as error:
            raise DamagedStudyError(f"{error} {advice}") from None
    elif paths.folder.is_dir() and (trials := [p for p in paths.folder.iterdir() if folder_number(p.name) is not None]):
        raise DamagedStudyError(
            f"{paths.study_file}: a study's trials belong to the searches that this file lists. Found {len(trials)} "
            f"trial(s) without it. {advice}"
        )


def _require_growth(record: StudyRecord, saved: SavedStudy, study: Study, experiment: Experiment, path: str) -> None:
    """Refuse a plan smaller than the study; the folder's ``experiment.json``, which is checked first, may be lost."""
    assert record.metadata is not None  # a study without was refused before
    pairs = {
        "trials": (record.metadata.trials, study.trials),
        "finishers": (record.metadata.finishers, experiment.finishers),
        "step budget": (saved.budgets[-1], study.train_steps),
    }
    lower = [
        f"{name} {recorded} recorded, {requested} requested"
        for name, (recorded, requested) in pairs.items()
        if recorded is not None and requested < recorded
    ]
    if lower:
        raise RunError(f"{path}: a recorded study may only grow. Found {'; '.join(lower)}.")
