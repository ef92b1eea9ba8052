"""Analysis: pure functions from records to results, curves, regimes, and how sure they are."""

from batchscale.analysis.budgets import (
    BEST_MEASUREMENT_SCHEMA,
    PAPER_TRAIN_EXAMPLES,
    best_measurement,
    budget_steps,
    train_examples,
)
from batchscale.analysis.outcomes import (
    STUDY_OUTCOME_SCHEMA,
    TRIAL_OUTCOME_SCHEMA,
    Outcome,
    study_outcomes,
    trial_outcomes,
)
from batchscale.analysis.regimes import Baseline, Regimes, Thresholds, regimes
from batchscale.analysis.results import RESULT_SCHEMA, results_of, steps_to_result
from batchscale.analysis.scaling import Family, FamilyFit, ScalingFit, fit_scaling

__all__ = [
    "BEST_MEASUREMENT_SCHEMA",
    "PAPER_TRAIN_EXAMPLES",
    "RESULT_SCHEMA",
    "STUDY_OUTCOME_SCHEMA",
    "TRIAL_OUTCOME_SCHEMA",
    "Baseline",
    "Family",
    "FamilyFit",
    "Outcome",
    "Regimes",
    "ScalingFit",
    "Thresholds",
    "best_measurement",
    "budget_steps",
    "fit_scaling",
    "regimes",
    "results_of",
    "steps_to_result",
    "study_outcomes",
    "train_examples",
    "trial_outcomes",
]
