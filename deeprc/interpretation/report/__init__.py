"""One HTML file that shows what a run, or a benchmark, found, to people who were not there."""

from deeprc.interpretation.report.any_report import write_any_report
from deeprc.interpretation.report.benchmark_report import write_benchmark_report
from deeprc.interpretation.report.run_report import REPORT_NEEDS, write_report
from deeprc.interpretation.report.written import Report

__all__ = ["REPORT_NEEDS", "Report", "write_any_report", "write_benchmark_report", "write_report"]
