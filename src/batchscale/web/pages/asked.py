"""What a browser may name: ids by strict patterns, turned into folders and rows by looking them up."""

import re
from typing import Annotated

from fastapi import Path as PathPart
from fastapi import Query
from starlette.requests import Request

from batchscale.web.overview import OverviewRow
from batchscale.web.records_folders import RecordsFolder
from batchscale.web.refusals import RefusedError
from batchscale.web.server_parts import ServerParts
from batchscale.web.trials import TrialWish, read_ranges

KEY_PATTERN = r"^[0-9a-f]{16}-[0-9]{1,4}$"
KEY = Annotated[str, PathPart(pattern=KEY_PATTERN)]
ID = Annotated[str, PathPart(pattern=r"^[0-9a-f]{16}$")]
SMOOTH = Annotated[float, Query(ge=0, le=0.99)]
RANK = Annotated[int, Query(ge=0, le=99)]
MOST_TRIALS = 24


def find_records_folder(parts: ServerParts, key: str) -> tuple[RecordsFolder, int]:
    """The folder of a key, and the number of the workload."""
    if not re.fullmatch(KEY_PATTERN, key):
        raise RefusedError(404, "There are no records of this id, or not any more.")
    folder_id, _, number = key.partition("-")
    return parts.folders.find(folder_id), int(number)


def find_row(parts: ServerParts, key: str) -> OverviewRow:
    """The row of the overview that a key names."""
    folder, number = find_records_folder(parts, key)
    rows = parts.overview.rows_of(folder)
    if number >= len(rows):
        raise RefusedError(404, "There is no such workload here.")
    return rows[number]


def parse_trials(texts: list[str]) -> tuple[tuple[int, int], ...]:
    """Trials named as BATCH_SIZE-TRIAL_ID.

    >>> parse_trials(["64-3", "64-3", "x"])
    ((64, 3),)
    """
    found = {text for text in texts[:200] if re.fullmatch(r"[0-9]{1,15}-[0-9]{1,15}", text)}
    pairs = sorted(tuple(map(int, text.split("-"))) for text in found)
    return tuple((size, trial) for size, trial in pairs)[:MOST_TRIALS]


def asked_trials(
    request: Request,
    size: Annotated[str, Query(pattern=r"^[0-9]{0,15}$")] = "",
    status: Annotated[str, Query(max_length=20)] = "",
    order: Annotated[str, Query(max_length=100)] = "batch_size",
    down: bool = False,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    smooth: SMOOTH = 0.0,
    mx: RANK = 0,
    my: RANK = 1,
) -> TrialWish:
    """The trials that a query is about; an empty field of a form means no limit."""
    ranges = read_ranges(request.query_params)
    return TrialWish(int(size) if size else None, status, order, down, page, ranges, smooth, (mx, my))
