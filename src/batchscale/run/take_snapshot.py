"""How a driver's run stands at this moment."""

import time
from collections.abc import Mapping
from itertools import pairwise

from batchscale.records.model import Status
from batchscale.records.summary import study_note
from batchscale.run.driver import Driver
from batchscale.run.snapshot import NewSearch, RangeChange, Snapshot, StudySnapshot, WorkerSnapshot
from batchscale.run.time_left import StudyWork, estimate_time_left
from batchscale.run.watch import Watch
from batchscale.spec.space import ParameterType, SearchSpace
from batchscale.study.stop_rules import find_rule
from batchscale.study.study_run import StudyRun

NO_FLIGHTS = Watch()


def take_snapshot(driver: Driver, elapsed_s: float) -> Snapshot:
    """How a driver's run stands now."""
    flights = driver.watch.by_study()
    studies = tuple(_study_snapshot(run, driver, flights) for run in driver.runs)
    experiment = driver.runs[0].state.experiment
    workers = max(1, len(driver.runner.workers))
    works = [_work(run, driver, flights) for run in driver.runs if not run.done]
    may_repeat = any(run.state.search <= experiment.search.repeats for run in driver.runs if not run.done)
    left = estimate_time_left(works, workers, find_rule(experiment.stop), may_repeat=may_repeat)
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


def _study_snapshot(run: StudyRun, driver: Driver, flights: Mapping[int, Watch]) -> StudySnapshot:
    state, pace = run.state, driver.dispatch.pace(run.batch_size)
    counts = run.records.counts
    tallies = [search.tally() for search in state.searches]
    known = state.current.tally().steps
    infeasible = counts[Status.INFEASIBLE]
    return StudySnapshot(
        batch_size=run.batch_size,
        search=state.search,
        done=run.done and run.problem is None,
        wanted=state.study.trials,
        complete=counts[Status.COMPLETE],
        infeasible=infeasible,
        incomplete=counts[Status.INCOMPLETE],
        running=state.waiting.num_busy,
        reached=sum(tally.reached for tally in tallies),
        best_steps=min((t.earliest_goal for t in tallies if t.earliest_goal is not None), default=None),
        front=max((tally.front for tally in tallies if tally.front is not None), default=0),
        train_steps=state.study.train_steps,
        share=1.0 if run.done else known / max(1, known + state.current.steps_left()[0]),
        trial_steps=pace.trial_steps + flights.get(run.batch_size, NO_FLIGHTS).steps(run.batch_size),
        seconds=pace.seconds,
        note=_study_note(run) if run.done else None,
        diverged=infeasible + sum(tally.diverging for tally in tallies),
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


def _work(run: StudyRun, driver: Driver, flights: Mapping[int, Watch]) -> StudyWork:
    steps, longest = run.state.current.steps_left()
    watch = flights.get(run.batch_size, NO_FLIGHTS)
    step_s = driver.dispatch.pace(run.batch_size).step_s
    if step_s is None:
        step_s = watch.step_s(run.batch_size)
    return StudyWork(run.batch_size, steps - min(steps, watch.steps(run.batch_size)), longest, step_s)
