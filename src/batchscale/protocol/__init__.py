"""The protocol of a study: what is trained next, when a trial ends, what is recorded. No JAX and no processes here.

What other packages use stands here and is loaded when first used.
"""

import importlib
from typing import Any

_PUBLIC = {
    "Activity": "tasks",
    "DamagedStudyError": "study_facts",
    "Knowledge": "knowledge",
    "Need": "needs",
    "Row": "tasks",
    "Rule": "stop_rules.rule",
    "SearchRules": "search_state",
    "SearchState": "search_state",
    "SingleStudy": "single_study",
    "StudyRun": "study_run",
    "StudyState": "study_state",
    "TrialProgress": "tasks",
    "TrialTask": "tasks",
    "check_folder": "identity",
    "extend_to": "single_study",
    "find_rule": "stop_rules",
    "is_asked_for": "identity",
    "list_rules": "stop_rules",
    "normalise": "identity",
    "open_study_run": "resuming",
    "read_asked": "identity",
    "write_asked": "identity",
}

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'batchscale.protocol' has no attribute {name!r}")
    return getattr(importlib.import_module(f"batchscale.protocol.{_PUBLIC[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
