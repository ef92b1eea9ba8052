"""batchscale: measure how neural-network training scales with batch size, and decide with the answer.

    import batchscale as bs
    bs.fit({16: 12000, 32: 6100, 64: 3300, 128: 1900}).critical_batch_size

Public names are re-exported here and loaded when first used, so that ``import batchscale`` costs nothing. Their types
are in ``__init__.pyi``: an import here, even for types alone, would let every package depend on every other.
"""

from batchscale.lazy_imports import load_lazily

__version__ = "0.1.0"

_PUBLIC = {
    "BatchscaleError": "errors",
    "Curve": "api.curve",
    "Experiment": "spec",
    "Goal": "spec",
    "SearchSpace": "spec",
    "TrainingPlan": "api.plans",
    "WorkloadName": "spec",
    "analyze": "api.inputs",
    "choice": "api.ranges",
    "fit": "api.inputs",
    "linear": "api.ranges",
    "log": "api.ranges",
    "measure": "api.measuring",
    "plan": "api.plans",
    "read": "api.inputs",
    "register_workload": "workloads.user.registration",
    "reverse_log": "api.ranges",
}

__all__ = [*_PUBLIC, "__version__"]
__getattr__, __dir__ = load_lazily(__name__, _PUBLIC, "__version__")
