"""How a run stands, as a value: shown live by the driver, stored beside the tree for `batchscale status`.

Nothing here is needed to resume. Whether a run is alive is never stored: it is whether its lock is held.
"""

import dataclasses
import fcntl
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchscale.records.model import Status
from batchscale.records.notes import study_note
from batchscale.records.tree.layout import WORKING_FOLDER

if TYPE_CHECKING:
    from batchscale.driver.driver import Driver
    from batchscale.protocol.study_run import StudyRun

STATUS_FILE = "status.json"
LOCK_FILE = "run.lock"
SILENT_AFTER_S = 30.0


@dataclass(frozen=True)
class StudySnapshot:
    """One study.

    ``best_steps`` is the fewest steps to the goal so far, ``front`` how far its trials are known, ``note`` what lowers
    the trust in it once it is done.
    """

    batch_size: int
    search: int
    done: bool
    wanted: int
    complete: int
    infeasible: int
    incomplete: int
    running: int
    reached: int
    best_steps: int | None
    front: int
    train_steps: int
    share: float
    trial_steps: int
    seconds: float
    note: str | None = None


@dataclass(frozen=True)
class Snapshot:
    """A whole run.

    ``time_left_s`` is an upper estimate for the searches that have begun, None while the cost of a study is unknown: a
    race usually ends earlier, another search would come on top.
    """

    workload: str
    goal: str
    source: str
    written_at: float
    elapsed_s: float
    workers: int
    steps_per_s: float
    time_left_s: float | None
    finished: bool
    paused: str | None = None
    failures: dict[str, int] = field(default_factory=dict)
    given_up: int = 0
    notice: str | None = None
    studies: tuple[StudySnapshot, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The object stored in the status file."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Snapshot":
        """The snapshot that a status file holds.

        Raises:
            ValueError: it holds something else.
        """
        from pydantic import TypeAdapter  # here: most runs read none

        return TypeAdapter(cls).validate_python(data)


def take_snapshot(driver: "Driver", elapsed_s: float) -> Snapshot:
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


def _study_snapshot(run: "StudyRun", driver: "Driver") -> StudySnapshot:
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


def _study_note(run: "StudyRun") -> str | None:
    finding = run.state.facts.finding
    edges = ", ".join(map(str, finding.at_edge)) if finding is not None else None
    return study_note(edges, len(run.state.searches), short=finding is not None and finding.short)


def _steps_left(run: "StudyRun") -> int:
    search = run.state.current
    return sum(need.until - max(search.step_of(need.point), 0) for need in search.needs())


def _seconds_left(run: "StudyRun", driver: "Driver") -> float | None:
    step_s = driver.dispatch.pace(run.batch_size).step_s
    return None if step_s is None else step_s * _steps_left(run)


def write_snapshot(root: Path, snapshot: Snapshot) -> None:
    """Store the snapshot for other processes; not durable, and a disk that refuses is no reason to stop."""
    path = root / WORKING_FOLDER / STATUS_FILE
    new = path.with_suffix(".writing")
    try:
        new.write_text(json.dumps(snapshot.to_json()))
        new.replace(path)
    except OSError:
        return


def mark_unfinished(root: Path) -> None:
    """More is asked of the folder than before: it is not finished any more, whatever happens next."""
    snapshot = read_snapshot(root)
    if snapshot is not None and snapshot.finished:
        write_snapshot(root, dataclasses.replace(snapshot, finished=False))


def read_snapshot(root: Path) -> Snapshot | None:
    """The latest snapshot of the folder, or None if there is none."""
    try:
        return Snapshot.from_json(json.loads((root / WORKING_FOLDER / STATUS_FILE).read_bytes()))
    except (OSError, ValueError):
        return None


def is_running(root: Path) -> bool:
    """Whether a live process holds the folder's lock."""
    try:
        handle = os.open(root / WORKING_FOLDER / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(handle)
