"""Count the studies and trials of any records.

The table has the columns of the one at the end of the published description.
"""

import json
from dataclasses import dataclass

import polars as pl

from batchscale.records.frames import STUDY_COLUMNS, WORKLOAD_COLUMNS, Records
from batchscale.records.metadata.columns import METADATA
from batchscale.records.metadata.study import study_note
from batchscale.records.model import Status

STATUS_COLUMNS = {
    Status.COMPLETE: "complete",
    Status.INCOMPLETE: "incomplete",
    Status.INFEASIBLE: "infeasible",
}


@dataclass(frozen=True)
class Summary:
    """One row per study, sorted by workload and batch size: trials by status, number of measurements, and notes.

    ``notes`` is null for a study without a note (`study_note`), ``batch_size_tokens`` where the tokens of an example
    are unknown.
    """

    table: pl.DataFrame

    @property
    def num_studies(self) -> int:
        """The number of studies."""
        return self.table.height

    @property
    def num_trials(self) -> int:
        """The number of trials of any status."""
        return sum(int(self.table[column].sum()) for column in STATUS_COLUMNS.values())

    @property
    def num_measurements(self) -> int:
        """The number of measurements."""
        return int(self.table["measurements"].sum())


def summarize(records: Records) -> Summary:
    """Return the summary of a tree, table or archive. Measurements are counted a workload at a time."""
    is_status = {name: (pl.col("status") == status.value).sum() for status, name in STATUS_COLUMNS.items()}
    trials = records.trials.group_by(STUDY_COLUMNS).agg(**is_status)
    counted = records.studies.select(STUDY_COLUMNS).join(trials, on=STUDY_COLUMNS, how="left")
    table = counted.join(_count_measurements(records), on=STUDY_COLUMNS, how="left")
    counts = pl.col(*STATUS_COLUMNS.values(), "measurements").fill_null(0).cast(pl.Int64)
    tokens = pl.col("batch_size") * pl.col(METADATA).struct.field("tokens_per_example")
    notes = records.studies.select(
        *STUDY_COLUMNS, pl.Series("notes", _notes(records), dtype=pl.String), tokens.alias("batch_size_tokens")
    )
    noted = table.with_columns(counts).join(notes, on=STUDY_COLUMNS, how="left")
    return Summary(noted.sort(STUDY_COLUMNS))


def _notes(records: Records) -> list[str | None]:
    notes: list[str | None] = []
    for row in records.studies[METADATA]:
        if row is None:
            notes.append(None)
            continue
        note = study_note(", ".join(row["at_edge"] or ()), len(row["spaces"]), short=bool(row["short"]))
        rounds = [json.loads(text)["round"] for text in row["choices"] or () if json.loads(text)["kind"] != "stop"]
        chosen = f"chosen in round {', '.join(map(str, rounds))}" if rounds else None
        notes.append("; ".join(text for text in (note, chosen) if text) or None)
    return notes


def _count_measurements(records: Records) -> pl.DataFrame:
    schema = {**dict.fromkeys(WORKLOAD_COLUMNS, pl.String), "batch_size": pl.Int64, "measurements": pl.UInt32}
    frames = [pl.DataFrame(schema=schema)]
    for name in records.workloads:
        counts = records.measurements_of(name).group_by("batch_size").agg(measurements=pl.len()).collect()
        labels = [
            pl.lit(name.dataset).alias("dataset"),
            pl.lit(name.model).alias("model"),
            pl.lit(name.optimizer).alias("optimizer"),
        ]
        frames.append(counts.select(*labels, "batch_size", pl.col("measurements").cast(pl.UInt32)))
    return pl.concat(frames)
