"""Training: one compiled loop that turns a workload, metaparameters and a seed into measurements.

What other packages use stands here and is loaded, with JAX, when first used.
"""

from batchscale.doors import lazy_names

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
    "read_trained": "trained_parameters",
    "time_steps": "calibration",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = lazy_names(__name__, _PUBLIC)
