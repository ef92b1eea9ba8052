"""The rows of the overview: every workload of every place, with state, progress, curve and B_crit.

A place that a run has written is told from its status file alone. Others (archives, foreign trees) are read once in
the background, one after the other, and appear as "reading" until then.
"""

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from batchscale.analysis import fit_scaling, results_of, trial_outcomes
from batchscale.errors import BatchscaleError
from batchscale.figures import find_goal
from batchscale.records import Records
from batchscale.spec import WorkloadName
from batchscale.web.places import Place, Places, visible
from batchscale.web.shelf import OpenRecords, signature_of
from batchscale.web.standing import Standing, Standings

ORDERS = ("name", "workload", "state", "progress", "b_crit")
READ_AGAIN_S = 60.0
SmallPoints = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class OverviewRow:
    """One workload of a place. ``number`` is its rank among the place's workloads; ``problem`` why there is nothing."""

    place: Place
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
        return f"{self.place.id}-{self.number}"


@dataclass(frozen=True)
class Page:
    """Some rows of many; ``waiting`` counts places still to be read, ``is_moving`` says that some row is of a run."""

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
    """Keeps rows of places and makes pages of them. Thread-safe."""

    def __init__(self, places: Places, standings: Standings, shelf: OpenRecords) -> None:
        self._places, self._standings, self._shelf = places, standings, shelf
        self._rows: dict[Path, tuple[str, list[OverviewRow]]] = {}
        self._read_at: dict[Path, float] = {}
        self._queue: dict[Path, Place] = {}
        self._lock = threading.Lock()
        self._reader: threading.Thread | None = None

    def page(self, wish: Wish) -> Page:
        """The rows that were asked for."""
        rows = [row for place in self._places.all() for row in self.rows_of(place)]
        words = wish.text.lower().split()
        rows = [
            row for row in rows if all(word in f"{row.place.name} {row.workload} {row.goal}".lower() for word in words)
        ]
        rows = [row for row in rows if wish.state in ("", row.state)]
        rows.sort(key=lambda row: _order(row, wish.order), reverse=wish.down)
        pages = max(1, -(-len(rows) // wish.per_page))
        number = min(max(1, wish.page), pages)
        shown = rows[(number - 1) * wish.per_page : number * wish.per_page]
        return Page(shown, len(rows), number, pages, len(self._queue), any(row.state == "running" for row in shown))

    def rows_of(self, place: Place) -> list[OverviewRow]:
        """The rows of one place, as far as they are known."""
        standing = self._standings.look(place.path)
        if standing.snapshot is not None:
            return self._kept(place, standing)
        kept = self._rows.get(place.path)
        if kept is None or time.monotonic() - self._read_at.get(place.path, 0.0) > READ_AGAIN_S:
            self._ask(place)
        if kept is None:
            return [OverviewRow(place, 0, "", "", standing.state, None, (), None, None, "reading")]
        return kept[1]

    def _kept(self, place: Place, standing: Standing) -> list[OverviewRow]:
        kept = self._rows.get(place.path)
        if kept is None or kept[0] != standing.stamp:
            kept = (standing.stamp, [_row_of_run(place, standing)])
            self._rows[place.path] = kept
        return kept[1]

    def _ask(self, place: Place) -> None:
        with self._lock:
            self._queue[place.path] = place
            if self._reader is None or not self._reader.is_alive():
                self._reader = threading.Thread(target=self._read_all, name="overview", daemon=True)
                self._reader.start()

    def _read_all(self) -> None:
        while True:
            with self._lock:
                if not self._queue:
                    self._reader = None
                    return
                place = next(iter(self._queue.values()))
            try:
                rows = _rows_of_records(place, self._shelf.records(place.path))
                stamp = str(signature_of(place.path))
            except (BatchscaleError, OSError, pl.exceptions.PolarsError) as error:
                rows, stamp = [OverviewRow(place, 0, "", "", "records", None, (), None, None, visible(error, 300))], ""
            with self._lock:
                self._rows[place.path] = (stamp, rows)
                self._read_at[place.path] = time.monotonic()
                self._queue.pop(place.path, None)


def _row_of_run(place: Place, standing: Standing) -> OverviewRow:
    snapshot = standing.snapshot
    assert snapshot is not None
    trials = sum(study.complete + study.infeasible + study.incomplete for study in snapshot.studies)
    return OverviewRow(
        place, 0, visible(snapshot.workload), visible(snapshot.goal), standing.state, standing.progress,
        standing.points, find_b_crit(standing.points), trials,
    )  # fmt: skip


def _rows_of_records(place: Place, records: Records) -> list[OverviewRow]:
    return [_row_of_workload(place, number, records, name) for number, name in enumerate(records.workloads)]


def _row_of_workload(place: Place, number: int, records: Records, name: WorkloadName) -> OverviewRow:
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
    return OverviewRow(
        place, number, visible(name), visible(goal or ""), "records", None, points, find_b_crit(points),
        chosen.trials.height, problem,
    )  # fmt: skip


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
    }.get(order, row.place.name)  # fmt: skip
    if value is None:
        return True, 0.0 if order in ("progress", "b_crit") else "", row.place.name
    return False, value, row.place.name
