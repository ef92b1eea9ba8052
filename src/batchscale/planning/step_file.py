"""The file of step times: rows are added at its end, and it is replaced whole."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from batchscale.errors import PlanningError, one_line
from batchscale.planning.csv_rows import read_csv_rows
from batchscale.planning.step_times import NEEDED
from batchscale.records.durable import replace_durably

STEP_TIME_SCHEMA: Mapping[str, type[pl.DataType]] = {
    "workload": pl.String,
    "device": pl.String,
    "hosts": pl.Int64,
    "devices_per_host": pl.Int64,
    "batch_size": pl.Int64,
    "step_time_s": pl.Float64,
    "step_time_low_s": pl.Float64,
    "step_time_high_s": pl.Float64,
    "repetitions": pl.Int64,
    "steps_per_repetition": pl.Int64,
    "compile_s": pl.Float64,
    "precision": pl.String,
    "max_batch_per_device": pl.Int64,
    "machine": pl.String,  # the host's name and cores, for people
    "code_version": pl.String,
    "date": pl.String,
}


def append_step_times(path: Path, rows: Sequence[Mapping[str, object]]) -> None:
    """Adds measurements to a file that has these columns, or makes it.

    Raises:
        PlanningError: there is a file with other columns.
    """
    new = pl.DataFrame(list(rows), schema=STEP_TIME_SCHEMA)
    old = ""
    if path.exists():
        file = read_csv_rows(path, "a table of step times", NEEDED)
        if file.columns != tuple(STEP_TIME_SCHEMA):
            raise PlanningError(
                f"{one_line(path, 300)}: rows are added to a file with the columns of 'batchscale calibrate'. Found "
                f"{one_line(', '.join(file.columns))}; give another --out."
            )
        old = path.read_text(encoding="utf-8-sig")
        old += "" if old.endswith("\n") else "\n"
    replace_durably(path, old + new.write_csv(include_header=not old))
