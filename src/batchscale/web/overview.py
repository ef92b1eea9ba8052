"""The rows of the overview: every workload of every folder, with state, progress, curve and B_crit.

The row of a run is made from its status file alone. Other folders (tables, archives, foreign trees) are read once in
the background, one after the other, and appear as "reading" until then. Their rows are cached in a file beside the
token: an entry counts while the files of the folder have the same signature, and a damaged file counts as empty.
"""

import contextlib
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from batchscale.analysis.confirmation import use_confirmations
from batchscale.analysis.curve_analysis import analyze_points
from batchscale.analysis.outcomes import trial_outcomes
from batchscale.analysis.results import results_of
from batchscale.errors import BatchscaleError
from batchscale.figures.selection import find_goal
from batchscale.records.durable import replace_durably
from batchscale.records.frames import Records
from batchscale.records.read import read_records
from batchscale.records.tree.layout import RunPaths
from batchscale.spec.workload_name import WorkloadName
from batchscale.web.records_cache import folder_signature
from batchscale.web.records_folders import RecordsFolder, RecordsFolders, visible
from batchscale.web.status import FolderStatus, StatusReader

ORDERS = ("name", "workload", "state", "progress", "b_crit")
READ_AGAIN_S = 60.0
CACHE_VERSION = 3
MAX_CACHED = 20_000

SparkPoints = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class OverviewRow:
    """One workload of a folder; ``number`` is its rank among the folder's, ``problem`` why it has no curve."""

    folder: RecordsFolder
    number: int
    workload: str
    goal: str
    state: str
    progress: float | None
    points: SparkPoints
    b_crit: float | None
    trials: int | None
    problem: str = ""

    @property
    def key(self) -> str:
        """The name that browsers send."""
        return f"{self.folder.id}-{self.number}"


@dataclass(frozen=True)
class OverviewPage:
    """Some rows of many.

    ``waiting`` counts folders to be read, ``is_moving`` is True if some row is of a live run, ``is_complete`` is False
    if the search for records took too long and ended early.
    """

    rows: list[OverviewRow]
    total: int
    number: int
    pages: int
    waiting: int
    is_moving: bool
    is_complete: bool = True


@dataclass(frozen=True)
class OverviewQuery:
    """Search words, state, order and page of the overview."""

    text: str = ""
    state: str = ""
    order: str = "name"
    down: bool = False
    page: int = 1
    per_page: int = 25


@dataclass(frozen=True)
class CachedWorkload:
    """One workload of a folder, as it was read."""

    workload: str
    goal: str
    points: SparkPoints
    trials: int | None
    problem: str = ""


@dataclass
class OverviewCache:
    """Workloads of folders by path, with the signature they were read at, and critical batch sizes by points."""

    folders: dict[str, tuple[str, list[CachedWorkload]]] = field(default_factory=dict)
    fits: dict[SparkPoints, float | None] = field(default_factory=dict)

    @classmethod
    def read(cls, file: Path) -> "OverviewCache":
        """Return the stored cache; an empty one if there is none, or of another version."""
        try:
            stored: Any = json.loads(file.read_bytes())
            if stored["version"] != CACHE_VERSION:
                return cls()
            folders = {
                path: (str(signature), [_workload(*row) for row in rows])
                for path, (signature, rows) in stored["folders"]
            }
            fits = {_points(points): None if b_crit is None else float(b_crit) for points, b_crit in stored["fits"]}
            return cls(folders, fits)
        except (OSError, ValueError, TypeError, KeyError):
            return cls()

    def write(self, file: Path) -> None:
        """Store the cache, complete or not at all."""
        folders = [
            (path, (signature, [astuple(workload) for workload in workloads]))
            for path, (signature, workloads) in [*self.folders.items()][-MAX_CACHED:]
        ]
        fits = [*self.fits.items()][-MAX_CACHED:]
        replace_durably(file, json.dumps({"version": CACHE_VERSION, "folders": folders, "fits": fits}))


def _workload(workload: str, goal: str, points: Any, trials: int | None, problem: str) -> CachedWorkload:
    number = None if trials is None else int(trials)
    return CachedWorkload(str(workload), str(goal), _points(points), number, str(problem))


