"""One trial from the command line: trained from evaluation to evaluation, and recorded in a study of single trials.

The metaparameters of single trials are given by hand, one trial at a time, with any seed and budget. The recorder of
all studies writes them; it is another kind of study because no search assigns a point to each trial.
"""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from batchscale import __version__
from batchscale.errors import RunError
from batchscale.records.durable import replace_durably
from batchscale.records.metadata.study import StudyMetadata
from batchscale.records.metadata.trial import Hardware
from batchscale.records.model import StudyRecord
from batchscale.records.tree.open_study import open_study
from batchscale.spec.durations import EvaluationPlan
from batchscale.spec.experiment import StopRule
from batchscale.spec.goal import Goal
from batchscale.spec.plan import Study
from batchscale.spec.space import ParameterConfig, ParameterType, SearchSpace
from batchscale.study.recorder import EndedTrial, Recorder
from batchscale.study.search import SearchState
from batchscale.study.stop_rules.rule import SearchRules, find_rule
from batchscale.study.trial import Row, TrialOutcome, TrialProgress, TrialSummary, TrialTask
from batchscale.training.hosts import HostGroup, SingleHost
from batchscale.training.settings import EngineSettings
from batchscale.training.study_engine import StudyEngine
from batchscale.workloads.workload import Workload

# --- training ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SingleTrial:
    """The trial to train: everything but the workload itself.

    ``early_stop`` ends the trial at its first measurement that reaches it. ``out`` is the records tree, if any;
    ``resume`` continues the last trial there instead of starting a new one.
    """

    batch_size: int
    steps: int
    parameters: Mapping[str, float]
    evaluation: EvaluationPlan
    seed: int = 0
    early_stop: Goal | None = None
    out: Path | None = None
    resume: bool = False
    settings: EngineSettings = field(default_factory=EngineSettings)


@dataclass(frozen=True)
class SingleTrialResult:
    """The end of the trial: ``stop_reason`` is budget, goal, diverged or stopped.

    ``idle_devices`` had nothing to do, because the batch could not be cut into so many parts.
    """

    trial_id: int
    steps: int
    stop_reason: str
    timing: Mapping[str, float]
    idle_devices: int = 0


Show = Callable[[Row, TrialProgress], None]


def train_single(
    workload: Workload,
    trial: SingleTrial,
    show: Show,
    should_stop: Callable[[], bool],
    hosts: HostGroup | None = None,
) -> SingleTrialResult:
    """Train the trial and show each measurement as soon as it is taken.

    With several ``hosts`` all of them call this; the chief alone reads and writes records.
    """
    study = _make_study(workload, trial)
    group = hosts or SingleHost()
    with ExitStack() as stack:
        out = trial.out if group.is_chief else None
        records = stack.enter_context(SingleStudy(out, study, trial.resume)) if out else None
        trial_id, summary = _share_summary(records, group)
        study = extend_to(study, summary.step)
        task = TrialTask(trial_id, trial.parameters, trial.seed, study.train_steps, summary.step)
        if records:
            records.begin(task)
        search = SearchState(SearchRules(find_rule(study.stop), study.evaluation_steps, 1, 1), [summary])
        settings = replace(trial.settings, population=1, checkpoint_dir=records.checkpoint_dir if records else None)
        engine = StudyEngine(workload, study, trial.evaluation, settings, group)
        timing: Mapping[str, float] = {}
        step = max(summary.step, 0)
        while search.requests() and not group.any("stop", should_stop()):
            progress, seconds = _advance(engine, study, replace(task, from_step=summary.step), should_stop)
            timing, step = progress.timing, progress.step
            for row in progress.rows:
                show(row, progress)
            if records:
                records.add(progress, seconds, engine.hardware)
            summary.update(progress.rows, progress.diverged_at, study.goal)
            search.mark_changed()
        if records:
            engine.save(task.trial_id)
        if search.requests():
            return SingleTrialResult(task.trial_id, step, "stopped", timing, engine.idle_devices)
        (outcome,) = search.outcomes()
        if records:
            records.commit(outcome, task)
        return SingleTrialResult(task.trial_id, outcome.step, outcome.reason, timing, engine.idle_devices)


def _share_summary(records: "SingleStudy | None", hosts: HostGroup) -> tuple[int, TrialSummary]:
    """Return the trial's id and its summary, as the chief has read them from its records."""
    local = (records.trial_id, asdict(records.summary)) if records else (1, asdict(TrialSummary()))
    trial_id, values = json.loads(hosts.share("summary", json.dumps(local).encode()))
    return trial_id, records.summary if records else TrialSummary(**values)


def _advance(
    engine: StudyEngine, study: Study, task: TrialTask, should_stop: Callable[[], bool]
) -> tuple[TrialProgress, float]:
    """Train the trial to its next evaluation step; return its progress and the seconds."""
    until = next(step for step in study.evaluation_steps if step > task.from_step)
    goal = study.goal if find_rule(study.stop).ends_at_goal else None
    started = time.monotonic()
    (progress,) = engine.advance([replace(task, until_step=until)], should_stop, goal)
    return progress, time.monotonic() - started


def _make_study(workload: Workload, trial: SingleTrial) -> Study:
    configs = [
        ParameterConfig(name, ParameterType.DISCRETE, feasible_points=(value,))
        for name, value in trial.parameters.items()
    ]
    goal = trial.early_stop or Goal(f"train/{workload.metrics[0].name}", 0.0, workload.metrics[0].maximize)
    return Study(
        workload=workload.name,
        batch_size=trial.batch_size,
        train_steps=trial.steps,
        evaluation_steps=trial.evaluation.steps(trial.steps),
        space=SearchSpace(tuple(configs)),
        fixed={},
        trials=1,
        max_attempts=1,
        goal=goal,
        stop=StopRule.GOAL if trial.early_stop else StopRule.BUDGET,
        seed=trial.seed,
        num_train_examples=workload.dataset.num_train_examples,
    )


