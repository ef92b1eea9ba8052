"""One trial from the command line: a study of one, trained from evaluation to evaluation and recorded as it goes."""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from batchscale.spec.durations import EvaluationPlan
from batchscale.spec.experiment import StopRule
from batchscale.spec.goal import Goal
from batchscale.spec.plan import Study
from batchscale.spec.space import ParameterConfig, ParameterType, SearchSpace
from batchscale.study.knowledge import Knowledge
from batchscale.study.search_rules import SearchRules
from batchscale.study.search_state import SearchState
from batchscale.study.single_study import SingleStudy, extend_to
from batchscale.study.stop_rules import find_rule
from batchscale.study.tasks import Row, TrialProgress, TrialTask
from batchscale.training.host_group import HostGroup, SingleHost
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
    """How the trial ended: ``stop_reason`` is budget, goal, diverged or stopped.

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
) -> TrialOutcome:
    """Trains the trial and shows each measurement as soon as it is taken.

    With several ``hosts`` all of them call this; the chief alone reads and writes records.
    """
    study = _as_study(workload, trial)
    group = hosts or SingleHost()
    with ExitStack() as stack:
        records = trial.out if group.is_chief else None
        log = stack.enter_context(SingleStudy(records, study, trial.resume)) if records else None
        trial_id, known = _share_known(log, group)
        study = extend_to(study, known.step)
        task = TrialTask(trial_id, trial.parameters, trial.seed, study.train_steps, known.step)
        if log:
            log.begin(task)
        search = SearchState(SearchRules(find_rule(study.stop), study.evaluation_steps, 1, 1), [known])
        settings = replace(trial.settings, population=1, checkpoint_dir=log.checkpoint_dir if log else None)
        engine = StudyEngine(workload, study, trial.evaluation, settings, group)
        timing: Mapping[str, float] = {}
        step = max(known.step, 0)
        while search.needs() and not group.any("go on", should_stop()):
            progress, seconds = _advance(engine, study, replace(task, from_step=known.step), should_stop)
            timing, step = progress.timing, progress.step
            for row in progress.rows:
                show(row, progress)
            if log:
                log.add(progress, seconds, engine.hardware)
            known.learn(progress.rows, progress.diverged_at, study.goal)
            search.changed()
        if log:
            engine.save(task.trial_id)
        if search.needs():
            return TrialOutcome(task.trial_id, step, "stopped", timing, engine.idle_devices)
        (ending,) = search.endings()
        if log:
            log.commit(ending, task)
        return TrialOutcome(task.trial_id, ending.step, ending.reason, timing, engine.idle_devices)


def _share_known(log: SingleStudy | None, hosts: HostGroup) -> tuple[int, Knowledge]:
    """The trial's id and what is known of it: what the chief has read of its records."""
    mine = (log.trial_id, asdict(log.known)) if log else (1, asdict(Knowledge()))
    trial_id, found = json.loads(hosts.share("known", json.dumps(mine).encode()))
    return trial_id, log.known if log else Knowledge(**found)


def _advance(
    engine: StudyEngine, study: Study, task: TrialTask, should_stop: Callable[[], bool]
) -> tuple[TrialProgress, float]:
    """The trial's progress to its next evaluation step, and the seconds that it took."""
    until = next(step for step in study.evaluation_steps if step > task.from_step)
    goal = study.goal if find_rule(study.stop).ends_at_goal else None
    started = time.monotonic()
    (progress,) = engine.advance([replace(task, until_step=until)], should_stop, goal)
    return progress, time.monotonic() - started


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
