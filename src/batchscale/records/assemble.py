"""From parsed studies and trials to the frames of ``Records``: one way for trees, tables and archives."""

import json
from collections.abc import Iterable

import polars as pl

from batchscale.errors import RecordsError
from batchscale.records.frames import STUDY_COLUMNS, STUDY_SCHEMA, TRIAL_SCHEMA
from batchscale.records.metadata.columns import METADATA, study_metadata_row, trial_metadata_row
from batchscale.records.model import StudyRecord, TrialRecord

MAX_PARAMETER_COLUMNS = 1_000


def make_studies_frame(studies: Iterable[StudyRecord]) -> pl.DataFrame:
    """One row per study, sorted by workload and batch size."""
    rows = [
        {
            **_study_key(study),
            "train_steps": study.train_steps,
            "early_stopping": study.early_stopping,
            "parameter_configs": json.dumps(study.space.to_json(), sort_keys=True),
            METADATA: study_metadata_row(study.metadata),
            "extra": json.dumps(dict(study.extra), sort_keys=True),
        }
        for study in studies
    ]
    return pl.DataFrame(rows, schema=dict(STUDY_SCHEMA)).sort(STUDY_COLUMNS)


def make_trials_frame(trials: Iterable[tuple[StudyRecord, TrialRecord]]) -> pl.DataFrame:
    """One row per trial, sorted by workload, batch size and trial id, with a column for each metaparameter."""
    columns: dict[str, list[object]] = {name: [] for name in TRIAL_SCHEMA}
    parameters: dict[str, list[float | None]] = {}
    count = 0
    for study, trial in trials:
        row = {
            **_study_key(study),
            "trial_id": trial.trial_id,
            "status": trial.status.value,
            "steps": trial.steps,
            METADATA: trial_metadata_row(trial.metadata),
            "extra": json.dumps(dict(trial.extra), sort_keys=True),
        }
        for name, value in row.items():
            columns[name].append(value)
        for name, number in trial.parameters.items():
            cells = parameters.setdefault(name, [])
            if len(parameters) > MAX_PARAMETER_COLUMNS:
                raise RecordsError(
                    f"All trials together have at most {MAX_PARAMETER_COLUMNS:,} different metaparameters. Found more "
                    f"at trial {trial.trial_id} of {study.workload}/{study.batch_size}; read a part of the tree."
                )
            cells.extend([None] * (count - len(cells)))
            cells.append(float(number))
        count += 1
    frame = pl.DataFrame(columns, schema=dict(TRIAL_SCHEMA))
    series = [
        pl.Series(name, cells + [None] * (count - len(cells)), dtype=pl.Float64)
        for name, cells in sorted(parameters.items())
    ]
    return frame.with_columns(series).sort(*STUDY_COLUMNS, "trial_id")


def _study_key(study: StudyRecord) -> dict[str, str | int]:
    name = study.workload
    return {
        "dataset": name.dataset,
        "model": name.model,
        "optimizer": name.optimizer,
        "batch_size": study.batch_size,
    }
