"""What is wrong, or suspicious, about a cohort before anything is trained on it: `deeprc check` as a function.

`cohort.py` reads repertoire files and `container.py` a container; both make profiles (`profile.py`), what is remembered
of one repertoire, so that memory does not grow with its sequences. `examination.py` looks at the profiles:
`contents.py`, `twins.py` and `swaps.py` (with `overlaps.py`), `sheet.py` and `shortcuts.py` (with `features.py`) find
the suspicions. `findings.py` lists them all, `folder.py` writes them, `of_run.py` keeps those of a training.
"""

from __future__ import annotations

from deeprc.checks.cohort import check_cohort
from deeprc.checks.container import check_dataset
from deeprc.checks.examination import CohortCheck
from deeprc.checks.findings import CODES, Finding, Severity

__all__ = ["CODES", "CohortCheck", "Finding", "Severity", "check_cohort", "check_dataset"]
