"""Collect the status of a run from its loop, with an estimate of the time left."""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from batchscale.records.metadata.study import study_note
from batchscale.records.model import Status
from batchscale.run.loop import RunLoop
from batchscale.run.status import NewSearch, RangeChange, RunStatus, StudyStatus, WorkerStatus
from batchscale.spec.space import ParameterType, SearchSpace
from batchscale.study.stop_rules.rule import Rule, find_rule
from batchscale.study.study import StudyRun


def collect_status(loop: RunLoop, elapsed_s: float) -> RunStatus:
    """Return the present status of a run."""
    progress = loop.monitor.progress_by_study()
    studies = tuple(_study_status(run, loop, progress.get(run.batch_size, (0, 0.0))[0]) for run in loop.runs)
    experiment = loop.runs[0].state.experiment
    workers = max(1, len(loop.runner.workers))
    open_runs = [run for run in loop.runs if not run.done]
    remaining = [_remaining_work(run, loop, *progress.get(run.batch_size, (0, 0.0))) for run in open_runs]
    may_repeat = any(len(run.state.saved.history.spaces) <= experiment.search.repeats for run in open_runs)
    time_left = estimate_time_left(remaining, workers, find_rule(experiment.stop), may_repeat=may_repeat)
    problems = [run.problem for run in loop.runs if run.problem is not None]
    notices = [*loop.runner.notices, *problems]
    return RunStatus(
        workload=str(experiment.workload.name),
        goal=str(experiment.goal),
        source=experiment.source,
        written_at=time.time(),
        elapsed_s=elapsed_s,
        workers=workers,
        steps_per_s=sum(s.trial_steps for s in studies) / max(elapsed_s, 1e-9),
        time_left_s=None if time_left is None else time_left.seconds,
        finished=all(run.done and run.problem is None for run in loop.runs),
        paused=loop.paused,
        failures={loss.value: count for loss, count in loop.failures.counts.items()},
        given_up=loop.failures.given_up,
        notice=notices[-1] if notices else None,
        studies=studies,
        time_left_assumes=() if time_left is None else time_left.assumes,
        doing=_worker_statuses(loop) if open_runs else (),
    )


# --- studies ----------------------------------------------------------------------------------------------------


def _study_status(run: StudyRun, loop: RunLoop, steps_in_progress: int) -> StudyStatus:
    state, cost = run.state, loop.scheduler.cost(run.batch_size)
    recorded = run.records.counts
    entries = state.saved.history.searches
    counts = [search.counts() for search, entry in zip(state.searches, entries, strict=True) if not entry.confirms]
    trained = state.current.counts().steps
    infeasible = recorded[Status.INFEASIBLE]
    return StudyStatus(
        batch_size=run.batch_size,
        search=sum(not entry.confirms for entry in entries[: state.search]),
        done=run.done and run.problem is None,
        wanted=state.study.trials,
        confirmations=state.experiment.confirm * sum(len(entry.confirms) for entry in entries),
        complete=recorded[Status.COMPLETE],
        infeasible=infeasible,
        incomplete=recorded[Status.INCOMPLETE],
        running=state.queue.num_running,
        reached=sum(count.reached for count in counts),
        best_steps=min((count.earliest_goal for count in counts if count.earliest_goal is not None), default=None),
        front=max((count.front for count in counts if count.front is not None), default=0),
        train_steps=state.study.train_steps,
        share=1.0 if run.done else trained / max(1, trained + state.current.remaining_steps()[0]),
        trial_steps=cost.trial_steps + steps_in_progress,
        seconds=cost.seconds,
        note=_study_note(run) if run.done else None,
        diverged=infeasible + sum(count.diverging for count in counts),
        new_searches=_new_searches(run),
    )


def _study_note(run: StudyRun) -> str | None:
    result = run.state.saved.result
    edges = ", ".join(map(str, result.at_edge)) if result is not None else None
    return study_note(edges, len(run.state.saved.history.spaces), short=result is not None and result.short)


def _new_searches(run: StudyRun) -> tuple[NewSearch, ...]:
    searches = [search for search in run.state.saved.history.searches if not search.confirms]
    return tuple(
        NewSearch(number, search.reason, _range_changes(before.space, search.space))
        for number, (before, search) in enumerate(pairwise(searches), 2)
    )


