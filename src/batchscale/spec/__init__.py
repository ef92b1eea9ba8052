"""The experiment file and the values it becomes, checked before any compute.

The names that other layers use are re-exported here and loaded when first used.
"""

from typing import TYPE_CHECKING

from batchscale.doors import lazy_names

if TYPE_CHECKING:
    from batchscale.spec.batch_sizes import BatchSizes as BatchSizes
    from batchscale.spec.bounds import Bounds as Bounds
    from batchscale.spec.bounds import declare_bounds as declare_bounds
    from batchscale.spec.bounds import declared_bounds as declared_bounds
    from batchscale.spec.bounds import natural_bounds as natural_bounds
    from batchscale.spec.durations import ALL as ALL
    from batchscale.spec.durations import MAX_MEASUREMENTS as MAX_MEASUREMENTS
    from batchscale.spec.durations import MAX_STEPS as MAX_STEPS
    from batchscale.spec.durations import Budget as Budget
    from batchscale.spec.durations import EvaluationPlan as EvaluationPlan
    from batchscale.spec.durations import Spacing as Spacing
    from batchscale.spec.durations import Unit as Unit
    from batchscale.spec.durations import to_steps as to_steps
    from batchscale.spec.experiment import DEFAULT_BUDGET as DEFAULT_BUDGET
    from batchscale.spec.experiment import Algorithm as Algorithm
    from batchscale.spec.experiment import Experiment as Experiment
    from batchscale.spec.experiment import Option as Option
    from batchscale.spec.experiment import Options as Options
    from batchscale.spec.experiment import RayPlan as RayPlan
    from batchscale.spec.experiment import RunPlan as RunPlan
    from batchscale.spec.experiment import SearchPlan as SearchPlan
    from batchscale.spec.experiment import StopRule as StopRule
    from batchscale.spec.experiment import WorkloadSpec as WorkloadSpec
    from batchscale.spec.file import parse_experiment as parse_experiment
    from batchscale.spec.file import read_experiment as read_experiment
    from batchscale.spec.goal import SPLITS as SPLITS
    from batchscale.spec.goal import Goal as Goal
    from batchscale.spec.plan import Plan as Plan
    from batchscale.spec.plan import Study as Study
    from batchscale.spec.plan import WorkloadFacts as WorkloadFacts
    from batchscale.spec.plan import make_plan as make_plan
    from batchscale.spec.seeds import derive_seed as derive_seed
    from batchscale.spec.slurm import SlurmOptions as SlurmOptions
    from batchscale.spec.space import MAX_METAPARAMETERS as MAX_METAPARAMETERS
    from batchscale.spec.space import ParameterConfig as ParameterConfig
    from batchscale.spec.space import ParameterType as ParameterType
    from batchscale.spec.space import Scale as Scale
    from batchscale.spec.space import SearchSpace as SearchSpace
    from batchscale.spec.trainer import ReportSource as ReportSource
    from batchscale.spec.trainer import ReportsSpec as ReportsSpec
    from batchscale.spec.trainer import TrainerSpec as TrainerSpec
    from batchscale.spec.trainer import check_trainer as check_trainer
    from batchscale.spec.workload_name import WorkloadName as WorkloadName
    from batchscale.spec.workload_name import is_safe_segment as is_safe_segment
    from batchscale.spec.workload_name import match_workloads as match_workloads

_PUBLIC = {
    "ALL": "durations",
    "Algorithm": "experiment",
    "BatchSizes": "batch_sizes",
    "Bounds": "bounds",
    "Budget": "durations",
    "DEFAULT_BUDGET": "experiment",
    "EvaluationPlan": "durations",
    "Experiment": "experiment",
    "Goal": "goal",
    "MAX_MEASUREMENTS": "durations",
    "MAX_METAPARAMETERS": "space",
    "MAX_STEPS": "durations",
    "Option": "experiment",
    "Options": "experiment",
    "ParameterConfig": "space",
    "ParameterType": "space",
    "Plan": "plan",
    "ReportsSpec": "trainer",
    "RayPlan": "experiment",
    "RunPlan": "experiment",
    "SPLITS": "goal",
    "Scale": "space",
    "SearchPlan": "experiment",
    "SearchSpace": "space",
    "ReportSource": "trainer",
    "SlurmOptions": "slurm",
    "Spacing": "durations",
    "StopRule": "experiment",
    "Study": "plan",
    "TrainerSpec": "trainer",
    "Unit": "durations",
    "WorkloadFacts": "plan",
    "WorkloadName": "workload_name",
    "WorkloadSpec": "experiment",
    "check_trainer": "trainer",
    "declare_bounds": "bounds",
    "declared_bounds": "bounds",
    "derive_seed": "seeds",
    "is_safe_segment": "workload_name",
    "make_plan": "plan",
    "match_workloads": "workload_name",
    "natural_bounds": "bounds",
    "parse_experiment": "file",
    "read_experiment": "file",
    "to_steps": "durations",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = lazy_names(__name__, _PUBLIC)
