"""The user's own training script: the conversation with it, and the engine that trains trials by it.

What other packages use stands here and is loaded when first used.
"""

import importlib
from typing import Any

_PUBLIC = {
    "Ability": "check",
    "DEFAULT_MAX_PAUSED": "pool",
    "Pool": "pool",
    "Surroundings": "trial_run",
    "TrainerEngine": "engine",
    "TrainerTiming": "calibration",
    "check_trainer_ability": "check",
    "describe_exit": "failures",
    "show_command": "facts",
    "time_trainer": "calibration",
    "trainer_facts": "facts",
}

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'batchscale.trainers' has no attribute {name!r}")
    return getattr(importlib.import_module(f"batchscale.trainers.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
