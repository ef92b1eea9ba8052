"""The experiment file and the values it becomes, checked before any compute."""

from batchscale.spec.batch_sizes import BatchSizes
from batchscale.spec.bounds import Bounds, declare_bounds, declared_bounds, natural_bounds
from batchscale.spec.durations import ALL, MAX_MEASUREMENTS, MAX_STEPS, Budget, EvaluationPlan, Spacing, Unit, to_steps
from batchscale.spec.experiment import (
    DEFAULT_BUDGET,
    Algorithm,
    Experiment,
    Option,
    Options,
    RunPlan,
    SearchPlan,
    StopRule,
    WorkloadSpec,
)
from batchscale.spec.file import parse_experiment, read_experiment
from batchscale.spec.goal import SPLITS, Goal
from batchscale.spec.plan import Plan, Study, WorkloadFacts, make_plan
from batchscale.spec.seeds import derive_seed
from batchscale.spec.space import MAX_METAPARAMETERS, ParameterConfig, ParameterType, Scale, SearchSpace
from batchscale.spec.trainer import ReportsSpec, Source, TrainerSpec, check_trainer
from batchscale.spec.workload_name import WorkloadName, is_safe_segment, match_workloads

__all__ = [
    "ALL",
    "DEFAULT_BUDGET",
    "MAX_MEASUREMENTS",
    "MAX_METAPARAMETERS",
    "MAX_STEPS",
    "SPLITS",
    "Algorithm",
    "BatchSizes",
    "Bounds",
    "Budget",
    "EvaluationPlan",
    "Experiment",
    "Goal",
    "Option",
    "Options",
    "ParameterConfig",
    "ParameterType",
    "Plan",
    "ReportsSpec",
    "RunPlan",
    "Scale",
    "SearchPlan",
    "SearchSpace",
    "Source",
    "Spacing",
    "StopRule",
    "Study",
    "TrainerSpec",
    "Unit",
    "WorkloadFacts",
    "WorkloadName",
    "WorkloadSpec",
    "check_trainer",
    "declare_bounds",
    "declared_bounds",
    "derive_seed",
    "is_safe_segment",
    "make_plan",
    "match_workloads",
    "natural_bounds",
    "parse_experiment",
    "read_experiment",
    "to_steps",
]
