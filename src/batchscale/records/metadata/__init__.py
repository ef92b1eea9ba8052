"""Our own facts: what batchscale adds to ``study.json`` and ``metadata.json`` under its one key, typed and versioned.

Whoever writes or reads them does so through these classes. Published data has no such key: then there are no facts
(None), which is not the same as facts that say nothing.
"""

from batchscale.records.metadata.base import FORMAT_VERSION, OWN_KEY, MetadataError, NewerFormatError
from batchscale.records.metadata.study import EdgeEnd, SearchMetadata, StudyMetadata, StudyResult, TrainerMetadata
from batchscale.records.metadata.trial import Hardware, Timing, TrialMetadata

__all__ = [
    "FORMAT_VERSION",
    "OWN_KEY",
    "EdgeEnd",
    "Hardware",
    "MetadataError",
    "NewerFormatError",
    "SearchMetadata",
    "StudyMetadata",
    "StudyResult",
    "Timing",
    "TrainerMetadata",
    "TrialMetadata",
]
