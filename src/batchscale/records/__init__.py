"""Records: the open directory format of studies, trials and measurements, the table, the archive, our own metadata.

The public names are loaded on first use. Inside batchscale, import from the modules.
"""

from typing import TYPE_CHECKING

from batchscale.lazy_imports import load_lazily

if TYPE_CHECKING:
    from batchscale.records.check.stored import check_records as check_records
    from batchscale.records.frames import MEASUREMENT_SCHEMA as MEASUREMENT_SCHEMA
    from batchscale.records.frames import STUDY_SCHEMA as STUDY_SCHEMA
    from batchscale.records.frames import TRIAL_SCHEMA as TRIAL_SCHEMA
    from batchscale.records.frames import Records as Records
    from batchscale.records.model import Status as Status
    from batchscale.records.model import StudyRecord as StudyRecord
    from batchscale.records.model import TrialRecord as TrialRecord
    from batchscale.records.read import read_records as read_records
    from batchscale.records.summary import summarize as summarize
    from batchscale.records.table.export import export_records as export_records
    from batchscale.records.table.import_records import ImportOptions as ImportOptions
    from batchscale.records.table.import_records import import_records as import_records
    from batchscale.records.tree.measurements import Measurement as Measurement
    from batchscale.records.tree.open_study import open_study as open_study
    from batchscale.records.tree.read import read_tree as read_tree

_PUBLIC = {
    "ImportOptions": "table.import_records",
    "MEASUREMENT_SCHEMA": "frames",
    "Measurement": "tree.measurements",
    "Records": "frames",
    "STUDY_SCHEMA": "frames",
    "Status": "model",
    "StudyRecord": "model",
    "TRIAL_SCHEMA": "frames",
    "TrialRecord": "model",
    "check_records": "check.stored",
    "export_records": "table.export",
    "import_records": "table.import_records",
    "open_study": "tree.open_study",
    "read_records": "read",
    "read_tree": "tree.read",
    "summarize": "summary",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = load_lazily(__name__, _PUBLIC)
