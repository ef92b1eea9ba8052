"""Workloads: data sets, models, optimizers, schedules, metrics, by name; and the registry that puts them together.

The public names are loaded on first use. Inside batchscale, import from the modules.
"""

from typing import TYPE_CHECKING

from batchscale.lazy_imports import load_lazily

if TYPE_CHECKING:
    from batchscale.workloads.datasets.declaration import DatasetDeclaration as DatasetDeclaration
    from batchscale.workloads.metrics.declaration import MetricDeclaration as MetricDeclaration
    from batchscale.workloads.models.declaration import ModelDeclaration as ModelDeclaration
    from batchscale.workloads.optimizers.declaration import OptimizerDeclaration as OptimizerDeclaration
    from batchscale.workloads.registry import get_workload as get_workload
    from batchscale.workloads.schedules.declaration import ScheduleDeclaration as ScheduleDeclaration
    from batchscale.workloads.tasks import Task as Task
    from batchscale.workloads.user.registration import register as register
    from batchscale.workloads.user.registration import register_workload as register_workload

_PUBLIC = {
    "DatasetDeclaration": "datasets.declaration",
    "MetricDeclaration": "metrics.declaration",
    "ModelDeclaration": "models.declaration",
    "OptimizerDeclaration": "optimizers.declaration",
    "ScheduleDeclaration": "schedules.declaration",
    "Task": "tasks",
    "get_workload": "registry",
    "register": "user.registration",
    "register_workload": "user.registration",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = load_lazily(__name__, _PUBLIC)
