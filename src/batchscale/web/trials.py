"""The trials of a workload: a table that is filtered, sorted and paged, and a chart of their metaparameters."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

import polars as pl

from batchscale.analysis.metaparameters import (
    BETA2_HALF_LIFE,
    DECAY_TIME_SCALE,
    derive_values,
    derived_label,
    derived_text,
)
from batchscale.analysis.units import unit_of
from batchscale.errors import BatchscaleError
from batchscale.figures.export import chart_spec, chart_svg
from batchscale.figures.layout import Chart, Look, PanelSize
from batchscale.figures.linked import LinkedSelection, linked_frame, plot_linked
from batchscale.figures.theme import find_theme
from batchscale.formatting import metaparameter_text
from batchscale.records.frames import Records, fixed_values
from batchscale.records.metadata.columns import METADATA
from batchscale.records.model import Status
from batchscale.web.charts import RENDERING, fitting, require_goal, workload_at
from batchscale.web.records_cache import RecordsCache
from batchscale.web.records_folders import RecordsFolder, visible
from batchscale.web.refusals import RefusedError

PANEL = PanelSize(420, 300)
PER_PAGE = 50
LOG_LINES = 30
MAX_RANGES = 30
ORDERS = ("batch_size", "trial_id", "status", "steps", "reached_at")


@dataclass(frozen=True)
class ValueRange:
    """The limits of the metaparameter of this rank; None: no limit."""

    rank: int
    low: float | None
    high: float | None


@dataclass(frozen=True)
class TrialQuery:
    """A selection of trials and its order. ``smooth`` and ``axes`` (ranks of metaparameters) are for their charts."""

    batch_size: int | None = None
    status: str = ""
    order: str = "batch_size"
    down: bool = False
    page: int = 1
    ranges: tuple[ValueRange, ...] = ()
    smooth: float = 0.0
    axes: tuple[int, int] = (0, 1)

    def limit(self, rank: int, end: str) -> str:
        """Return the low or high end of a range as typed; empty without one."""
        ends = [getattr(range_, end) for range_ in self.ranges if range_.rank == rank]
        return f"{ends[0]:g}" if ends and ends[0] is not None else ""

    @property
    def fields(self) -> list[tuple[str, str]]:
        """The query as fields of a form, without order and page."""
        pairs: list[tuple[str, object]] = [("size", self.batch_size), ("status", self.status or None)]
        for range_ in self.ranges:
            pairs += [(f"low{range_.rank}", range_.low), (f"high{range_.rank}", range_.high)]
        pairs.append(("smooth", f"{self.smooth:g}" if self.smooth else None))
        if self.axes != (0, 1):
            pairs += [("mx", self.axes[0]), ("my", self.axes[1])]
        return [(key, str(value)) for key, value in pairs if value is not None]

    @property
    def url_query(self) -> str:
        """The query as text of an address, without order and page."""
        return urlencode(self.fields)


def read_ranges(query: Mapping[str, str]) -> tuple[ValueRange, ...]:
    """Parse the ranges of a query: ``low0=0.01&high0=0.1`` for the metaparameter of rank 0.

    >>> read_ranges({"low0": "0.01", "high0": "", "high3": "2"})
    (ValueRange(rank=0, low=0.01, high=None), ValueRange(rank=3, low=None, high=2.0))
    """
    ranges = []
    for rank in range(MAX_RANGES):
        low, high = (_limit(query.get(f"{end}{rank}", "")) for end in ("low", "high"))
        if low is not None or high is not None:
            ranges.append(ValueRange(rank, low, high))
    return tuple(ranges)


def _limit(text: str) -> float | None:
    try:
        value = float(text) if text.strip() else None
    except ValueError:
        raise RefusedError(422, "The ends of a range must be numbers.") from None
    if value is not None and not abs(value) < 1e300:
        raise RefusedError(422, "The ends of a range must be finite numbers.")
    return value


@dataclass(frozen=True)
class TrialRow:
    """One trial on the page."""

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
        """The name that browsers send."""
        return f"{self.batch_size}-{self.trial_id}"


@dataclass(frozen=True)
class TrialPage:
    """Some trials of many. ``orders`` are the columns to sort by, ``names`` the metaparameters as recorded.

    ``derived`` are the headings of what these mean at each batch size, whose values stand behind those of ``names``.
    """

    rows: list[TrialRow]
    metaparameters: list[str]
    names: list[str]
    batch_sizes: list[int]
    statuses: list[str]
    orders: list[str]
    total: int
    number: int
    pages: int
    derived: list[str]


def used_metaparameters(records: Records) -> list[str]:
    """Return the metaparameters that some trial has; browsers send their ranks."""
    return [name for name in records.metaparameters if records.trials[name].null_count() < records.trials.height]


def matching_trials(records: Records, query: TrialQuery) -> pl.DataFrame:
    """Return the trials of a query."""
    frame, names = records.trials, used_metaparameters(records)
    if query.batch_size is not None:
        frame = frame.filter(pl.col("batch_size") == query.batch_size)
    if query.status:
        frame = frame.filter(pl.col("status") == query.status)
    for range_ in query.ranges:
        if range_.rank < len(names):
            column = pl.col(names[range_.rank])
            low = pl.lit(True) if range_.low is None else column >= range_.low
            frame = frame.filter(low & (pl.lit(True) if range_.high is None else column <= range_.high))
    return frame


def trial_page(records: Records, query: TrialQuery) -> TrialPage:
    """Return a page of trials; ``records`` are those of one workload."""
    names = used_metaparameters(records)
    reached = pl.col(METADATA).struct.field("reached_at").alias("_reached_at")
    frame = matching_trials(records, query).with_columns(reached)
    columns = {name: name for name in (*ORDERS, *names)} | {"reached_at": "_reached_at"}
    by = columns.get(query.order, "batch_size")
    frame = frame.sort(by, "batch_size", "trial_id", descending=[query.down, False, False], nulls_last=True)
    pages = max(1, -(-frame.height // PER_PAGE))
    number = min(max(1, query.page), pages)
    page_rows = list(frame.slice((number - 1) * PER_PAGE, PER_PAGE).iter_rows(named=True))
    unit, derived = unit_of(records), _derive(records, page_rows, names)
    shown = [name for name in (BETA2_HALF_LIFE, DECAY_TIME_SCALE) if any(name in values for values in derived)]
    return TrialPage(
        [
            _row(row, names, [derived_text(name, values.get(name)) for name in shown])
            for row, values in zip(page_rows, derived, strict=True)
        ],
        [visible(name, 60) for name in names],
        names,
        sorted(records.studies["batch_size"].to_list()),
        [status.value for status in Status],
        [*ORDERS, *names],
        frame.height,
        number,
        pages,
        [derived_label(name, unit) for name in shown],
    )


def _derive(records: Records, rows: list[dict[str, Any]], names: list[str]) -> list[dict[str, float]]:
    """Return what the metaparameters of each trial mean, for its steps to the goal or so far."""
    unit, fixed = unit_of(records), {key[-1]: values for key, values in fixed_values(records).items()}
    return [
        derive_values(
            {**fixed.get(row["batch_size"], {}), **{name: row[name] for name in names}},
            row["batch_size"],
            row["_reached_at"] or row["steps"],
            unit,
        )
        for row in rows
    ]


def _row(row: dict[str, Any], names: list[str], derived: list[str]) -> TrialRow:
    facts: dict[str, Any] = row[METADATA] or {}
    reason = facts.get("failure") or facts.get("stop_reason") or ""
    if facts.get("diverged_at") is not None:
        reason = f"diverged at step {facts['diverged_at']:,}"
    values = (*("" if row[name] is None else metaparameter_text(row[name]) for name in names), *derived)
    lines = tuple(visible(line, 400) for line in (facts.get("log_lines") or [])[-LOG_LINES:])
    return TrialRow(
        row["batch_size"], row["trial_id"], visible(row["status"], 20), row["steps"], row["_reached_at"],
        visible(reason, 300), values, lines,
    )  # fmt: skip


@dataclass(frozen=True)
class LinkedQuery:
    """The chart of a study's trials: the theme, and the width of the page in points."""

    number: int
    trials: TrialQuery
    theme: str = "light"
    width: int | None = None

    @property
    def data_key(self) -> str:
        """The key of its data in the cache."""
        return f"linked {self.number} {self.trials.url_query}"


