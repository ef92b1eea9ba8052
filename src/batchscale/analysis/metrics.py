"""The metrics of a workload's measurements: is a name one of them, and of which type."""

import polars as pl

from batchscale.errors import UnknownNameError, one_line, suggest_names
from batchscale.records.frames import MEASUREMENT_SCHEMA
from batchscale.spec import WorkloadName


def check_metric(frame: pl.LazyFrame, metric: str, workload: WorkloadName) -> pl.DataType:
    """The type of a metric's column; UnknownNameError when the workload does not have the metric."""
    schema = frame.collect_schema()
    if metric not in schema or metric in MEASUREMENT_SCHEMA:
        metrics = [name for name in schema if name not in MEASUREMENT_SCHEMA]
        raise UnknownNameError(
            f"The metric must be one that {workload} was measured by. Found '{one_line(metric)}'; "
            f"{suggest_names(metric, metrics)}"
        )
    return schema[metric]
