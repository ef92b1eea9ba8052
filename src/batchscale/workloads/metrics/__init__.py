"""Metrics by name: the tasks they are for, their direction, and how they add up over batches. No jax until they run."""

from batchscale.workloads.metrics.declaration import MetricDeclaration
from batchscale.workloads.metrics.table import METRICS, metric_directions, task_metrics

__all__ = ["METRICS", "MetricDeclaration", "metric_directions", "task_metrics"]
