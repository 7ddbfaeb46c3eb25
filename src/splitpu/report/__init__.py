"""One self-contained HTML page from a finished run."""

from splitpu.report.model import ReportData, RoundReport, Sample
from splitpu.report.page import render, write_report

__all__ = ["ReportData", "RoundReport", "Sample", "render", "write_report"]
