"""Runners: where jobs run. One interface, and the places that keep its promises.

What other packages use stands here and is loaded when first used.
"""

import importlib
from typing import Any

_PUBLIC = {
    "Doing": "runner",
    "Done": "runner",
    "Event": "runner",
    "InlineRunner": "inline",
    "Job": "runner",
    "LocalRunner": "local",
    "LocalSettings": "local",
    "LossReason": "runner",
    "Lost": "runner",
    "RayRunner": "ray.runner",
    "RaySettings": "ray.runner",
    "Runner": "runner",
    "Setup": "runner",
    "TRAINER_ENGINE": "runner",
    "TRAINING_ENGINE": "runner",
    "WorkerInfo": "runner",
    "check_devices": "environment",
    "check_ray": "ray.link",
    "computing_like_a_worker": "environment",
    "default_workers": "environment",
    "follow": "cluster",
    "memory_limit": "environment",
    "offer_devices": "environment",
    "share_host": "cluster",
    "trainer_options": "runner",
}

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'batchscale.runners' has no attribute {name!r}")
    return getattr(importlib.import_module(f"batchscale.runners.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
