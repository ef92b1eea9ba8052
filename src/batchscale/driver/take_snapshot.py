"""How a driver's run stands at this moment."""

import time

from batchscale.driver.driver import Driver
from batchscale.driver.snapshot import Snapshot, StudySnapshot
from batchscale.protocol.study_run import StudyRun
from batchscale.records.model import Status
from batchscale.records.notes import study_note


def take_snapshot(driver: Driver, elapsed_s: float) -> Snapshot:
    """How a driver's run stands now."""
    studies = tuple(_study_snapshot(run, driver) for run in driver.runs)
    experiment = driver.runs[0].state.experiment
    workers = max(1, len(driver.runner.workers))
    left = [_seconds_left(run, driver) for run in driver.runs if not run.done]
    known = [seconds for seconds in left if seconds is not None]
    all_known = len(known) == len(left)
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
        time_left_s=sum(known) / workers if all_known else None,
        finished=all(run.done and run.problem is None for run in driver.runs),
        paused=driver.paused,
        failures={loss.value: count for loss, count in driver.failures.counts.items()},
        given_up=driver.failures.given_up,
        notice=notices[-1] if notices else None,
        studies=studies,
    )


def _study_snapshot(run: StudyRun, driver: Driver) -> StudySnapshot:
    state, pace = run.state, driver.dispatch.pace(run.batch_size)
    statuses = [record.status for record in run.records.values()]
    points = [point for search in state.searches for point in search.points]
    reached = [point.reached_at for point in points if point.reached_at is not None]
    known = sum(max(p.step, 0) for p in state.current.points)
    return StudySnapshot(
        batch_size=run.batch_size,
        search=state.search,
        done=run.done and run.problem is None,
        wanted=state.study.trials,
        complete=statuses.count(Status.COMPLETE),
        infeasible=statuses.count(Status.INFEASIBLE),
        incomplete=statuses.count(Status.INCOMPLETE),
        running=state.num_busy,
        reached=len(reached),
        best_steps=min(reached, default=None),
        front=max((p.step for p in points), default=0),
        train_steps=state.study.train_steps,
        share=1.0 if run.done else known / max(1, known + _steps_left(run)),
        trial_steps=pace.trial_steps,
        seconds=pace.seconds,
        note=_study_note(run) if run.done else None,
    )


def _study_note(run: StudyRun) -> str | None:
    finding = run.state.memory.finding
    edges = ", ".join(map(str, finding.at_edge)) if finding is not None else None
    return study_note(edges, len(run.state.searches), short=finding is not None and finding.short)


def _steps_left(run: StudyRun) -> int:
    search = run.state.current
    return sum(need.until - max(search.step_of(need.point), 0) for need in search.needs())


def _seconds_left(run: StudyRun, driver: Driver) -> float | None:
    step_s = driver.dispatch.pace(run.batch_size).step_s
    return None if step_s is None else step_s * _steps_left(run)