def extend_to(study: Study, step: int) -> Study:
    """Return the study with a step budget of at least this: earlier measurements are never cut off."""
    if step <= study.train_steps:
        return study
    return replace(study, train_steps=step, evaluation_steps=(*study.evaluation_steps, step))


# --- records ----------------------------------------------------------------------------------------------------


class SingleStudy:
    """The records of the trial that is trained now, beside those of earlier trials in the same folder.

    ``summary`` is that of the trial: empty, or as far as it was trained when it is resumed.
    """

    def __init__(self, root: Path, study: Study, resume: bool) -> None:
        self._study = study
        self._writer = open_study(root, _to_record(study, None))
        try:
            self._require_single()
            self._recorder = Recorder(self._writer, study.goal, evaluation_steps=None)
            self.trial_id = self._find_trial(resume)
            self.summary = self._recorder.read_summary(self.trial_id) if resume else TrialSummary()
        except BaseException:
            self._writer.close()
            raise

    @property
    def checkpoint_dir(self) -> Path:
        """The folder of the checkpoints of the study's trials."""
        return self._writer.checkpoints

    def begin(self, task: TrialTask) -> None:
        """Store the metaparameters and the seed of the trial until it is recorded; refuse to resume another one.

        Raises:
            RunError: the trial was begun, or recorded, with other metaparameters or another seed.
        """
        requested = {"parameters": dict(task.parameters), "seed": task.seed}
        stored = self._read_choice()
        if stored is not None and stored != requested:
            raise RunError(
                f"--resume continues trial {self.trial_id} of {self._writer.folder}, which has the metaparameters "
                f"{stored['parameters']} and seed {stored['seed']}. Found {requested['parameters']} and seed "
                f"{task.seed}; give the same, or leave --resume out to train a new trial."
            )
        if stored is None:
            replace_durably(self._writer.chosen(self.trial_id), json.dumps(requested) + "\n")

    def add(self, progress: TrialProgress, seconds: float, hardware: Hardware | None) -> None:
        """Write new measurements to the journal, where they survive this process."""
        rows = [row for row in progress.rows if row[0] > self.summary.step]
        self._recorder.add(progress, rows, seconds, hardware)
        self._recorder.write_journals()

    def commit(self, outcome: TrialOutcome, task: TrialTask) -> None:
        """Record the trial, unless it is recorded to this end already."""
        self._recorder.write_study(_to_record(self._study, self._writer.record))
        if self.summary.recorded != outcome.step:
            parameters = dict(task.parameters)
            self._recorder.commit(EndedTrial(self.trial_id, outcome, parameters, task.seed, search=1, point=0))
        self._writer.chosen(self.trial_id).unlink(missing_ok=True)

    def _read_choice(self) -> dict[str, Any] | None:
        """Return the stored metaparameters and seed of the trial; None if there are none."""
        record = self._recorder.records.get(self.trial_id)
        if record is not None and self.summary.recorded is not None:
            return {"parameters": dict(record.parameters), "seed": record.metadata.seed if record.metadata else None}
        try:
            stored = json.loads(self._writer.chosen(self.trial_id).read_bytes())
            return {"parameters": dict(stored["parameters"]), "seed": stored["seed"]}
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def __enter__(self) -> "SingleStudy":
        return self

    def __exit__(self, *_: object) -> None:
        self._recorder.close()

    def _require_single(self) -> None:
        metadata = self._writer.record.metadata
        if metadata is not None and metadata.searches:
            raise RunError(
                f"{self._writer.folder}: a study belongs to one experiment. Found one of 'batchscale run', to which no "
                "single trial can be added; give another --out."
            )

    def _find_trial(self, resume: bool) -> int:
        recorded, journaled = self._recorder.records, self._recorder.journaled
        if not resume:
            ids: list[int] = [0, *recorded, *journaled, *self._writer.damaged_trials]
            return max(ids) + 1
        if not recorded and not journaled:
            raise RunError(f"--resume needs a trial to continue. Found none in {self._writer.folder}.")
        return max(journaled, default=0) or max(recorded)


def _to_record(study: Study, existing: StudyRecord | None) -> StudyRecord:
    """Return the ``study.json`` of a trial and of those before it."""
    before = StudyMetadata() if existing is None or existing.metadata is None else existing.metadata
    stops_early = find_rule(study.stop).stops_early
    metadata = replace(
        before,
        code_version=__version__,
        stop_rule=str(study.stop) if stops_early else before.stop_rule or str(study.stop),
        seed=study.seed,
        goal=str(study.goal) if stops_early else before.goal,
        num_train_examples=study.num_train_examples or before.num_train_examples,
    )
    return StudyRecord(
        workload=study.workload,
        batch_size=study.batch_size,
        train_steps=study.train_steps if existing is None else max(existing.train_steps, study.train_steps),
        early_stopping=True,  # a single trial may have any early stop, and trials of one study may differ in it
        space=study.space if existing is None else _merge_spaces(existing.space, study.space),
        metadata=metadata,
        extra={} if existing is None else existing.extra,
    )


def _merge_spaces(existing: SearchSpace, new: SearchSpace) -> SearchSpace:
    """Return the space of a study of single trials: every value that one of them has."""
    configs = {config.name: config for config in existing}
    for config in new:
        points = configs[config.name].feasible_points if config.name in configs else ()
        merged = tuple(sorted({*points, *config.feasible_points}))
        configs[config.name] = ParameterConfig(config.name, ParameterType.DISCRETE, feasible_points=merged)
    return SearchSpace(tuple(configs.values()))