def _points(stored: Any) -> SparkPoints:
    return tuple((int(size), int(steps)) for size, steps in stored)


class Overview:
    """Reads the rows of folders and makes pages of them. Thread-safe."""

    def __init__(self, folders: RecordsFolders, statuses: StatusReader, cache_file: Path | None = None) -> None:
        self._folders, self._statuses, self._cache_file = folders, statuses, cache_file
        self._cache = OverviewCache.read(cache_file) if cache_file else OverviewCache()
        self._run_rows: dict[Path, tuple[str, list[OverviewRow]]] = {}
        self._read_at: dict[Path, float] = {}
        self._queue: dict[Path, RecordsFolder] = {}
        self._unfitted: dict[SparkPoints, None] = {}
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None

    def page(self, query: OverviewQuery) -> OverviewPage:
        """Return the rows of a query."""
        words = query.text.lower().split()
        rows = [
            row
            for row in self.rows()
            if all(word in f"{row.folder.name} {row.workload} {row.goal}".lower() for word in words)
            and query.state in ("", row.state)
        ]
        waiting = sum(str(path) not in self._cache.folders for path in list(self._queue))  # others are only checked
        if query.order == "b_crit":
            rows = [self._with_cached_fit(row) for row in rows]
            waiting += len(self._unfitted)
        rows.sort(key=lambda row: _sort_key(row, query.order), reverse=query.down)
        pages = max(1, -(-len(rows) // query.per_page))
        number = min(max(1, query.page), pages)
        visible_rows = [self._fitted(row) for row in rows[(number - 1) * query.per_page : number * query.per_page]]
        is_moving = any(row.state in ("running", "starting") for row in visible_rows)
        return OverviewPage(
            visible_rows, len(rows), number, pages, waiting, is_moving, self._folders.is_complete
        )  # fmt: skip

    def rows(self) -> list[OverviewRow]:
        """Return all rows read so far, without critical batch sizes."""
        return [row for folder in self._folders.all() for row in self.rows_of(folder)]

    def rows_of(self, folder: RecordsFolder) -> list[OverviewRow]:
        """Return the rows of one folder, as far as they are read."""
        status = self._statuses.read(folder.path)
        if status.snapshot is not None:
            return self._rows_of_run(folder, status)
        cached = self._read_later(folder)
        if cached is None:
            return [OverviewRow(folder, 0, "", "", status.state, None, (), None, None, "reading")]
        return [
            OverviewRow(
                folder, number, row.workload, row.goal, "records", None, row.points, None, row.trials, row.problem
            )
            for number, row in enumerate(cached)
        ]  # fmt: skip

    def _read_later(self, folder: RecordsFolder) -> list[CachedWorkload] | None:
        """Return the workloads of a folder as they were read last; None before. They are read again now and then."""
        if time.monotonic() - self._read_at.get(folder.path, float("-inf")) > READ_AGAIN_S:
            with self._lock:
                self._queue[folder.path] = folder
                self._start_reader()
        cached = self._cache.folders.get(str(folder.path))
        return None if cached is None else cached[1]

    def _rows_of_run(self, folder: RecordsFolder, status: FolderStatus) -> list[OverviewRow]:
        cached = self._run_rows.get(folder.path)
        if cached is None or cached[0] != status.stamp:
            cached = self._run_rows[folder.path] = (status.stamp, [_row_of_run(folder, status)])
        if status.has_confirmations:  # a status has the steps of searches alone
            read = self._read_later(folder)
            if read is not None and len(read) == 1 and read[0].points:
                return [replace(row, points=read[0].points) for row in cached[1]]
        return cached[1]

    def _fitted(self, row: OverviewRow) -> OverviewRow:
        """Return the row with its critical batch size: a fit takes milliseconds, so only visible rows get one."""
        if row.points not in self._cache.fits:
            self._cache.fits[row.points] = find_b_crit(row.points)
        return replace(row, b_crit=self._cache.fits[row.points])

    def _with_cached_fit(self, row: OverviewRow) -> OverviewRow:
        if row.points in self._cache.fits:
            return replace(row, b_crit=self._cache.fits[row.points])
        with self._lock:
            self._unfitted[row.points] = None
            self._start_reader()
        return row

    def _start_reader(self) -> None:
        if self._reader is None or not self._reader.is_alive():
            self._reader = threading.Thread(target=self._read_all, name="overview", daemon=True)
            self._reader.start()

    def _read_all(self) -> None:
        has_changed = False
        while True:
            with self._lock:
                folder = next(iter(self._queue.values()), None)
                points = next(iter(self._unfitted), None)
                if folder is None and points is None:
                    self._reader = None
                    break
            if folder is not None:
                has_changed |= self._read(folder)
            elif points is not None:
                self._cache.fits[points] = find_b_crit(points)
                self._unfitted.pop(points, None)
                has_changed = True
        if has_changed and self._cache_file:
            with contextlib.suppress(BatchscaleError, OSError):  # a full disk: folders are read again after a restart
                self._cache.write(self._cache_file)

    def _read(self, folder: RecordsFolder) -> bool:
        """Read a folder, unless its files are unchanged; return True if its rows are new."""
        key, before = str(folder.path), self._cache.folders.get(str(folder.path))
        try:
            signature = str(folder_signature(folder.path))
            rows = before[1] if before and before[0] == signature else _read_workloads(folder.path)
        except (BatchscaleError, OSError, pl.exceptions.PolarsError) as error:
            is_run = RunPaths(folder.path).working.is_dir()  # a run that has just begun
            problem = "nothing recorded yet" if is_run else visible(error, 300)
            signature, rows = "", [CachedWorkload("", "", (), None, problem)]
        self._cache.folders[key] = (signature, rows)
        with self._lock:
            self._read_at[folder.path] = time.monotonic()
            self._queue.pop(folder.path, None)
        return self._cache.folders[key] != before


def _row_of_run(folder: RecordsFolder, status: FolderStatus) -> OverviewRow:
    snapshot = status.snapshot
    assert snapshot is not None
    trials = sum(study.complete + study.infeasible + study.incomplete for study in snapshot.studies)
    return OverviewRow(
        folder, 0, visible(snapshot.workload), visible(snapshot.goal), status.state, status.progress, status.points,
        None, trials,
    )  # fmt: skip


def _read_workloads(path: Path) -> list[CachedWorkload]:
    # not through the cache of records: a thousand folders would push out the few that visitors read
    records = read_records(path, lambda _: None)
    rows = [_read_workload(records, name) for name in records.workloads]
    return (
        [replace(row, problem=row.problem or "damaged: batchscale check lists where") for row in rows]
        if records.notices
        else rows
    )


def _read_workload(records: Records, name: WorkloadName) -> CachedWorkload:
    selected = records.workload(name)
    goal = find_goal(records, name)
    points: SparkPoints = ()
    problem = "" if goal is not None else "the records name no goal"
    if goal is not None:
        try:
            results = use_confirmations(results_of(trial_outcomes(selected, goal)), selected, goal)
            reached = results.filter(pl.col("steps") > 0)
            points = tuple(sorted(reached.select("batch_size", "steps").rows()))
        except BatchscaleError as error:
            problem = visible(error, 300)
    return CachedWorkload(visible(name), visible(goal or ""), points, selected.trials.height, problem)


def find_b_crit(points: Sequence[tuple[int, int]]) -> float | None:
    """Return the critical batch size of some points; None if they do not show one, or no law describes them.

    >>> round(find_b_crit([(b, round(10000 * (1 + 32 / b))) for b in (1, 4, 16, 64, 256)]) or 0)
    32
    """
    try:
        summary = analyze_points(pl.DataFrame(list(points), schema=["batch_size", "steps"], orient="row")).summary
        return None if summary is None else summary.critical.value
    except (BatchscaleError, pl.exceptions.PolarsError):
        return None


def _sort_key(row: OverviewRow, order: str) -> tuple[bool, float | str, str]:
    """Rows without a value come last, ties in order of names."""
    value: float | str | None = {
        "workload": row.workload, "state": row.state, "progress": row.progress, "b_crit": row.b_crit,
    }.get(order, row.folder.name)  # fmt: skip
    if value is None:
        return True, 0.0 if order in ("progress", "b_crit") else "", row.folder.name
    return False, value, row.folder.name
