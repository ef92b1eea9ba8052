"""The experiment file and the values it becomes, checked before any compute.

The public names are loaded on first use. Inside batchscale, import from the modules.
"""

from typing import TYPE_CHECKING

from batchscale.lazy_imports import load_lazily

if TYPE_CHECKING:
    from batchscale.spec.batch_sizes import BatchSizes as BatchSizes
    from batchscale.spec.durations import Budget as Budget
    from batchscale.spec.durations import EvaluationPlan as EvaluationPlan
    from batchscale.spec.experiment import Algorithm as Algorithm
    from batchscale.spec.experiment import Experiment as Experiment
    from batchscale.spec.experiment import StopRule as StopRule
    from batchscale.spec.experiment import WorkloadSpec as WorkloadSpec
    from batchscale.spec.file import parse_experiment as parse_experiment
    from batchscale.spec.file import read_experiment as read_experiment
    from batchscale.spec.goal import Goal as Goal
    from batchscale.spec.plan import Plan as Plan
    from batchscale.spec.plan import Study as Study
    from batchscale.spec.plan import make_plan as make_plan
    from batchscale.spec.space import Bounds as Bounds
    from batchscale.spec.space import ParameterConfig as ParameterConfig
    from batchscale.spec.space import ParameterType as ParameterType
    from batchscale.spec.space import Scale as Scale
    from batchscale.spec.space import SearchSpace as SearchSpace
    from batchscale.spec.workload_name import WorkloadName as WorkloadName

_PUBLIC = {
    "Algorithm": "experiment",
    "BatchSizes": "batch_sizes",
    "Bounds": "space",
    "Budget": "durations",
    "EvaluationPlan": "durations",
    "Experiment": "experiment",
    "Goal": "goal",
    "ParameterConfig": "space",
    "ParameterType": "space",
    "Plan": "plan",
    "Scale": "space",
    "SearchSpace": "space",
    "StopRule": "experiment",
    "Study": "plan",
    "WorkloadName": "workload_name",
    "WorkloadSpec": "experiment",
    "make_plan": "plan",
    "parse_experiment": "file",
    "read_experiment": "file",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = load_lazily(__name__, _PUBLIC)
