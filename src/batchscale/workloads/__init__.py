"""Workloads: data sets, models, optimizers, schedules, metrics, by name; and the registry that puts them together.

What others may use stands here and is loaded when first used: importing this package imports no jax, and of the names
only ``get_workload`` does. ``workload`` is the interface that training stands on, and imports jax.
"""

from batchscale.doors import lazy_names

_PUBLIC = {
    "DatasetDeclaration": "datasets",
    "MetricDeclaration": "metrics",
    "ModelDeclaration": "models",
    "OptimizerDeclaration": "optimizers",
    "ScheduleDeclaration": "schedules",
    "cache_folder": "cache",
    "find_parts": "catalogue",
    "get_workload": "registry",
    "paper_workloads": "catalogue",
    "register": "extension",
    "register_workload": "user.registration",
    "workload_facts": "catalogue",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = lazy_names(__name__, _PUBLIC)
