"""batchscale: measure how neural-network training scales with batch size, and decide with the answer.

Public names are re-exported here and loaded when first used, so that ``import batchscale`` costs nothing.
"""

from batchscale.lazy_imports import load_lazily

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
__getattr__, __dir__ = load_lazily(__name__, _PUBLIC, "__version__")
