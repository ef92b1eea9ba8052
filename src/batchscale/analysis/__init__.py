"""Analysis: pure functions from records to results, curves, regimes, and how sure they are.

The names that other layers use are re-exported here and loaded when first used.
"""

from typing import TYPE_CHECKING

from batchscale.doors import lazy_names

if TYPE_CHECKING:
    from batchscale.analysis.answers import ANALYSIS_SCHEMA as ANALYSIS_SCHEMA
    from batchscale.analysis.answers import Analysis as Analysis
    from batchscale.analysis.answers import AnalysisOptions as AnalysisOptions
    from batchscale.analysis.answers import analyze as analyze
    from batchscale.analysis.answers import analyze_points as analyze_points
    from batchscale.analysis.answers import select_workload as select_workload
    from batchscale.analysis.answers import stored_goal as stored_goal
    from batchscale.analysis.budgets import BEST_MEASUREMENT_SCHEMA as BEST_MEASUREMENT_SCHEMA
    from batchscale.analysis.budgets import PAPER_TRAIN_EXAMPLES as PAPER_TRAIN_EXAMPLES
    from batchscale.analysis.budgets import best_measurement as best_measurement
    from batchscale.analysis.budgets import best_per_trial as best_per_trial
    from batchscale.analysis.budgets import budget_steps as budget_steps
    from batchscale.analysis.budgets import train_examples as train_examples
    from batchscale.analysis.comparison import COMPARISON_SCHEMA as COMPARISON_SCHEMA
    from batchscale.analysis.comparison import NORMALISED_SCHEMA as NORMALISED_SCHEMA
    from batchscale.analysis.comparison import Comparison as Comparison
    from batchscale.analysis.comparison import compare as compare
    from batchscale.analysis.comparison import normalise as normalise
    from batchscale.analysis.comparison import shared_sizes as shared_sizes
    from batchscale.analysis.curve_file import read_curve as read_curve
    from batchscale.analysis.estimates import Estimate as Estimate
    from batchscale.analysis.facts import CurveFacts as CurveFacts
    from batchscale.analysis.facts import FallEnding as FallEnding
    from batchscale.analysis.facts import PointFacts as PointFacts
    from batchscale.analysis.goals import SENSITIVITY_SCHEMA as SENSITIVITY_SCHEMA
    from batchscale.analysis.goals import GoalSuggestion as GoalSuggestion
    from batchscale.analysis.goals import goal_sensitivity as goal_sensitivity
    from batchscale.analysis.goals import suggest_goal as suggest_goal
    from batchscale.analysis.intervals import MEANING as MEANING
    from batchscale.analysis.intervals import BoundaryIntervals as BoundaryIntervals
    from batchscale.analysis.intervals import Interval as Interval
    from batchscale.analysis.intervals import Resampling as Resampling
    from batchscale.analysis.intervals import StudyPoint as StudyPoint
    from batchscale.analysis.intervals import point_intervals as point_intervals
    from batchscale.analysis.metaparameters import EFFECTIVE as EFFECTIVE
    from batchscale.analysis.metaparameters import HEURISTIC_SCHEMA as HEURISTIC_SCHEMA
    from batchscale.analysis.metaparameters import Heuristic as Heuristic
    from batchscale.analysis.metaparameters import HeuristicFit as HeuristicFit
    from batchscale.analysis.metaparameters import add_effective_learning_rate as add_effective_learning_rate
    from batchscale.analysis.metaparameters import heuristic_errors as heuristic_errors
    from batchscale.analysis.metaparameters import heuristic_sentence as heuristic_sentence
    from batchscale.analysis.metaparameters import judge_heuristics as judge_heuristics
    from batchscale.analysis.noise import NoiseSource as NoiseSource
    from batchscale.analysis.outcomes import TRIAL_OUTCOME_SCHEMA as TRIAL_OUTCOME_SCHEMA
    from batchscale.analysis.outcomes import Outcome as Outcome
    from batchscale.analysis.outcomes import trial_outcomes as trial_outcomes
    from batchscale.analysis.regimes import Baseline as Baseline
    from batchscale.analysis.regimes import Regimes as Regimes
    from batchscale.analysis.regimes import Thresholds as Thresholds
    from batchscale.analysis.regimes import find_regimes as find_regimes
    from batchscale.analysis.results import RESULT_SCHEMA as RESULT_SCHEMA
    from batchscale.analysis.results import results_of as results_of
    from batchscale.analysis.results import steps_to_result as steps_to_result
    from batchscale.analysis.robustness import BEST_OF_SCHEMA as BEST_OF_SCHEMA
    from batchscale.analysis.robustness import STABILITY_SCHEMA as STABILITY_SCHEMA
    from batchscale.analysis.robustness import best_of_n as best_of_n
    from batchscale.analysis.robustness import best_of_probabilities as best_of_probabilities
    from batchscale.analysis.robustness import point_stability as point_stability
    from batchscale.analysis.scaling import FEWEST_POINTS as FEWEST_POINTS
    from batchscale.analysis.scaling import Family as Family
    from batchscale.analysis.scaling import FamilyFit as FamilyFit
    from batchscale.analysis.scaling import ScalingFit as ScalingFit
    from batchscale.analysis.scaling import fit_scaling as fit_scaling
    from batchscale.analysis.sentences import Sentences as Sentences
    from batchscale.analysis.sentences import answer_sentences as answer_sentences
    from batchscale.analysis.sentences import curve_sentences as curve_sentences
    from batchscale.analysis.suggestion import SUGGESTION_SCHEMA as SUGGESTION_SCHEMA
    from batchscale.analysis.suggestion import Suggestion as Suggestion
    from batchscale.analysis.suggestion import suggest as suggest
    from batchscale.analysis.tail import Finishers as Finishers
    from batchscale.analysis.winners import WINNER_SCHEMA as WINNER_SCHEMA
    from batchscale.analysis.winners import winner_edges as winner_edges
    from batchscale.analysis.winners import winner_spacing as winner_spacing