def _range_changes(before: SearchSpace, after: SearchSpace) -> tuple[RangeChange, ...]:
    changed = [c for c in after if c.type is not ParameterType.DISCRETE and c != before[c.name]]
    return tuple(
        RangeChange(c.name, (before[c.name].min_value, before[c.name].max_value), (c.min_value, c.max_value))
        for c in changed
    )


# --- workers ----------------------------------------------------------------------------------------------------


def _worker_statuses(loop: RunLoop) -> tuple[WorkerStatus, ...]:
    now = time.monotonic()
    budgets = {run.batch_size: run.state.study.train_steps for run in loop.runs}
    statuses = []
    for worker in loop.runner.workers:
        job = loop.monitor.jobs.get(worker.worker_id)
        busy = loop.runner.waiting(worker.worker_id) > 0
        if job is None or not busy:
            statuses.append(WorkerStatus(worker.worker_id, "starting" if busy else "waiting"))
            continue
        doing = job.doing
        statuses.append(
            WorkerStatus(
                worker.worker_id,
                doing.activity.value,
                doing.batch_size,
                doing.trial_ids,
                doing.step,
                budgets[doing.batch_size],
                now - job.since_s,
            )
        )
    return tuple(statuses)


# --- time left --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RemainingWork:
    """The training that an unfinished study still needs, by its present results.

    ``steps`` counts all its trials, ``longest`` is the most that one of them needs. ``step_s`` is None for a study
    that was not timed yet.
    """

    batch_size: int
    steps: int
    longest: int
    step_s: float | None


@dataclass(frozen=True)
class TimeLeft:
    """The seconds, and the conditions under which they hold."""

    seconds: float
    assumes: tuple[str, ...] = ()


def _remaining_work(run: StudyRun, loop: RunLoop, steps_in_progress: int, seconds_in_progress: float) -> RemainingWork:
    steps, longest = run.state.current.remaining_steps()
    step_s = loop.scheduler.cost(run.batch_size).step_s
    if step_s is None and steps_in_progress:
        step_s = seconds_in_progress / steps_in_progress
    return RemainingWork(run.batch_size, steps - min(steps, steps_in_progress), longest, step_s)


def estimate_time_left(
    studies: Sequence[RemainingWork], workers: int, rule: Rule, *, may_repeat: bool = True
) -> TimeLeft | None:
    """Return the time that the work takes if the workers share it evenly; None while no step was timed.

    A batch size that was not timed is assumed to cost what the nearest timed one does: as much per example where it is
    larger, as much per step where it is smaller. Both are on the safe side, as larger batches use a device better.

    >>> from batchscale.study.stop_rules.rule import find_rule
    >>> studies = [RemainingWork(8, 1000, 100, 0.01), RemainingWork(32, 500, 100, None)]
    >>> estimate_time_left(studies, 2, find_rule("budget"), may_repeat=False)
    TimeLeft(seconds=15.0, assumes=('batch size 32 costs per example what 8 does',))
    """
    timed = {work.batch_size: work.step_s for work in studies if work.step_s is not None}
    if studies and not timed:
        return None
    seconds, longest = 0.0, 0.0
    guesses: list[str] = []
    for work in studies:
        step_s = timed.get(work.batch_size)
        if step_s is None:
            nearest = min(timed, key=lambda size: abs(math.log(size / work.batch_size)))
            step_s = timed[nearest] * max(1.0, work.batch_size / nearest)
            unit = "example" if work.batch_size > nearest else "step"
            guesses.append(f"batch size {work.batch_size:,} costs per {unit} what {nearest:,} does")
        seconds += step_s * work.steps
        longest = max(longest, step_s * work.longest)  # a trial cannot be shared by workers
    if len(guesses) > 1:
        guesses = [f"{len(guesses)} batch sizes that were not timed cost what the nearest timed one does"]
    conditions = []
    if studies and rule.saves_at_goal:
        conditions.append("no further trial reaches the goal")
    if studies and may_repeat:
        conditions.append("no study is searched again")
    return TimeLeft(max(seconds / workers, longest), (*conditions, *guesses))
