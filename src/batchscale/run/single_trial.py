"""One trial from the command line: trained from evaluation to evaluation, and recorded in a study of single trials.

The metaparameters of single trials are given by hand, one trial at a time, with any seed and budget. The same trial,
asked for again, continues where it was, or is finished.
"""

import json
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from batchscale.errors import SpecError, one_line, suggest_names
from batchscale.run.single_study import Resume, SingleStudy, TrialValues
from batchscale.spec.durations import EvaluationPlan
from batchscale.spec.experiment import StopRule
from batchscale.spec.goal import Goal
from batchscale.spec.horizon_free import HALF_LIFE, Averaging, Branches
from batchscale.spec.plan import Study
from batchscale.spec.space import ParameterConfig, ParameterType, SearchSpace, replaced_names
from batchscale.study.search import SearchState
from batchscale.study.stop_rules.rule import SearchRules, find_rule
from batchscale.study.trial import Row, TrialProgress, TrialSummary, TrialTask
from batchscale.training.hosts import HostGroup, SingleHost
from batchscale.training.settings import EngineSettings
from batchscale.training.study_engine import StudyEngine
from batchscale.workloads.workload import Workload


@dataclass(frozen=True)
class SingleTrial:
    """The trial to train: everything but the workload itself.

    ``early_stop`` ends the trial at its first measurement that reaches it. ``out`` is the records tree, if any, whose
    trial with the same values is continued as ``resume`` says; ``workload_options`` are one of these values.
    ``half_lives`` are those of the averages of the weights, of which the best by ``goal`` is measured; a metaparameter
    ``averaging_half_life`` is used instead of them. With ``branches`` each measurement is the end of a branch.
    """

    batch_size: int
    steps: int
    parameters: Mapping[str, float]
    evaluation: EvaluationPlan
    seed: int = 0
    early_stop: Goal | None = None
    out: Path | None = None
    resume: Resume = Resume.IF_THERE
    workload_options: str | None = None
    goal: Goal | None = None
    half_lives: tuple[float, ...] = ()
    branches: Branches | None = None
    settings: EngineSettings = field(default_factory=EngineSettings)
    tokens_per_example: int | None = None


@dataclass(frozen=True)
class TrialStart:
    """The start of a trial: ``action`` is "started", "continued" or "finished" (there is nothing to train).

    ``last_row`` is its last measurement so far. ``unfinished`` are trials with other values in the same folder.
    """

    trial_id: int
    action: str
    last_row: Row | None = None
    unfinished: Mapping[int, str] = field(default_factory=dict)


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
Announce = Callable[[TrialStart], None]


def train_single(
    workload: Workload,
    trial: SingleTrial,
    show: Show,
    should_stop: Callable[[], bool],
    hosts: HostGroup | None = None,
    announce: Announce = lambda _start: None,
) -> SingleTrialResult:
    """Train the trial and show each measurement as soon as it is taken; ``announce`` is called before the first.

    With several ``hosts`` all of them call this; the chief alone reads and writes records.
    """
    _require_known(workload, trial.parameters)
    study = _make_study(workload, trial)
    group = hosts or SingleHost()
    with ExitStack() as stack:
        out = trial.out if group.is_chief else None
        values = TrialValues(trial.parameters, trial.seed, trial.workload_options)
        records = stack.enter_context(SingleStudy(out, study, values, trial.resume)) if out else None
        trial_id, summary = _share_summary(records, group)
        study = extend_to(study, summary.step)
        search = SearchState(SearchRules(find_rule(study.stop), study.evaluation_steps, 1, 1), [summary])
        if records and search.requests():
            records.begin()
        announce(_describe_start(trial_id, records, summary, finished=not search.requests()))
        result = SingleTrialResult(trial_id, max(summary.step, 0), "stopped", {})
        if search.requests():
            result = _train(workload, trial, study, search, records, result, show, should_stop, group)
        if search.requests():
            return result
        (outcome,) = search.outcomes()
        if records:
            records.commit(outcome)
        return replace(result, steps=outcome.step, stop_reason=outcome.reason)


