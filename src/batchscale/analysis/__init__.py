"""Analysis: pure functions from records to results, curves, regimes, and how sure they are."""

from batchscale.analysis.answers import (
    ANALYSIS_SCHEMA,
    Analysis,
    Options,
    analyze,
    analyze_points,
    select_workload,
    stored_goal,
)
from batchscale.analysis.budgets import (
    BEST_MEASUREMENT_SCHEMA,
    PAPER_TRAIN_EXAMPLES,
    best_measurement,
    best_per_trial,
    budget_steps,
    train_examples,
)
from batchscale.analysis.comparison import COMPARISON_SCHEMA, NORMALISED_SCHEMA, Comparison, compare, normalise
from batchscale.analysis.curve_file import read_curve
from batchscale.analysis.estimates import Estimate
from batchscale.analysis.facts import CurveFacts, Ending, PointFacts
from batchscale.analysis.goals import (
    SENSITIVITY_SCHEMA,
    GoalSuggestion,
    goal_sensitivity,
    goal_sentence,
    suggest_goal,
)
from batchscale.analysis.intervals import (
    MEANING,
    BoundaryIntervals,
    Interval,
    Resampling,
    StudyPoint,
    point_intervals,
)
from batchscale.analysis.metaparameters import (
    HEURISTIC_SCHEMA,
    Heuristic,
    HeuristicFit,
    add_effective_learning_rate,
    heuristic_errors,
    heuristic_sentence,
    judge_heuristics,
)
from batchscale.analysis.noise import NoiseSource
from batchscale.analysis.outcomes import (
    STUDY_OUTCOME_SCHEMA,
    TRIAL_OUTCOME_SCHEMA,
    Outcome,
    study_outcomes,
    trial_outcomes,
)
from batchscale.analysis.regimes import Baseline, Regimes, Thresholds, find_regimes
from batchscale.analysis.results import RESULT_SCHEMA, results_of, steps_to_result
from batchscale.analysis.robustness import (
    BEST_OF_SCHEMA,
    STABILITY_SCHEMA,
    best_of_n,
    best_of_probabilities,
    point_stability,
)
from batchscale.analysis.scaling import FEWEST_POINTS, Family, FamilyFit, ScalingFit, fit_scaling
from batchscale.analysis.sentences import Sentences, answer_sentences, curve_sentences
from batchscale.analysis.suggestion import SUGGESTION_SCHEMA, Suggestion, suggest
from batchscale.analysis.tail import Finishers
from batchscale.analysis.winners import WINNER_SCHEMA, winner_edges, winner_spacing

__all__ = [
    "ANALYSIS_SCHEMA",
    "BEST_MEASUREMENT_SCHEMA",
    "BEST_OF_SCHEMA",
    "COMPARISON_SCHEMA",
    "FEWEST_POINTS",
    "HEURISTIC_SCHEMA",
    "MEANING",
    "NORMALISED_SCHEMA",
    "PAPER_TRAIN_EXAMPLES",
    "RESULT_SCHEMA",
    "SENSITIVITY_SCHEMA",
    "STABILITY_SCHEMA",
    "STUDY_OUTCOME_SCHEMA",
    "SUGGESTION_SCHEMA",
    "TRIAL_OUTCOME_SCHEMA",
    "WINNER_SCHEMA",
    "Analysis",
    "Baseline",
    "BoundaryIntervals",
    "Comparison",
    "CurveFacts",
    "Ending",
    "Estimate",
    "Family",
    "FamilyFit",
    "Finishers",
    "GoalSuggestion",
    "Heuristic",
    "HeuristicFit",
    "Interval",
    "NoiseSource",
    "Options",
    "Outcome",
    "PointFacts",
    "Regimes",
    "Resampling",
    "ScalingFit",
    "Sentences",
    "StudyPoint",
    "Suggestion",
    "Thresholds",
    "add_effective_learning_rate",
    "analyze",
    "analyze_points",
    "answer_sentences",
    "best_measurement",
    "best_of_n",
    "best_of_probabilities",
    "best_per_trial",
    "budget_steps",
    "compare",
    "curve_sentences",
    "find_regimes",
    "fit_scaling",
    "goal_sensitivity",
    "goal_sentence",
    "heuristic_errors",
    "heuristic_sentence",
    "judge_heuristics",
    "normalise",
    "point_intervals",
    "point_stability",
    "read_curve",
    "results_of",
    "select_workload",
    "steps_to_result",
    "stored_goal",
    "study_outcomes",
    "suggest",
    "suggest_goal",
    "train_examples",
    "trial_outcomes",
    "winner_edges",
    "winner_spacing",
]
