"""Records: the open directory format of studies, trials and measurements, the table, the archive, our own facts.

The names that other layers use are re-exported here and loaded when first used.
"""

from typing import TYPE_CHECKING

from batchscale.doors import lazy_names

if TYPE_CHECKING:
    from batchscale.records.check.stored import check_records as check_records
    from batchscale.records.check.tree import Violation as Violation
    from batchscale.records.check.tree import check_tree as check_tree
    from batchscale.records.durable import make_folders as make_folders
    from batchscale.records.durable import replace_file as replace_file
    from batchscale.records.durable import storing as storing
    from batchscale.records.durable import sync_path as sync_path
    from batchscale.records.durable import write_text_file as write_text_file
    from batchscale.records.facts import OWN_KEY as OWN_KEY
    from batchscale.records.facts import EdgeEnd as EdgeEnd
    from batchscale.records.facts import Finding as Finding
    from batchscale.records.facts import Hardware as Hardware
    from batchscale.records.facts import NewerFormatError as NewerFormatError
    from batchscale.records.facts import SearchFacts as SearchFacts
    from batchscale.records.facts import StudyFacts as StudyFacts
    from batchscale.records.facts import Timing as Timing
    from batchscale.records.facts import TrainerFacts as TrainerFacts
    from batchscale.records.facts import TrialFacts as TrialFacts
    from batchscale.records.facts.columns import FACTS as FACTS
    from batchscale.records.filesystem import REAL as REAL
    from batchscale.records.filesystem import FileSystem as FileSystem
    from batchscale.records.frames import MEASUREMENT_SCHEMA as MEASUREMENT_SCHEMA
    from batchscale.records.frames import STUDY_COLUMNS as STUDY_COLUMNS
    from batchscale.records.frames import STUDY_SCHEMA as STUDY_SCHEMA
    from batchscale.records.frames import TRIAL_SCHEMA as TRIAL_SCHEMA
    from batchscale.records.frames import WORKLOAD_COLUMNS as WORKLOAD_COLUMNS
    from batchscale.records.frames import Records as Records
    from batchscale.records.model import Status as Status
    from batchscale.records.model import StudyRecord as StudyRecord
    from batchscale.records.model import TrialRecord as TrialRecord
    from batchscale.records.model import parse_study as parse_study
    from batchscale.records.notes import EDGE_WORDS as EDGE_WORDS
    from batchscale.records.notes import curve_note as curve_note
    from batchscale.records.notes import study_note as study_note
    from batchscale.records.precision import widen as widen
    from batchscale.records.precision import widen_number as widen_number
    from batchscale.records.read import read_records as read_records
    from batchscale.records.run_paths import RunPaths as RunPaths
    from batchscale.records.study_values import fixed_values as fixed_values
    from batchscale.records.study_values import searched_spaces as searched_spaces
    from batchscale.records.summary import Summary as Summary
    from batchscale.records.summary import summarize as summarize
    from batchscale.records.table.export import export_records as export_records
    from batchscale.records.table.files import MANIFEST as MANIFEST
    from batchscale.records.table.files import is_table as is_table
    from batchscale.records.table.import_records import ImportOptions as ImportOptions
    from batchscale.records.table.import_records import ImportSummary as ImportSummary
    from batchscale.records.table.import_records import Progress as Progress
    from batchscale.records.table.import_records import import_records as import_records
    from batchscale.records.table.source import looks_published as looks_published
    from batchscale.records.tree.committed import CommittedTrials as CommittedTrials
    from batchscale.records.tree.committed import TrialSummary as TrialSummary
    from batchscale.records.tree.folders import read_file as read_file
    from batchscale.records.tree.layout import MAX_DEPTH as MAX_DEPTH
    from batchscale.records.tree.layout import STUDY_FILE as STUDY_FILE
    from batchscale.records.tree.layout import WORKING_FOLDER as WORKING_FOLDER
    from batchscale.records.tree.layout import StudyPaths as StudyPaths
    from batchscale.records.tree.layout import folder_number as folder_number
    from batchscale.records.tree.measurements import Measurement as Measurement
    from batchscale.records.tree.measurements import MeasurementTable as MeasurementTable
    from batchscale.records.tree.open_study import open_study as open_study
    from batchscale.records.tree.read import read_tree as read_tree
    from batchscale.records.tree.read import read_trial as read_trial
    from batchscale.records.tree.writer import StudyWriter as StudyWriter

_PUBLIC = {
    "EDGE_WORDS": "notes",
    "EdgeEnd": "facts",
    "FACTS": "facts.columns",
    "FileSystem": "filesystem",
    "Finding": "facts",
    "Hardware": "facts",
    "ImportOptions": "table.import_records",
    "ImportSummary": "table.import_records",
    "MANIFEST": "table.files",
    "MAX_DEPTH": "tree.layout",
    "MEASUREMENT_SCHEMA": "frames",
    "Measurement": "tree.measurements",
    "MeasurementTable": "tree.measurements",
    "NewerFormatError": "facts",
    "OWN_KEY": "facts",
    "Progress": "table.import_records",
    "REAL": "filesystem",
    "Records": "frames",
    "RunPaths": "run_paths",
    "STUDY_COLUMNS": "frames",
    "STUDY_FILE": "tree.layout",
    "STUDY_SCHEMA": "frames",
    "SearchFacts": "facts",
    "Status": "model",
    "StudyFacts": "facts",
    "StudyPaths": "tree.layout",
    "StudyRecord": "model",
    "CommittedTrials": "tree.committed",
    "StudyWriter": "tree.writer",
    "Summary": "summary",
    "TRIAL_SCHEMA": "frames",
    "Timing": "facts",
    "TrainerFacts": "facts",
    "TrialFacts": "facts",
    "TrialRecord": "model",
    "TrialSummary": "tree.committed",
    "Violation": "check.tree",
    "WORKING_FOLDER": "tree.layout",
    "WORKLOAD_COLUMNS": "frames",
    "check_records": "check.stored",
    "check_tree": "check.tree",
    "curve_note": "notes",
    "export_records": "table.export",
    "fixed_values": "study_values",
    "folder_number": "tree.layout",
    "import_records": "table.import_records",
    "is_table": "table.files",
    "looks_published": "table.source",
    "make_folders": "durable",
    "open_study": "tree.open_study",
    "parse_study": "model",
    "read_file": "tree.folders",
    "read_records": "read",
    "read_tree": "tree.read",
    "read_trial": "tree.read",
    "replace_file": "durable",
    "searched_spaces": "study_values",
    "storing": "durable",
    "study_note": "notes",
    "summarize": "summary",
    "sync_path": "durable",
    "widen": "precision",
    "widen_number": "precision",
    "write_text_file": "durable",
}

__all__ = [*_PUBLIC]
__getattr__, __dir__ = lazy_names(__name__, _PUBLIC)
