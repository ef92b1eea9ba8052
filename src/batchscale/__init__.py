"""batchscale: measure how neural-network training scales with batch size, and decide with the answer.

Public names are re-exported here and loaded when first used, so that ``import batchscale`` costs nothing.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {
    "BatchscaleError": "errors",
    "analyze": "analysis",
    "fit_scaling": "analysis",
    "steps_to_result": "analysis",
    "Experiment": "spec",
    "Goal": "spec",
    "SearchSpace": "spec",
    "WorkloadName": "spec",
    "read_records": "records",
    "register_workload": "workloads.user.registration",
}

__all__ = [*_PUBLIC, "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'batchscale' has no attribute {name!r}")
    return getattr(importlib.import_module(f"batchscale.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
