"""The table of studies with their trials by status, as at the end of the published description, for any records."""

from dataclasses import dataclass

import polars as pl

from batchscale.records.facts.columns import FACTS
from batchscale.records.frames import STUDY_COLUMNS, WORKLOAD_COLUMNS, Records
from batchscale.records.model import Status
from batchscale.records.notes import study_note

STATUS_COLUMNS = {
    Status.COMPLETE: "complete",
    Status.INCOMPLETE: "incomplete",
    Status.INFEASIBLE: "infeasible",
}


@dataclass(frozen=True)
class Summary:
    """One row per study, sorted by workload and batch size: its trials by status, its measurements, and notes.

    ``notes`` say what the run found: a best trial at an edge, more than one search, too few trials. Null if nothing.
    """

    table: pl.DataFrame

    @property
    def num_studies(self) -> int:
        """How many studies there are."""
        return self.table.height

    @property
    def num_trials(self) -> int:
        """How many trials there are, whatever their status."""
        return sum(int(self.table[column].sum()) for column in STATUS_COLUMNS.values())

    @property
    def num_measurements(self) -> int:
        """How many measurements there are."""
        return int(self.table["measurements"].sum())


def summarize(records: Records) -> Summary:
    """The summary of a tree, table or archive. Measurements are counted a workload at a time."""
    is_status = {name: (pl.col("status") == status.value).sum() for status, name in STATUS_COLUMNS.items()}
    trials = records.trials.group_by(STUDY_COLUMNS).agg(**is_status)
    counted = records.studies.select(STUDY_COLUMNS).join(trials, on=STUDY_COLUMNS, how="left")
    table = counted.join(_count_measurements(records), on=STUDY_COLUMNS, how="left")
    counts = pl.col(*STATUS_COLUMNS.values(), "measurements").fill_null(0).cast(pl.Int64)
    notes = records.studies.select(*STUDY_COLUMNS, pl.Series("notes", _notes(records), dtype=pl.String))
    noted = table.with_columns(counts).join(notes, on=STUDY_COLUMNS, how="left")
    return Summary(noted.sort(STUDY_COLUMNS))


def _notes(records: Records) -> list[str | None]:
    known = (facts or {"at_edge": (), "spaces": (), "short": None} for facts in records.studies[FACTS])
    return [
        study_note(", ".join(facts["at_edge"] or ()), len(facts["spaces"]), short=bool(facts["short"]))
        for facts in known
    ]


def _count_measurements(records: Records) -> pl.DataFrame:
    frames = [
        pl.DataFrame(
            schema={**dict.fromkeys(WORKLOAD_COLUMNS, pl.String), "batch_size": pl.Int64, "measurements": pl.UInt32}
        )
    ]
    for name in records.workloads:
        counts = records.measurements_of(name).group_by("batch_size").agg(measurements=pl.len()).collect()
        labels = [
            pl.lit(name.dataset).alias("dataset"),
            pl.lit(name.model).alias("model"),
            pl.lit(name.optimizer).alias("optimizer"),
        ]
        frames.append(counts.select(*labels, "batch_size", pl.col("measurements").cast(pl.UInt32)))
    return pl.concat(frames)
