"""Which part of a study's training was measured: what lies outside is left out of figures, or marked as a bound."""

import polars as pl

from batchscale.records.frames import Records
from batchscale.records.model import Status
from batchscale.spec.workload_name import WorkloadName

BOUND = "bound"
"""The column: whether trials ended before the steps a row is about, so that longer training might have done better."""

BOUND_WORDS = "hollow: trials were stopped before that (race, goal); trained on, they might have done better"


def first_measured(records: Records, workload: WorkloadName) -> dict[int, int]:
    """Per batch size the first step after the start at which a COMPLETE trial was measured."""
    complete = records.workload(workload).filter(status=Status.COMPLETE.value)
    steps = complete.measurements_of(workload).select("batch_size", "step").filter(pl.col("step") > 0)
    return dict(steps.group_by("batch_size").agg(pl.col("step").min()).collect().rows())


def ended_first(records: Records, workload: WorkloadName, by: str | None = None) -> pl.DataFrame:
    """Per batch size (and value of a metaparameter) the steps of the COMPLETE trial that ended first.

    Returns:
        The columns ``batch_size``, the metaparameter, ``shortest``; only studies with a rule that ends trials early.
    """
    chosen = records.workload(workload)
    complete = chosen.trials.filter(pl.col("status") == Status.COMPLETE.value)
    ended = complete.group_by("batch_size", *([by] if by else [])).agg(pl.col("steps").min().alias("shortest"))
    early = chosen.studies.filter("early_stopping").select("batch_size")
    return ended.join(early, on="batch_size", how="semi")
