"""The metrics of each task and their directions. No jax here: validation needs these."""

from collections.abc import Mapping

from batchscale.workloads.tasks import Task

TASK_METRICS: Mapping[Task, Mapping[str, bool]] = {
    Task.CLASSIFICATION: {"cross_entropy_error": False, "classification_error": False},
    Task.MULTILABEL: {"cross_entropy_error": False, "average_precision": True},
    Task.LANGUAGE: {"cross_entropy_error": False},
    Task.QUADRATIC: {"loss": False},
}
"""The metrics of each task, in the order of the records' columns, with whether each is to be maximised."""