_PUBLIC = {
    "EFFECTIVE": "metaparameters",
    "ANALYSIS_SCHEMA": "answers",
    "Analysis": "answers",
    "BEST_MEASUREMENT_SCHEMA": "budgets",
    "BEST_OF_SCHEMA": "robustness",
    "Baseline": "regimes",
    "BoundaryIntervals": "intervals",
    "COMPARISON_SCHEMA": "comparison",
    "Comparison": "comparison",
    "CurveFacts": "facts",
    "FallEnding": "facts",
    "Estimate": "estimates",
    "FEWEST_POINTS": "scaling",
    "Family": "scaling",
    "FamilyFit": "scaling",
    "Finishers": "tail",
    "GoalSuggestion": "goals",
    "HEURISTIC_SCHEMA": "metaparameters",
    "Heuristic": "metaparameters",
    "HeuristicFit": "metaparameters",
    "Interval": "intervals",
    "MEANING": "intervals",
    "NORMALISED_SCHEMA": "comparison",
    "NoiseSource": "noise",
    "AnalysisOptions": "answers",
    "Outcome": "outcomes",
    "PAPER_TRAIN_EXAMPLES": "budgets",
    "PointFacts": "facts",
    "RESULT_SCHEMA": "results",
    "Regimes": "regimes",
    "Resampling": "intervals",
    "SENSITIVITY_SCHEMA": "goals",
    "STABILITY_SCHEMA": "robustness",
    "SUGGESTION_SCHEMA": "suggestion",
    "ScalingFit": "scaling",
    "Sentences": "sentences",
    "StudyPoint": "intervals",
    "Suggestion": "suggestion",
    "TRIAL_OUTCOME_SCHEMA": "outcomes",
    "Thresholds": "regimes",
    "WINNER_SCHEMA": "winners",
    "add_effective_learning_rate": "metaparameters",
    "analyze": "answers",
    "analyze_points": "answers",
    "answer_sentences": "sentences",
    "best_measurement": "budgets",
    "best_of_n": "robustness",
    "best_of_probabilities": "robustness",
    "best_per_trial": "budgets",
    "budget_steps": "budgets",
    "compare": "comparison",
    "curve_sentences": "sentences",
    "find_regimes": "regimes",
    "fit_scaling": "scaling",
    "goal_sensitivity": "goals",
    "heuristic_errors": "metaparameters",
    "heuristic_sentence": "metaparameters",
    "judge_heuristics": "metaparameters",
    "normalise": "comparison",
    "point_intervals": "intervals",
    "point_stability": "robustness",
    "read_curve": "curve_file",
    "results_of": "results",
    "select_workload": "answers",
    "shared_sizes": "comparison",
    "steps_to_result": "results",
    "stored_goal": "answers",
    "suggest": "suggestion",
    "suggest_goal": "goals",
    "train_examples": "budgets",
    "trial_outcomes": "outcomes",
    "winner_edges": "winners",
    "winner_spacing": "winners",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = lazy_names(__name__, _PUBLIC)
