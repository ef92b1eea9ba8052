"""Parameters of requests: ids by strict patterns, which are looked up and never become paths."""

import re
from typing import Annotated

from fastapi import Path as PathPart
from fastapi import Query
from starlette.requests import Request

from batchscale.web.overview import OverviewRow
from batchscale.web.records_folders import RecordsFolder
from batchscale.web.refusals import RefusedError
from batchscale.web.server_parts import ServerParts
from batchscale.web.trials import TrialQuery, read_ranges

KEY_PATTERN = r"^[0-9a-f]{16}-[0-9]{1,4}$"
KEY = Annotated[str, PathPart(pattern=KEY_PATTERN)]
ID = Annotated[str, PathPart(pattern=r"^[0-9a-f]{16}$")]
SMOOTH = Annotated[float, Query(ge=0, le=0.99)]
RANK = Annotated[int, Query(ge=0, le=99)]
MAX_TRIALS = 24


def find_records_folder(parts: ServerParts, key: str) -> tuple[RecordsFolder, int]:
    """Return the folder of a key, and the number of the workload."""
    if not re.fullmatch(KEY_PATTERN, key):
        raise RefusedError(404, "There are no records of this id, or not any more.")
    folder_id, _, number = key.partition("-")
    return parts.folders.find(folder_id), int(number)


def find_row(parts: ServerParts, key: str) -> OverviewRow:
    """Return the row of the overview that a key names."""
    folder, number = find_records_folder(parts, key)
    rows = parts.overview.rows_of(folder)
    if number >= len(rows):
        raise RefusedError(404, "There is no such workload here.")
    return rows[number]


def parse_trials(texts: list[str]) -> tuple[tuple[int, int], ...]:
    """Parse trials named as BATCH_SIZE-TRIAL_ID.

    >>> parse_trials(["64-3", "64-3", "x"])
    ((64, 3),)
    """
    names = {text for text in texts[:200] if re.fullmatch(r"[0-9]{1,15}-[0-9]{1,15}", text)}
    pairs = sorted(tuple(map(int, text.split("-"))) for text in names)
    return tuple((size, trial) for size, trial in pairs)[:MAX_TRIALS]


def trial_query(
    request: Request,
    size: Annotated[str, Query(pattern=r"^[0-9]{0,15}$")] = "",
    status: Annotated[str, Query(max_length=20)] = "",
    order: Annotated[str, Query(max_length=100)] = "batch_size",
    down: bool = False,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    smooth: SMOOTH = 0.0,
    mx: RANK = 0,
    my: RANK = 1,
) -> TrialQuery:
    """Return the trials of a request; an empty field of a form sets no limit."""
    ranges = read_ranges(request.query_params)
    return TrialQuery(int(size) if size else None, status, order, down, page, ranges, smooth, (mx, my))
