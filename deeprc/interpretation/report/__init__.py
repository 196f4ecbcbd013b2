"""Reports: one HTML file that shows the results of a run, a cross-validation or a benchmark."""

from deeprc.interpretation.report.any_report import Report, write_any_report
from deeprc.interpretation.report.benchmark_report import write_benchmark_report
from deeprc.interpretation.report.run_report import REPORT_NEEDS, write_report

__all__ = ["REPORT_NEEDS", "Report", "write_any_report", "write_benchmark_report", "write_report"]
