"""The table of trials: filtered, sorted, a page at a time, with metaparameters, reasons and log lines."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import polars as pl

from batchscale.records.frames import Records
from batchscale.records.metadata.columns import METADATA
from batchscale.records.model import Status
from batchscale.web.records_folders import visible
from batchscale.web.refusals import RefusedError

PER_PAGE = 50
LOG_LINES = 30
MOST_RANGES = 30
ORDERS = ("batch_size", "trial_id", "status", "steps", "reached_at")


@dataclass(frozen=True)
class ValueRange:
    """Between which values the metaparameter of this rank lies; None: no limit."""

    rank: int
    low: float | None
    high: float | None


@dataclass(frozen=True)
class TrialWish:
    """Which trials, in which order. ``smooth`` and ``axes`` (ranks of metaparameters) are about their charts."""

    batch_size: int | None = None
    status: str = ""
    order: str = "batch_size"
    down: bool = False
    page: int = 1
    ranges: tuple[ValueRange, ...] = ()
    smooth: float = 0.0
    axes: tuple[int, int] = (0, 1)

    def limit(self, rank: int, end: str) -> str:
        """The low or high end of a range as typed; empty without one."""
        found = [getattr(one, end) for one in self.ranges if one.rank == rank]
        return f"{found[0]:g}" if found and found[0] is not None else ""

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The wish as fields of a form, without order and page."""
        pairs: list[tuple[str, object]] = [("size", self.batch_size), ("status", self.status or None)]
        for one in self.ranges:
            pairs += [(f"low{one.rank}", one.low), (f"high{one.rank}", one.high)]
        pairs.append(("smooth", f"{self.smooth:g}" if self.smooth else None))
        if self.axes != (0, 1):
            pairs += [("mx", self.axes[0]), ("my", self.axes[1])]
        return [(key, str(value)) for key, value in pairs if value is not None]

    @property
    def query(self) -> str:
        """The wish as a query, without order and page."""
        return urlencode(self.fields)


def read_ranges(query: Mapping[str, str]) -> tuple[ValueRange, ...]:
    """The ranges of a query: ``low0=0.01&high0=0.1`` for the metaparameter of rank 0.

    >>> read_ranges({"low0": "0.01", "high0": "", "high3": "2"})
    (ValueRange(rank=0, low=0.01, high=None), ValueRange(rank=3, low=None, high=2.0))
    """
    found = []
    for rank in range(MOST_RANGES):
        low, high = (_limit(query.get(f"{end}{rank}", "")) for end in ("low", "high"))
        if low is not None or high is not None:
            found.append(ValueRange(rank, low, high))
    return tuple(found)


def _limit(text: str) -> float | None:
    try:
        value = float(text) if text.strip() else None
    except ValueError:
        raise RefusedError(422, "The ends of a range are numbers.") from None
    if value is not None and not abs(value) < 1e300:
        raise RefusedError(422, "The ends of a range are finite numbers.")
    return value


@dataclass(frozen=True)
class TrialRow:
    """One trial as the page shows it."""

    batch_size: int
    trial_id: int
    status: str
    steps: int
    reached_at: int | None
    reason: str
    values: tuple[str, ...]
    log_lines: tuple[str, ...]

    @property
    def key(self) -> str:
        """What the browser calls it."""
        return f"{self.batch_size}-{self.trial_id}"


@dataclass(frozen=True)
class TrialPage:
    """Some trials of many. ``orders`` are the columns that can be sorted by, ``names`` metaparameters as recorded."""

    rows: list[TrialRow]
    metaparameters: list[str]
    names: list[str]
    batch_sizes: list[int]
    statuses: list[str]
    orders: list[str]
    total: int
    number: int
    pages: int


def used_metaparameters(records: Records) -> list[str]:
    """The metaparameters that some trial has; their ranks are what browsers send."""
    return [name for name in records.metaparameters if records.trials[name].null_count() < records.trials.height]


def matching_trials(records: Records, wish: TrialWish) -> pl.DataFrame:
    """The trials that the wish is about."""
    frame, names = records.trials, used_metaparameters(records)
    if wish.batch_size is not None:
        frame = frame.filter(pl.col("batch_size") == wish.batch_size)
    if wish.status:
        frame = frame.filter(pl.col("status") == wish.status)
    for one in wish.ranges:
        if one.rank < len(names):
            column = pl.col(names[one.rank])
            low = pl.lit(True) if one.low is None else column >= one.low
            frame = frame.filter(low & (pl.lit(True) if one.high is None else column <= one.high))
    return frame


def trial_page(records: Records, wish: TrialWish) -> TrialPage:
    """The page of trials that was asked for; ``records`` are those of one workload."""
    names = used_metaparameters(records)
    reached = pl.col(METADATA).struct.field("reached_at").alias("_reached_at")
    frame = matching_trials(records, wish).with_columns(reached)
    columns = {name: name for name in (*ORDERS, *names)} | {"reached_at": "_reached_at"}
    by = columns.get(wish.order, "batch_size")
    frame = frame.sort(by, "batch_size", "trial_id", descending=[wish.down, False, False], nulls_last=True)
    pages = max(1, -(-frame.height // PER_PAGE))
    number = min(max(1, wish.page), pages)
    shown = frame.slice((number - 1) * PER_PAGE, PER_PAGE)
    return TrialPage(
        [_row(row, names) for row in shown.iter_rows(named=True)],
        [visible(name, 60) for name in names],
        names,
        sorted(records.studies["batch_size"].to_list()),
        [status.value for status in Status],
        [*ORDERS, *names],
        frame.height,
        number,
        pages,
    )


def _row(row: dict[str, Any], names: list[str]) -> TrialRow:
    facts: dict[str, Any] = row[METADATA] or {}
    reason = facts.get("failure") or facts.get("stop_reason") or ""
    if facts.get("diverged_at") is not None:
        reason = f"diverged at step {facts['diverged_at']:,}"
    values = tuple("" if row[name] is None else f"{row[name]:.4g}" for name in names)
    lines = tuple(visible(line, 400) for line in (facts.get("log_lines") or [])[-LOG_LINES:])
    return TrialRow(
        row["batch_size"], row["trial_id"], visible(row["status"], 20), row["steps"], row["_reached_at"],
        visible(reason, 300), values, lines,
    )  # fmt: skip
