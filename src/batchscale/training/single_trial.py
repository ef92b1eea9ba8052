"""One trial from the command line: trained from evaluation to evaluation, recorded in a records tree as it goes."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from batchscale import __version__
from batchscale.errors import RunError
from batchscale.protocol.tasks import Row, TrialProgress, TrialTask
from batchscale.records.facts import StudyFacts, Timing, TrialFacts
from batchscale.records.model import Status, StudyRecord, TrialRecord
from batchscale.records.tree.measurements import Measurement
from batchscale.records.tree.open_study import open_study
from batchscale.records.tree.writer import StudyWriter
from batchscale.spec import EvaluationPlan, Goal, ParameterConfig, ParameterType, SearchSpace, StopRule, Study
from batchscale.training.hardware import describe_hardware
from batchscale.training.settings import EngineSettings
from batchscale.training.study_engine import StudyEngine
from batchscale.workloads.workload import Workload


@dataclass(frozen=True)
class SingleTrial:
    """What is to be trained: everything but the workload itself.

    ``early_stop`` ends the trial at its first measurement that reaches it. ``out`` is the records tree, if any;
    ``resume`` goes on with the trial that is there instead of starting a new one.
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
class TrialOutcome:
    """How the trial ended: ``stop_reason`` is budget, goal, diverged or stopped."""

    trial_id: int
    steps: int
    stop_reason: str
    timing: Mapping[str, float]


def train_single(
    workload: Workload, trial: SingleTrial, show: Callable[[Row, TrialProgress], None], should_stop: Callable[[], bool]
) -> TrialOutcome:
    """Trains the trial and shows each measurement as soon as it is taken."""
    study = _as_study(workload, trial)
    with ExitStack() as stack:
        log = stack.enter_context(TrialLog(trial, study)) if trial.out else None
        settings = replace(trial.settings, population=1, checkpoint_dir=log.checkpoint_dir if log else None)
        engine = StudyEngine(workload, study, trial.evaluation, settings)
        trial_id, from_step = (log.trial_id, log.last_step) if log else (1, -1)
        task = TrialTask(trial_id, trial.parameters, trial.seed, trial.steps, from_step)
        last: TrialProgress | None = None
        for progress in _pieces(engine, study, task, trial.early_stop, should_stop):
            for row in progress.rows:
                show(row, progress)
            if log:
                log.append(progress.rows)
            last = progress
        assert last is not None
        outcome = TrialOutcome(trial_id, last.step, _reason(last, trial), dict(last.timing))
        if log:
            engine.save(trial_id)
            log.finish(outcome)
        return outcome


def _pieces(
    engine: StudyEngine, study: Study, task: TrialTask, goal: Goal | None, should_stop: Callable[[], bool]
) -> Iterator[TrialProgress]:
    """The progress of the trial after each of its evaluation steps."""
    seen = task.from_step
    for until in [step for step in study.evaluation_steps if step > seen] or [task.until_step]:
        (progress,) = engine.advance([replace(task, until_step=until, from_step=seen)], should_stop, goal)
        yield progress
        seen = max([seen, *(step for step, _ in progress.rows)])
        if progress.diverged_at is not None or progress.step < until or should_stop():
            return
        if goal and any(goal.is_reached_by(values[goal.metric]) for _, values in progress.rows):
            return


def _reason(last: TrialProgress, trial: SingleTrial) -> str:
    goal = trial.early_stop
    if last.diverged_at is not None:
        return "diverged"
    if goal and last.rows and goal.is_reached_by(last.rows[-1][1][goal.metric]):
        return "goal"
    return "budget" if last.step >= trial.steps else "stopped"


def _as_study(workload: Workload, trial: SingleTrial) -> Study:
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


class TrialLog:
    """The trial's place in a records tree: measurements as they come, the trial whole at its end."""

    def __init__(self, trial: SingleTrial, study: Study) -> None:
        assert trial.out is not None
        self._trial, self._study = trial, study
        self._writer: StudyWriter = open_study(trial.out, self._record(study.space, study.train_steps))
        try:
            self.trial_id, self.last_step = self._find()
        except BaseException:
            self._writer.close()
            raise

    @property
    def checkpoint_dir(self) -> Path:
        """Where the checkpoints of the study's trials are."""
        return self._writer.working_folder / "checkpoints"

    def __enter__(self) -> "TrialLog":
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def append(self, rows: tuple[Row, ...]) -> None:
        """Keeps measurements; they survive the death of the process."""
        self._writer.append(self.trial_id, [Measurement(step, dict(values)) for step, values in rows], sync=False)

    def finish(self, outcome: TrialOutcome) -> None:
        """Commits the trial, unless it was stopped on the way."""
        if outcome.stop_reason == "stopped":
            return
        known = self._writer.record
        self._writer.update(
            self._record(_merge(known.space, self._study.space), max(known.train_steps, self._study.train_steps))
        )
        facts = TrialFacts(
            seed=self._trial.seed,
            search=1,
            stop_reason=outcome.stop_reason,
            timing=Timing.of(outcome.timing),
            hardware=describe_hardware(),
        )
        status = Status.INFEASIBLE if outcome.stop_reason == "diverged" else Status.COMPLETE
        self._writer.commit(
            TrialRecord(
                self.trial_id,
                status,
                outcome.steps,
                dict(self._trial.parameters),
                facts,
            )
        )

    def _find(self) -> tuple[int, int]:
        """The trial's id and the last step that is measured already."""
        committed, running = self._writer.committed_trials(), self._writer.running_trials()
        if not self._trial.resume:
            return max([0, *committed, *running]) + 1, -1
        if not committed and not running:
            raise RunError(f"--resume needs a trial to go on with. Found none in {self._writer.folder}.")
        trial_id = max(running, default=0) or max(committed)
        if trial_id in committed:
            self._require_same(committed[trial_id])
            self._writer.reopen(trial_id)
        table = self._writer.journal(trial_id)
        return trial_id, table.steps[-1] if table and len(table.steps) else -1

    def _require_same(self, record: TrialRecord) -> None:
        seed = record.facts.seed if record.facts is not None else None
        if dict(record.parameters) != dict(self._trial.parameters) or seed != self._trial.seed:
            raise RunError(
                f"--resume goes on with trial {record.trial_id} of {self._writer.folder}, which has the metaparameters "
                f"{dict(record.parameters)} and seed {seed}. Found {dict(self._trial.parameters)} and seed "
                f"{self._trial.seed}; give the same, or leave --resume out to train a new trial."
            )

    def _record(self, space: SearchSpace, train_steps: int) -> StudyRecord:
        return StudyRecord(
            workload=self._study.workload,
            batch_size=self._study.batch_size,
            train_steps=train_steps,
            early_stopping=True,  # a single trial may have any early stop, and trials of one study may differ in it
            space=space,
            facts=StudyFacts(
                code_version=__version__, stop_rule="goal", num_train_examples=self._study.num_train_examples
            ),
        )


def _merge(known: SearchSpace, new: SearchSpace) -> SearchSpace:
    """The space of a study that holds single trials: every value that one of them has."""
    configs = {config.name: config for config in known}
    for config in new:
        points = configs[config.name].feasible_points if config.name in configs else ()
        merged = tuple(sorted({*points, *config.feasible_points}))
        configs[config.name] = ParameterConfig(config.name, ParameterType.DISCRETE, feasible_points=merged)
    return SearchSpace(tuple(configs.values()))
