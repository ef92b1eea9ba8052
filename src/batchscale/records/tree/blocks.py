"""The rows of many trials as one block: a frame of steps and metrics, and how many rows each trial has in it.

Trials are moved as wholes; which trial a row is of is written out only at the end.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from batchscale.records.frames import MEASUREMENT_SCHEMA

RowRun = tuple[int, int, int]  # batch size, trial id, number of rows


@dataclass(frozen=True)
class CsvBlock:
    """The rows of the trials of ``runs``, one trial behind the other."""

    frame: pl.DataFrame
    runs: Sequence[RowRun]

    def labelled(self) -> pl.DataFrame:
        """The frame with the columns ``batch_size`` and ``trial_id`` before the others."""
        sizes, trials, rows = np.array(self.runs, dtype=np.int64).reshape(-1, 3).T
        labels = [
            pl.Series("batch_size", np.repeat(sizes, rows), dtype=pl.Int64),
            pl.Series("trial_id", np.repeat(trials, rows), dtype=pl.Int64),
        ]
        return pl.DataFrame([*labels, *self.frame.get_columns()])

    def ordered(self, wanted: set[tuple[int, int]] | None = None) -> "CsvBlock":
        """The trials by batch size and id; only those ``wanted``, if given."""
        starts = np.cumsum([0, *(rows for *_, rows in self.runs)])
        places = sorted(
            (run[0], run[1], place)
            for place, run in enumerate(self.runs)
            if wanted is None or (run[0], run[1]) in wanted
        )
        chosen = [place for *_, place in places]
        if chosen == list(range(len(self.runs))):
            return self
        runs = [self.runs[place] for place in chosen]
        rows = np.array([rows for *_, rows in runs], dtype=np.int64)
        index = np.arange(rows.sum()) + np.repeat(starts[chosen] - (np.cumsum(rows) - rows), rows)
        return CsvBlock(self.frame.select(pl.all().gather(index)), runs)


def join_blocks(blocks: Sequence[CsvBlock]) -> CsvBlock:
    """One ordered block; a metric that a block lacks is null there."""
    if not blocks:
        return CsvBlock(pl.DataFrame(schema={"step": MEASUREMENT_SCHEMA["step"]}), [])
    if len(blocks) == 1:
        return blocks[0].ordered()
    frames = [block.frame for block in blocks]
    same = all(frame.schema == frames[0].schema for frame in frames)
    joined = pl.concat(frames, how="vertical" if same else "diagonal_relaxed")
    return CsvBlock(joined, [run for block in blocks for run in block.runs]).ordered()
