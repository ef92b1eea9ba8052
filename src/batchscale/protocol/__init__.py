"""The protocol of a study: what is trained next, when a trial ends, what is recorded. No JAX and no processes here.

What other packages use stands here and is loaded when first used.
"""

from batchscale.doors import lazy_names

_PUBLIC = {
    "Activity": "tasks",
    "DamagedStudyError": "study_facts",
    "Failure": "failure",
    "Knowledge": "knowledge",
    "Need": "needs",
    "Row": "tasks",
    "Rule": "stop_rules.rule",
    "SearchRules": "search_rules",
    "SearchState": "search_state",
    "SingleStudy": "single_study",
    "StudyRun": "study_run",
    "StudyState": "study_state",
    "TrialProgress": "tasks",
    "TrialTask": "tasks",
    "check_folder": "identity",
    "extend_to": "single_study",
    "find_failure": "failure",
    "find_rule": "stop_rules",
    "is_asked_for": "identity",
    "normalise": "identity",
    "open_study_run": "resuming",
    "read_asked": "identity",
    "write_asked": "identity",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = lazy_names(__name__, _PUBLIC)
