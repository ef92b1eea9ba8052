"""The rows of the overview: every workload of every folder, with state, progress, curve and B_crit.

A folder that a run has written is told from its status file alone. Others (tables, archives, foreign trees) are read
once in the background, one after the other, and appear as "reading" until then; what was read is kept in a file.
"""

import contextlib
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from batchscale.analysis.outcomes import trial_outcomes
from batchscale.analysis.results import results_of
from batchscale.analysis.scaling import fit_scaling
from batchscale.errors import BatchscaleError
from batchscale.figures.selection import find_goal
from batchscale.records.frames import Records
from batchscale.records.read import read_records
from batchscale.records.tree.layout import RunPaths
from batchscale.spec.workload_name import WorkloadName
from batchscale.web.records_folders import RecordsFolder, RecordsFolders, visible
from batchscale.web.row_store import KnownRows, KnownWorkload, SmallPoints, read_known, write_known
from batchscale.web.shelf import signature_of
from batchscale.web.standing import Standing, Standings

ORDERS = ("name", "workload", "state", "progress", "b_crit")
READ_AGAIN_S = 60.0


@dataclass(frozen=True)
class OverviewRow:
    """One workload of a folder; ``number`` is its rank among the folder's, ``problem`` why there is nothing."""

    folder: RecordsFolder
    number: int
    workload: str
    goal: str
    state: str
    progress: float | None
    points: SmallPoints
    b_crit: float | None
    trials: int | None
    problem: str = ""

    @property
    def key(self) -> str:
        """What the browser calls it."""
        return f"{self.folder.id}-{self.number}"


@dataclass(frozen=True)
class Page:
    """Some rows of many; ``waiting`` counts folders still to be read, ``is_moving`` says that some row is of a run."""

    rows: list[OverviewRow]
    total: int
    number: int
    pages: int
    waiting: int
    is_moving: bool


@dataclass(frozen=True)
class Wish:
    """What the visitor asked to see."""

    text: str = ""
    state: str = ""
    order: str = "name"
    down: bool = False
    page: int = 1
    per_page: int = 25


