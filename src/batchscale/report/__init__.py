"""The report: one self-contained page that a person reads first."""

from batchscale.report.page import check_report_path, make_report, write_report

__all__ = ["check_report_path", "make_report", "write_report"]
