"""The report: one self-contained page that a person reads first."""

from batchscale.report.page import make_report, write_report

__all__ = ["make_report", "write_report"]
