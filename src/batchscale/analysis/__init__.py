"""Analysis: pure functions from records to results, curves, regimes, and how sure they are.

The public names are loaded on first use. Inside batchscale, import from the modules.
"""

from typing import TYPE_CHECKING

from batchscale.lazy_imports import load_lazily

if TYPE_CHECKING:
    from batchscale.analysis.comparison import Comparison as Comparison
    from batchscale.analysis.comparison import compare as compare
    from batchscale.analysis.curve_analysis import Analysis as Analysis
    from batchscale.analysis.curve_analysis import AnalysisOptions as AnalysisOptions
    from batchscale.analysis.curve_analysis import analyze as analyze
    from batchscale.analysis.curve_analysis import analyze_points as analyze_points
    from batchscale.analysis.curve_analysis import stored_goal as stored_goal
    from batchscale.analysis.curves import read_curve as read_curve
    from batchscale.analysis.goals import goal_sensitivity as goal_sensitivity
    from batchscale.analysis.goals import suggest_goal as suggest_goal
    from batchscale.analysis.intervals import Interval as Interval
    from batchscale.analysis.intervals import Resampling as Resampling
    from batchscale.analysis.metaparameters import add_effective_learning_rate as add_effective_learning_rate
    from batchscale.analysis.outcomes import trial_outcomes as trial_outcomes
    from batchscale.analysis.regimes import Baseline as Baseline
    from batchscale.analysis.regimes import Regimes as Regimes
    from batchscale.analysis.regimes import Thresholds as Thresholds
    from batchscale.analysis.results import steps_to_result as steps_to_result
    from batchscale.analysis.robustness import best_of_n as best_of_n
    from batchscale.analysis.scaling import ScalingFit as ScalingFit
    from batchscale.analysis.scaling import fit_scaling as fit_scaling
    from batchscale.analysis.sentences import answer_sentences as answer_sentences
    from batchscale.analysis.suggestion import Suggestion as Suggestion
    from batchscale.analysis.suggestion import suggest as suggest
    from batchscale.analysis.summary import CurveSummary as CurveSummary

_PUBLIC = {
    "Analysis": "curve_analysis",
    "AnalysisOptions": "curve_analysis",
    "Baseline": "regimes",
    "Comparison": "comparison",
    "CurveSummary": "summary",
    "Interval": "intervals",
    "Regimes": "regimes",
    "Resampling": "intervals",
    "ScalingFit": "scaling",
    "Suggestion": "suggestion",
    "Thresholds": "regimes",
    "add_effective_learning_rate": "metaparameters",
    "analyze": "curve_analysis",
    "analyze_points": "curve_analysis",
    "answer_sentences": "sentences",
    "best_of_n": "robustness",
    "compare": "comparison",
    "fit_scaling": "scaling",
    "goal_sensitivity": "goals",
    "read_curve": "curves",
    "steps_to_result": "results",
    "stored_goal": "curve_analysis",
    "suggest": "suggestion",
    "suggest_goal": "goals",
    "trial_outcomes": "outcomes",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = load_lazily(__name__, _PUBLIC)