def _train(
    workload: Workload,
    trial: SingleTrial,
    study: Study,
    search: SearchState,
    records: SingleStudy | None,
    result: SingleTrialResult,
    show: Show,
    should_stop: Callable[[], bool],
    group: HostGroup,
) -> SingleTrialResult:
    """Train until the search needs nothing more, or until any host is to stop."""
    (summary,) = search.points
    task = TrialTask(result.trial_id, trial.parameters, trial.seed, study.train_steps, summary.step)
    settings = replace(trial.settings, population=1, checkpoint_dir=records.checkpoint_dir if records else None)
    engine = StudyEngine(workload, study, trial.evaluation, settings, group)
    while search.requests() and not group.any("stop", should_stop()):
        progress, seconds = _advance(engine, study, replace(task, from_step=summary.step), should_stop)
        result = replace(result, timing=progress.timing, steps=progress.step)
        for row in progress.rows:
            show(row, progress)
        if records:
            records.add(progress, seconds, engine.hardware)
        summary.update(progress.rows, progress.diverged_at, study.goal)
        search.mark_changed()
    if records:
        engine.save(task.trial_id)
    return replace(result, idle_devices=engine.idle_devices)


def _describe_start(trial_id: int, records: SingleStudy | None, summary: TrialSummary, *, finished: bool) -> TrialStart:
    action = "finished" if finished else "started" if summary.step < 0 else "continued"
    if records is None:
        return TrialStart(trial_id, action)
    unfinished = {number: str(values) for number, values in records.unfinished.items()}
    return TrialStart(trial_id, action, records.rows[-1] if records.rows else None, unfinished)


def _require_known(workload: Workload, parameters: Mapping[str, float]) -> None:
    """Refuse metaparameters that the workload lacks before anything is written."""
    replaced = replaced_names(parameters, workload.defaults)
    for name in parameters:
        if name not in workload.defaults and name not in (HALF_LIFE, *replaced):
            raise SpecError(
                f"Workload {workload.name} has no metaparameter '{one_line(name)}'; "
                f"{suggest_names(name, workload.defaults)}"
            )
    given = {*parameters, *replaced.values()}
    missing = sorted(name for name, value in workload.defaults.items() if value is None and name not in given)
    if missing:
        raise SpecError(f"Workload {workload.name}: metaparameter '{missing[0]}' has no default; give it a value.")


def _share_summary(records: SingleStudy | None, hosts: HostGroup) -> tuple[int, TrialSummary]:
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
    metric = workload.metrics[0]
    goal = trial.early_stop or trial.goal or Goal(f"train/{metric.name}", 0.0, metric.maximize)
    half_life = trial.parameters.get(HALF_LIFE)
    evaluation_steps = trial.evaluation.in_steps(trial.batch_size, trial.tokens_per_example).steps(trial.steps)
    if trial.branches is not None:
        trial.branches.check(evaluation_steps, workload.defaults)
    return Study(
        workload=workload.name,
        batch_size=trial.batch_size,
        train_steps=trial.steps,
        evaluation_steps=evaluation_steps,
        space=SearchSpace(tuple(configs)),
        fixed={},
        trials=1,
        max_attempts=1,
        goal=goal,
        stop=StopRule.GOAL if trial.early_stop else StopRule.BUDGET,
        seed=trial.seed,
        num_train_examples=workload.dataset.num_train_examples,
        tokens_per_example=trial.tokens_per_example,
        half_lives=trial.half_lives if half_life is None else Averaging((half_life,)).steps(trial.batch_size),
        branches=trial.branches,
    )


def extend_to(study: Study, step: int) -> Study:
    """Return the study with a step budget of at least this: earlier measurements are never cut off."""
    if step <= study.train_steps:
        return study
    return replace(study, train_steps=step, evaluation_steps=(*study.evaluation_steps, step))
