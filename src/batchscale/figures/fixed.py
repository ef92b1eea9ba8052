"""Metaparameters that a study held fixed: no trial records them, the study does."""

import polars as pl

from batchscale.records.frames import STUDY_COLUMNS, TRIAL_SCHEMA, Records, fixed_values


def with_fixed(trials: pl.DataFrame, records: Records) -> pl.DataFrame:
    """Rows that name their studies, with the values that these held fixed where the rows have none of their own."""
    rows = [
        (*study, str(name), float(value))
        for study, held in fixed_values(records).items()
        for name, value in held.items()
        if name not in TRIAL_SCHEMA
    ]
    for name in sorted({row[-2] for row in rows}):
        schema = {column: trials.schema[column] for column in STUDY_COLUMNS} | {"fixed_value": pl.Float64()}
        known = [(*study, value) for *study, other, value in rows if other == name]
        held = pl.DataFrame(known, schema=schema, orient="row")
        own = pl.col(name) if name in trials.columns else pl.lit(None, dtype=pl.Float64)
        trials = (
            trials.join(held, on=STUDY_COLUMNS, how="left", maintain_order="left")
            .with_columns(own.fill_null(pl.col("fixed_value")).alias(name))
            .drop("fixed_value")
        )
    return trials
