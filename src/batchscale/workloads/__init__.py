"""Workloads: data sets, models, optimizers, schedules, metrics, by name; and the registry that puts them together.

What others may use stands here and is loaded when first used: importing this package imports no jax, and of the names
only ``get_workload`` does. ``workload`` is the interface that training stands on, and imports jax.
"""

import importlib
from typing import Any

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


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'batchscale.workloads' has no attribute {name!r}")
    return getattr(importlib.import_module(f"batchscale.workloads.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
