"""Records: the open directory format of studies, trials and measurements.

The names that other layers use are re-exported here and loaded when first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchscale.records.check.tree import Violation as Violation
    from batchscale.records.check.tree import check_tree as check_tree
    from batchscale.records.frames import Records as Records
    from batchscale.records.model import Status as Status
    from batchscale.records.model import StudyRecord as StudyRecord
    from batchscale.records.model import TrialRecord as TrialRecord
    from batchscale.records.read import read_records as read_records
    from batchscale.records.summary import Summary as Summary
    from batchscale.records.summary import summarize as summarize
    from batchscale.records.table.import_records import ImportOptions as ImportOptions
    from batchscale.records.table.import_records import ImportSummary as ImportSummary
    from batchscale.records.table.import_records import import_records as import_records
    from batchscale.records.tree.measurements import Measurement as Measurement
    from batchscale.records.tree.open_study import open_study as open_study
    from batchscale.records.tree.read import read_tree as read_tree
    from batchscale.records.tree.read import read_trial as read_trial
    from batchscale.records.tree.writer import StudyWriter as StudyWriter

_PUBLIC = {
    "ImportOptions": "table.import_records",
    "ImportSummary": "table.import_records",
    "Measurement": "tree.measurements",
    "Records": "frames",
    "Status": "model",
    "StudyRecord": "model",
    "StudyWriter": "tree.writer",
    "Summary": "summary",
    "TrialRecord": "model",
    "Violation": "check.tree",
    "check_tree": "check.tree",
    "import_records": "table.import_records",
    "open_study": "tree.open_study",
    "read_records": "read",
    "read_tree": "tree.read",
    "read_trial": "tree.read",
    "summarize": "summary",
}

__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'batchscale.records' has no attribute {name!r}")
    return getattr(importlib.import_module(f"batchscale.records.{_PUBLIC[name]}"), name)
