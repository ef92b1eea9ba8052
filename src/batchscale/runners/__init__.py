"""Runners: where jobs run. One interface, and the places that keep its promises.

What other packages use stands here and is loaded when first used.
"""

from batchscale.doors import lazy_names

_PUBLIC = {
    "Doing": "runner",
    "Done": "runner",
    "Event": "runner",
    "GroupRunner": "groups",
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
    "SlurmRunner": "slurm.runner",
    "SlurmSettings": "slurm.runner",
    "TRAINER_ENGINE": "runner",
    "TRAINING_ENGINE": "runner",
    "WorkerInfo": "runner",
    "check_devices": "environment",
    "check_ray": "ray.link",
    "computing_like_a_worker": "environment",
    "default_workers": "environment",
    "follow": "cluster",
    "lead_group": "group_lead",
    "load_later": "inline",
    "memory_limit": "environment",
    "offer_devices": "environment",
    "share_host": "cluster",
    "trainer_options": "runner",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = lazy_names(__name__, _PUBLIC)
