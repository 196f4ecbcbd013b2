"""What is wrong, or suspicious, about a cohort before anything is trained on it: `deeprc check` as a function.

`cohort.py` walks the whole way; `profile.py` is what is remembered of one repertoire, so that memory does not grow with
its sequences; `contents.py`, `twins.py`, `swaps.py`, `sheet.py` and `shortcuts.py` (with `features.py`) find the
suspicions; `findings.py` lists them all.
"""

from __future__ import annotations

from deeprc.evaluation.checks.cohort import CohortCheck, check_cohort
from deeprc.evaluation.checks.findings import CODES, Finding, Severity

__all__ = ["CODES", "CohortCheck", "Finding", "Severity", "check_cohort"]
