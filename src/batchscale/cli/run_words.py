"""How a run stands, in words: the lines of a log, of a pipe, and around the live table."""

from collections import Counter
from typing import TYPE_CHECKING

from batchscale.formatting import duration, metaparameter_text, rate, span_text

if TYPE_CHECKING:
    from batchscale.run.snapshot import NewSearch, Snapshot, StudySnapshot, WorkerSnapshot

MOST_WORKERS = 4
"""So many workers are told one by one; of more, how many do what."""


def describe_run(snapshot: "Snapshot") -> str:
    """One line: what is done, how fast, how long it may still take, and what went wrong."""
    done = sum(study.done for study in snapshot.studies)
    complete = sum(study.complete for study in snapshot.studies)
    infeasible = sum(_num_infeasible(study) for study in snapshot.studies)
    incomplete = sum(study.incomplete for study in snapshot.studies)
    running = sum(study.running for study in snapshot.studies)
    failed = f" {incomplete} incomplete," if incomplete else ""
    parts = [
        f"{duration(snapshot.elapsed_s)}",
        f"{done} of {len(snapshot.studies)} studies done",
        f"trials {complete} complete, {infeasible} infeasible,{failed} {running} in training",
        rate(snapshot.steps_per_s, "steps"),
    ]
    if snapshot.time_left_s is not None and not snapshot.finished:
        parts.append(f"about {duration(snapshot.time_left_s)} left{_conditions(snapshot)}")
    if snapshot.failures:
        parts.append("failures of workers: " + ", ".join(f"{n} {kind}" for kind, n in snapshot.failures.items()))
    return "  ".join(parts)


def _conditions(snapshot: "Snapshot") -> str:
    return f" if {' and '.join(snapshot.time_left_assumes)}" if snapshot.time_left_assumes else ""


def _num_infeasible(study: "StudySnapshot") -> int:
    """Those that have diverged, recorded or not; the status of an older version knows only the recorded ones."""
    return max(study.infeasible, study.diverged)


def describe_workers(snapshot: "Snapshot") -> list[str]:
    """What each worker does, a line for each; for many, how many do what, in one."""
    if len(snapshot.doing) <= MOST_WORKERS:
        return [describe_worker(worker) for worker in snapshot.doing]
    counts = Counter(worker.activity for worker in snapshot.doing)
    return ["workers: " + ", ".join(f"{count} {activity}" for activity, count in counts.most_common())]


def describe_worker(worker: "WorkerSnapshot") -> str:
    """What a worker does, in a few words."""
    name = f"worker {worker.worker}"
    if worker.batch_size is None:
        return f"{name}: {worker.activity}"
    what = {"loading": "loading data and setting up", "compiling": "compiling"}.get(worker.activity)
    where = f"batch size {worker.batch_size:,}"
    if what is not None:
        return f"{name}: {what} for {where}, for {duration(worker.seconds)}"
    return (
        f"{name}: {worker.activity} {_trials(worker.trials)} of {where}, step {worker.step:,} of {worker.train_steps:,}"
    )


def _trials(trials: tuple[int, ...]) -> str:
    if len(trials) == 1:
        return f"trial {trials[0]}"
    if list(trials) == list(range(trials[0], trials[0] + len(trials))):
        return f"trials {trials[0]} to {trials[-1]}"
    return f"{len(trials)} trials"


def describe_study(study: "StudySnapshot") -> str:
    """A finished study in a few words."""
    best = "the goal was not reached" if study.best_steps is None else f"goal reached after {study.best_steps:,} steps"
    counts = f"{study.complete} complete, {study.infeasible} infeasible"
    counts += f", {study.incomplete} incomplete" if study.incomplete else ""
    return f"{best} ({counts}{f'; {study.note}' if study.note else ''})"


def announce_search(study: "StudySnapshot", new: "NewSearch") -> str:
    """Why a study is searched again, and where."""
    moved = [f"{change.parameter} {_range(change.before)} → {_range(change.after)}" for change in new.changes]
    where = "; ".join(moved) or "the same ranges with fresh points"
    return f"batch size {study.batch_size}: search {new.search} begins, because {new.reason}: {where}"


def _range(ends: tuple[float, float]) -> str:
    return span_text(*ends, metaparameter_text)


def announcements(snapshot: "Snapshot") -> list[str]:
    """What is to be told once, as it happens: new searches, and studies that are done."""
    lines = []
    for study in snapshot.studies:
        lines += [announce_search(study, new) for new in study.new_searches]
        if study.done:
            lines.append(f"batch size {study.batch_size}: {describe_study(study)}")
    return lines


def describe_diverged(study: "StudySnapshot") -> str:
    """How many trials of a study that goes on have diverged."""
    return f"batch size {study.batch_size}: {study.diverged} infeasible so far (training diverged)"
