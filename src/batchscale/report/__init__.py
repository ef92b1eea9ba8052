"""The report: one self-contained page that a person reads first."""

from batchscale.report.as_json import report_json
from batchscale.report.drawing import style_variables
from batchscale.report.machines import PlanningFiles
from batchscale.report.page import check_report_path, make_report, write_report

__all__ = ["PlanningFiles", "check_report_path", "make_report", "report_json", "style_variables", "write_report"]
