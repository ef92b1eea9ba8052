"""Our own facts: what batchscale adds to ``study.json`` and ``metadata.json`` under its one key, typed and versioned.

Whoever writes or reads them does so through these classes. Published data has no such key: then there are no facts
(None), which is not the same as facts that say nothing.
"""

from batchscale.records.facts.study import EdgeEnd, Finding, SearchFacts, StudyFacts, TrainerFacts
from batchscale.records.facts.trial import Hardware, Timing, TrialFacts
from batchscale.records.facts.version import FORMAT_VERSION, OWN_KEY, FactsError, NewerFormatError

__all__ = [
    "FORMAT_VERSION",
    "OWN_KEY",
    "EdgeEnd",
    "FactsError",
    "Finding",
    "Hardware",
    "NewerFormatError",
    "SearchFacts",
    "StudyFacts",
    "Timing",
    "TrainerFacts",
    "TrialFacts",
]
