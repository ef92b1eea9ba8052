"""The metrics of a workload's measurements: is a name one of them, and of which type."""

import polars as pl

from batchscale.errors import AnalysisError, UnknownNameError, one_line, suggest_names
from batchscale.records.frames import MEASUREMENT_SCHEMA
from batchscale.spec.workload_name import WorkloadName


def check_metric(frame: pl.LazyFrame, metric: str, workload: WorkloadName) -> pl.DataType:
    """The type of a metric's column; UnknownNameError when the workload lacks it, AnalysisError before any trial."""
    schema = frame.collect_schema()
    if metric not in schema or metric in MEASUREMENT_SCHEMA:
        metrics = [name for name in schema if name not in MEASUREMENT_SCHEMA]
        if not metrics:
            raise AnalysisError(
                f"{workload} has no measured trial yet, so there is nothing to look '{one_line(metric)}' up in."
            )
        raise UnknownNameError(
            f"The metric must be one that {workload} was measured by. Found '{one_line(metric)}'; "
            f"{suggest_names(metric, metrics)}"
        )
    return schema[metric]
