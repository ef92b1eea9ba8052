"""The user's own training script: the conversation with it, and the engine that trains trials by it.

What other packages use stands here and is loaded when first used.
"""

from batchscale.doors import lazy_names

_PUBLIC = {
    "Ability": "check",
    "DEFAULT_MAX_PAUSED": "pool",
    "Pool": "pool",
    "Surroundings": "trial_run",
    "TrainerEngine": "engine",
    "TrainerTiming": "calibration",
    "check_trainer_ability": "check",
    "describe_exit": "failures",
    "require_program": "command",
    "show_command": "facts",
    "time_trainer": "calibration",
    "trainer_facts": "facts",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = lazy_names(__name__, _PUBLIC)
