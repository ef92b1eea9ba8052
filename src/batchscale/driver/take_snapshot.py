"""How a driver's run stands at this moment."""

import time
from itertools import pairwise

from batchscale.driver.driver import Driver
from batchscale.driver.snapshot import NewSearch, RangeChange, Snapshot, StudySnapshot, WorkerSnapshot
from batchscale.driver.time_left import StudyWork, estimate_time_left
from batchscale.protocol.study_run import StudyRun
from batchscale.records.model import Status
from batchscale.records.notes import study_note
from batchscale.spec import ParameterType, SearchSpace


def take_snapshot(driver: Driver, elapsed_s: float) -> Snapshot:
    """How a driver's run stands now."""
    studies = tuple(_study_snapshot(run, driver) for run in driver.runs)
    experiment = driver.runs[0].state.experiment
    workers = max(1, len(driver.runner.workers))
    works = [_work(run, driver) for run in driver.runs if not run.done]
    may_repeat = any(run.state.search <= experiment.search.repeats for run in driver.runs if not run.done)
    left = estimate_time_left(works, workers, experiment.stop, may_repeat=may_repeat)
    problems = [run.problem for run in driver.runs if run.problem is not None]
    notices = [*driver.runner.notices, *problems]
    return Snapshot(
        workload=str(experiment.workload.name),
        goal=str(experiment.goal),
        source=experiment.source,
        written_at=time.time(),
        elapsed_s=elapsed_s,
        workers=workers,
        steps_per_s=sum(s.trial_steps for s in studies) / max(elapsed_s, 1e-9),
        time_left_s=None if left is None else left.seconds,
        finished=all(run.done and run.problem is None for run in driver.runs),
        paused=driver.paused,
        failures={loss.value: count for loss, count in driver.failures.counts.items()},
        given_up=driver.failures.given_up,
        notice=notices[-1] if notices else None,
        studies=studies,
        time_left_assumes=() if left is None else left.assumes,
        doing=() if all(run.done for run in driver.runs) else _workers(driver),
    )


def _study_snapshot(run: StudyRun, driver: Driver) -> StudySnapshot:
    state, pace = run.state, driver.dispatch.pace(run.batch_size)
    statuses = [record.status for record in run.records.values()]
    points = [point for search in state.searches for point in search.points]
    reached = [point.reached_at for point in points if point.reached_at is not None]
    known = sum(max(p.step, 0) for p in state.current.points)
    infeasible = statuses.count(Status.INFEASIBLE)
    return StudySnapshot(
        batch_size=run.batch_size,
        search=state.search,
        done=run.done and run.problem is None,
        wanted=state.study.trials,
        complete=statuses.count(Status.COMPLETE),
        infeasible=infeasible,
        incomplete=statuses.count(Status.INCOMPLETE),
        running=state.num_busy,
        reached=len(reached),
        best_steps=min(reached, default=None),
        front=max((p.step for p in points), default=0),
        train_steps=state.study.train_steps,
        share=1.0 if run.done else known / max(1, known + sum(_steps_left(run))),
        trial_steps=pace.trial_steps + driver.watch.steps(run.batch_size),
        seconds=pace.seconds,
        note=_study_note(run) if run.done else None,
        diverged=infeasible + sum(p.diverged_at is not None and p.recorded is None for p in points),
        new_searches=_new_searches(run),
    )


def _study_note(run: StudyRun) -> str | None:
    finding = run.state.memory.finding
    edges = ", ".join(map(str, finding.at_edge)) if finding is not None else None
    return study_note(edges, len(run.state.searches), short=finding is not None and finding.short)


def _new_searches(run: StudyRun) -> tuple[NewSearch, ...]:
    searches = run.state.memory.ledger.searches
    return tuple(
        NewSearch(number, search.reason, _changes(before.space, search.space))
        for number, (before, search) in enumerate(pairwise(searches), 2)
    )


def _changes(before: SearchSpace, after: SearchSpace) -> tuple[RangeChange, ...]:
    moved = [c for c in after if c.type is not ParameterType.DISCRETE and c != before[c.name]]
    return tuple(
        RangeChange(c.name, (before[c.name].min_value, before[c.name].max_value), (c.min_value, c.max_value))
        for c in moved
    )


def _workers(driver: Driver) -> tuple[WorkerSnapshot, ...]:
    now = time.monotonic()
    budgets = {run.batch_size: run.state.study.train_steps for run in driver.runs}
    found = []
    for worker in driver.runner.workers:
        flight = driver.watch.flights.get(worker.worker_id)
        busy = driver.runner.waiting(worker.worker_id) > 0
        if flight is None or not busy:
            found.append(WorkerSnapshot(worker.worker_id, "starting" if busy else "waiting"))
            continue
        doing = flight.doing
        found.append(
            WorkerSnapshot(
                worker.worker_id,
                doing.activity.value,
                doing.batch_size,
                doing.trial_ids,
                doing.step,
                budgets[doing.batch_size],
                now - flight.since_s,
            )
        )
    return tuple(found)


def _steps_left(run: StudyRun) -> list[int]:
    search = run.state.current
    return [need.until - max(search.step_of(need.point), 0) for need in search.needs()]


def _work(run: StudyRun, driver: Driver) -> StudyWork:
    steps = _steps_left(run)
    step_s = driver.dispatch.pace(run.batch_size).step_s
    if step_s is None:
        step_s = driver.watch.step_s(run.batch_size)
    under_way = min(sum(steps), driver.watch.steps(run.batch_size))
    return StudyWork(run.batch_size, sum(steps) - under_way, max(steps, default=0), step_s)
