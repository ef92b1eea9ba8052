"""The table of trials: filtered, sorted, a page at a time, with metaparameters, reasons and log lines."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from batchscale.records import FACTS, Records, Status
from batchscale.web.places import visible

PER_PAGE = 50
LOG_LINES = 30
ORDERS = ("batch_size", "trial_id", "status", "steps", "reached_at")


@dataclass(frozen=True)
class TrialWish:
    """Which trials, in which order."""

    batch_size: int | None = None
    status: str = ""
    order: str = "batch_size"
    down: bool = False
    page: int = 1


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
    """Some trials of many. ``orders`` are the columns that can be sorted by."""

    rows: list[TrialRow]
    metaparameters: list[str]
    batch_sizes: list[int]
    statuses: list[str]
    orders: list[str]
    total: int
    number: int
    pages: int


def trial_page(records: Records, wish: TrialWish) -> TrialPage:
    """The page of trials that was asked for; ``records`` are those of one workload."""
    frame = records.trials
    names = [name for name in records.metaparameters if frame[name].null_count() < frame.height]
    frame = frame.with_columns(pl.col(FACTS).struct.field("reached_at").alias("_reached_at"))
    if wish.batch_size is not None:
        frame = frame.filter(pl.col("batch_size") == wish.batch_size)
    if wish.status:
        frame = frame.filter(pl.col("status") == wish.status)
    columns = {name: name for name in (*ORDERS, *names)} | {"reached_at": "_reached_at"}
    by = columns.get(wish.order, "batch_size")
    frame = frame.sort(by, "batch_size", "trial_id", descending=[wish.down, False, False], nulls_last=True)
    pages = max(1, -(-frame.height // PER_PAGE))
    number = min(max(1, wish.page), pages)
    shown = frame.slice((number - 1) * PER_PAGE, PER_PAGE)
    return TrialPage(
        [_row(row, names) for row in shown.iter_rows(named=True)],
        [visible(name, 60) for name in names],
        sorted(records.studies["batch_size"].to_list()),
        [status.value for status in Status],
        [*ORDERS, *names],
        frame.height,
        number,
        pages,
    )


def _row(row: dict[str, Any], names: list[str]) -> TrialRow:
    facts: dict[str, Any] = row[FACTS] or {}
    reason = facts.get("failure") or facts.get("stop_reason") or ""
    if facts.get("diverged_at") is not None:
        reason = f"diverged at step {facts['diverged_at']:,}"
    values = tuple("" if row[name] is None else f"{row[name]:.4g}" for name in names)
    lines = tuple(visible(line, 400) for line in (facts.get("log_lines") or [])[-LOG_LINES:])
    return TrialRow(
        row["batch_size"], row["trial_id"], visible(row["status"], 20), row["steps"], row["_reached_at"],
        visible(reason, 300), values, lines,
    )  # fmt: skip
