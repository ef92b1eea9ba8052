"""The JSON object of ``batchscale figure --json``: the rows behind a figure, as ``--csv`` writes them."""

import datetime
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

VERSION = 1


def figure_json(kind: str, shows: str, out: Path | None, frame: "pl.DataFrame") -> dict[str, Any]:
    """The rows of a figure, by column, with what could not be drawn among the notes."""
    return {
        "version": VERSION,
        "figure": kind,
        "shows": shows,
        "out": None if out is None else str(out),
        "columns": frame.columns,
        "rows": [{name: _plain(value) for name, value in row.items()} for row in frame.iter_rows(named=True)],
        "notes": frame["note"].drop_nulls().unique(maintain_order=True).to_list(),
    }


def _plain(value: Any) -> Any:
    """A cell as JSON has it: no NaN, no dates."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return value.isoformat() if isinstance(value, datetime.date | datetime.datetime) else value
