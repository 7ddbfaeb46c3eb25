"""One self-contained HTML page from a finished run."""

from splitpu.report.contents import ReportData, RoundReport, Sample
from splitpu.report.render import render, write_report

__all__ = ["ReportData", "RoundReport", "Sample", "render", "write_report"]