def linked_data(cache: RecordsCache, folder: RecordsFolder, query: LinkedQuery) -> pl.DataFrame:
    """Return the measurements of the trials with their metaparameters."""

    def work(records: Records) -> pl.DataFrame:
        return linked_frame(records, _selection(records, query))

    return cache.result(folder.path, query.data_key, work)


def linked_drawing(cache: RecordsCache, folder: RecordsFolder, query: LinkedQuery) -> str:
    """Return the chart as SVG."""

    def work(records: Records) -> str:
        chart = _plot(linked_data(cache, folder, query), records, query)
        with RENDERING:
            return chart_svg(chart)

    return cache.result(folder.path, f"{query.data_key} svg {query.theme}", work)


def linked_specification(cache: RecordsCache, folder: RecordsFolder, query: LinkedQuery) -> bytes:
    """Return the chart as JSON for the page's script; selecting trials is part of it."""
    spec = chart_spec(_plot(linked_data(cache, folder, query), cache.records(folder.path), query))
    return json.dumps(spec).encode()


def _plot(frame: pl.DataFrame, records: Records, query: LinkedQuery) -> Chart:
    look = Look(find_theme(query.theme), columns=2, size=PANEL)
    return plot_linked(frame, _selection(records, query), fitting(look, query.width))


def _selection(records: Records, query: LinkedQuery) -> LinkedSelection:
    name = workload_at(records, query.number)
    selected = records.workload(name)
    names = used_metaparameters(selected)
    if not names:
        raise BatchscaleError("These trials have no metaparameters to draw.")
    x, y = query.trials.axes
    axes = (names[min(x, len(names) - 1)], names[min(y, len(names) - 1)] if len(names) > 1 else None)
    sizes = selected.studies["batch_size"].sort()
    size = query.trials.batch_size if query.trials.batch_size is not None else int(sizes[len(sizes) // 2])
    trials = matching_trials(selected, replace(query.trials, batch_size=size))["trial_id"].sort().to_list()
    return LinkedSelection(name, size, require_goal(records, name), trials, axes, query.trials.smooth)
