"""Training: one compiled loop that turns a workload, metaparameters and a seed into measurements.

What other packages use stands here and is loaded, with JAX, when first used.
"""

import importlib
from typing import Any

_PUBLIC = {
    "Agreement": "agreement",
    "Alone": "agreement",
    "Effort": "calibration",
    "EngineSettings": "settings",
    "OutOfMemoryError": "calibration",
    "StatePost": "sent_states",
    "StepTiming": "calibration",
    "StudyEngine": "study_engine",
    "describe_hardware": "hardware",
    "joined": "processes",
    "profiled": "profiling",
    "time_steps": "calibration",
}

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'batchscale.training' has no attribute {name!r}")
    return getattr(importlib.import_module(f"batchscale.training.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
