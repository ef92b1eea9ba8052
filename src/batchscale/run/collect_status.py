"""Collect the status of a run from its loop, with an estimate of the time left."""

import time
from itertools import pairwise

from batchscale.errors import one_line
from batchscale.records.metadata.study import study_note
from batchscale.records.model import Status
from batchscale.run.loop import RunLoop
from batchscale.run.status import NewSearch, RangeChange, RunStatus, StudyStatus, WorkerStatus
from batchscale.run.time_left import MeasuredCost, StudyWork, TimeLeft, estimate_time_left, finish_bounds
from batchscale.spec.adaptive import list_rounds
from batchscale.spec.space import ParameterType, SearchSpace
from batchscale.study.search import Work
from batchscale.study.stop_rules.rule import find_rule
from batchscale.study.study import StudyRun
from batchscale.study.trial import Activity

MAX_NOTICES = 3

SILENCE_S = 60.0
"""The time without a measurement after which a notice says so."""


def collect_status(loop: RunLoop, elapsed_s: float) -> RunStatus:
    """Return the present status of a run."""
    progress = loop.monitor.progress_by_study()
    studies = tuple(_study_status(run, loop, progress.get(run.batch_size, (0, 0.0))[0]) for run in loop.runs)
    experiment = loop.runs[0].state.experiment
    workers = max(1, len(loop.runner.workers))
    open_runs = [run for run in loop.runs if not run.done]
    time_left = _time_left(loop, workers)
    problems = [run.problem for run in loop.runs if run.problem is not None]
    notices = [*loop.runner.notices, *loop.tracking_notices, *_script_notices(loop), *problems]
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
        notice="\n".join(notices[-MAX_NOTICES:]) or None,
        studies=studies,
        time_left_assumes=() if time_left is None else time_left.assumes,
        doing=_worker_statuses(loop) if open_runs else (),
        choices=tuple(map(str, list_rounds(run.state.study.choices for run in loop.runs))),
    )


def _script_notices(loop: RunLoop) -> list[str]:
    """Return what is worth knowing early of a user's scripts: the first failure, and scripts that report nothing."""
    trainer = loop.runs[0].state.experiment.trainer
    if trainer is None:
        return []
    notices = [f"A trial failed. {one_line(loop.failures.first, 300)}"] if loop.failures.first else []
    now = time.monotonic()
    for job in loop.monitor.jobs.values():
        is_new = job.doing.activity is Activity.LOADING
        since, patience = (
            (job.since_s, SILENCE_S) if is_new else (job.updated_s, max(SILENCE_S, trainer.timeout_s / 12))
        )
        if now - since > patience and not job.finished:
            trials = ", ".join(map(str, job.doing.trial_ids[:3]))
            notices.append(
                f"No measurement for {patience:.0f} s from the script of batch size {job.doing.batch_size}, trial "
                f"{trials}, {'since it was started' if is_new else f'since step {job.doing.step}'}. It is killed after "
                f"{trainer.timeout_s:g} s (trainer.timeout_s)."
            )
    return notices


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
        tokens_per_example=state.study.tokens_per_example or state.saved.tokens_per_example,
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


def _time_left(loop: RunLoop, workers: int) -> TimeLeft | None:
    progress = loop.monitor.progress_by_study()
    costs, setups = {}, []
    for run in loop.runs:
        cost = loop.scheduler.cost(run.batch_size)
        steps, seconds = progress.get(run.batch_size, (0, 0.0))
        if cost.recent is not None:
            costs[run.batch_size] = cost.recent
        elif steps and seconds:  # a script that trains a trial in one job
            costs[run.batch_size] = MeasuredCost(seconds, steps)
        if cost.setup_s is not None:
            setups.append(cost.setup_s)
    finishes = [(run.batch_size, run.state.current.until) for run in loop.runs if _is_finish_known(run)]
    open_runs = [run for run in loop.runs if not run.done]
    studies = [StudyWork(run.batch_size, *_work_bounds(run, finishes), costs.get(run.batch_size)) for run in open_runs]
    may_repeat = any(len(run.state.saved.history.spaces) <= run.state.experiment.search.repeats for run in open_runs)
    setup_s = sorted(setups)[len(setups) // 2] if setups else 0.0
    return estimate_time_left(studies, workers, costs, setup_s, may_repeat=may_repeat)


def _is_finish_known(run: StudyRun) -> bool:
    """True if the trials of a study end at a step that others can be judged by: that of its last finisher."""
    return find_rule(run.state.experiment.stop).ends_together and run.state.current.until < run.state.study.train_steps


def _work_bounds(run: StudyRun, finishes: list[tuple[int, int]]) -> tuple[Work, Work]:
    """Return the least and the most training that a study still needs."""
    search, budget = run.state.current, run.state.study.train_steps
    rule = find_rule(run.state.experiment.stop)
    if not rule.saves_at_goal or _is_finish_known(run):
        return (search.remaining_work(search.until),) * 2
    counts = search.counts()
    low, high = max(counts.front or 0, 1), budget
    if rule.ends_together:
        low, high = finish_bounds(run.batch_size, low, budget, finishes)
    elif counts.reached:  # others that reach the goal end about where these did
        low = min(low, round(sum(trial.reached_at or 0 for trial in search.points) / counts.reached))
    return search.remaining_work(low), search.remaining_work(high)