class Overview:
    """Keeps rows of folders and makes pages of them. Thread-safe."""

    def __init__(self, folders: RecordsFolders, standings: Standings, store: Path | None = None) -> None:
        self._folders, self._standings, self._store = folders, standings, store
        self._known = read_known(store) if store else KnownRows()
        self._rows: dict[Path, tuple[str, list[OverviewRow]]] = {}
        self._read_at: dict[Path, float] = {}
        self._queue: dict[Path, RecordsFolder] = {}
        self._unfitted: dict[SmallPoints, None] = {}
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None

    def page(self, wish: Wish) -> Page:
        """The rows that were asked for."""
        rows = self.rows()
        words = wish.text.lower().split()
        rows = [
            row for row in rows if all(word in f"{row.folder.name} {row.workload} {row.goal}".lower() for word in words)
        ]
        rows = [row for row in rows if wish.state in ("", row.state)]
        waiting = sum(str(path) not in self._known.folders for path in list(self._queue))  # others are only looked at
        if wish.order == "b_crit":
            rows = [self._with_known_fit(row) for row in rows]
            waiting += len(self._unfitted)
        rows.sort(key=lambda row: _order(row, wish.order), reverse=wish.down)
        pages = max(1, -(-len(rows) // wish.per_page))
        number = min(max(1, wish.page), pages)
        shown = [self._fitted(row) for row in rows[(number - 1) * wish.per_page : number * wish.per_page]]
        return Page(shown, len(rows), number, pages, waiting, any(row.state == "running" for row in shown))

    def rows(self) -> list[OverviewRow]:
        """All rows as far as they are known, without critical batch sizes."""
        return [row for folder in self._folders.all() for row in self.rows_of(folder)]

    def rows_of(self, folder: RecordsFolder) -> list[OverviewRow]:
        """The rows of one folder, as far as they are known."""
        standing = self._standings.look(folder.path)
        if standing.snapshot is not None:
            return self._kept(folder, standing)
        if time.monotonic() - self._read_at.get(folder.path, float("-inf")) > READ_AGAIN_S:
            self._ask(folder)
        known = self._known.folders.get(str(folder.path))
        if known is None:
            return [OverviewRow(folder, 0, "", "", standing.state, None, (), None, None, "reading")]
        return [_row_of_records(folder, number, one) for number, one in enumerate(known[1])]

    def _kept(self, folder: RecordsFolder, standing: Standing) -> list[OverviewRow]:
        kept = self._rows.get(folder.path)
        if kept is None or kept[0] != standing.stamp:
            kept = (standing.stamp, [_row_of_run(folder, standing)])
            self._rows[folder.path] = kept
        return kept[1]

    def _fitted(self, row: OverviewRow) -> OverviewRow:
        """The row with its critical batch size, which takes milliseconds: worked out for rows that are shown."""
        if row.points not in self._known.fits:
            self._known.fits[row.points] = find_b_crit(row.points)
        return replace(row, b_crit=self._known.fits[row.points])

    def _with_known_fit(self, row: OverviewRow) -> OverviewRow:
        if row.points in self._known.fits:
            return replace(row, b_crit=self._known.fits[row.points])
        with self._lock:
            self._unfitted[row.points] = None
            self._start()
        return row

    def _ask(self, folder: RecordsFolder) -> None:
        with self._lock:
            self._queue[folder.path] = folder
            self._start()

    def _start(self) -> None:
        if self._reader is None or not self._reader.is_alive():
            self._reader = threading.Thread(target=self._read_all, name="overview", daemon=True)
            self._reader.start()

    def _read_all(self) -> None:
        changed = False
        while True:
            with self._lock:
                folder = next(iter(self._queue.values()), None)
                points = next(iter(self._unfitted), None)
                if folder is None and points is None:
                    self._reader = None
                    break
            if folder is not None:
                changed |= self._read(folder)
            elif points is not None:
                self._known.fits[points] = find_b_crit(points)
                self._unfitted.pop(points, None)
                changed = True
        if changed and self._store:
            with contextlib.suppress(BatchscaleError, OSError):  # a full disk: it is read again after a restart
                write_known(self._store, self._known)

    def _read(self, folder: RecordsFolder) -> bool:
        """Read a folder, unless its files are as they were; whether something is new."""
        key, before = str(folder.path), self._known.folders.get(str(folder.path))
        try:
            signature = str(signature_of(folder.path))
            rows = before[1] if before and before[0] == signature else _read_workloads(folder.path)
        except (BatchscaleError, OSError, pl.exceptions.PolarsError) as error:
            is_run = RunPaths(folder.path).working.is_dir()  # one that has only just begun
            problem = "nothing recorded yet" if is_run else visible(error, 300)
            signature, rows = "", [KnownWorkload("", "", (), None, problem)]
        self._known.folders[key] = (signature, rows)
        with self._lock:
            self._read_at[folder.path] = time.monotonic()
            self._queue.pop(folder.path, None)
        return self._known.folders[key] != before


def _row_of_run(folder: RecordsFolder, standing: Standing) -> OverviewRow:
    snapshot = standing.snapshot
    assert snapshot is not None
    trials = sum(study.complete + study.infeasible + study.incomplete for study in snapshot.studies)
    return OverviewRow(
        folder, 0, visible(snapshot.workload), visible(snapshot.goal), standing.state, standing.progress,
        standing.points, None, trials,
    )  # fmt: skip


def _row_of_records(folder: RecordsFolder, number: int, one: KnownWorkload) -> OverviewRow:
    return OverviewRow(
        folder, number, one.workload, one.goal, "records", None, one.points, None, one.trials, one.problem
    )  # fmt: skip


def _read_workloads(path: Path) -> list[KnownWorkload]:
    # not through the shelf: a thousand folders would push out the few that visitors look at
    records = read_records(path, lambda _: None)
    return [_read_workload(records, name) for name in records.workloads]


def _read_workload(records: Records, name: WorkloadName) -> KnownWorkload:
    chosen = records.workload(name)
    goal = find_goal(records, name)
    points: SmallPoints = ()
    problem = "" if goal is not None else "the records name no goal"
    if goal is not None:
        try:
            found = results_of(trial_outcomes(chosen, goal)).drop_nulls("steps").filter(pl.col("steps") > 0)
            points = tuple(sorted(found.select("batch_size", "steps").rows()))
        except BatchscaleError as error:
            problem = visible(error, 300)
    return KnownWorkload(visible(name), visible(goal or ""), points, chosen.trials.height, problem)


def find_b_crit(points: Sequence[tuple[int, int]]) -> float | None:
    """The critical batch size of some points; None where they do not show one.

    >>> round(find_b_crit([(b, round(10000 * (1 + 32 / b))) for b in (1, 4, 16, 64, 256)]) or 0)
    32
    """
    try:
        return fit_scaling(pl.DataFrame(list(points), schema=["batch_size", "steps"], orient="row")).b_crit
    except (BatchscaleError, pl.exceptions.PolarsError):
        return None


def _order(row: OverviewRow, order: str) -> tuple[bool, float | str, str]:
    """Rows without a value come last, ties in order of names."""
    value: float | str | None = {
        "workload": row.workload, "state": row.state, "progress": row.progress, "b_crit": row.b_crit,
    }.get(order, row.folder.name)  # fmt: skip
    if value is None:
        return True, 0.0 if order in ("progress", "b_crit") else "", row.folder.name
    return False, value, row.folder.name
