"""Find what is wrong or suspicious about a cohort before anything is trained on it: `deeprc check` as a function.

`cohort.py` reads repertoire files and `container.py` a container. Both make profiles (`profile.py`): a profile
describes one repertoire in a few kB, so that memory does not grow with the number of sequences. `examination.py` takes
the profiles, and finds suspicions by `contents.py`, `similar_repertoires.py` and `swaps.py` (with `overlaps.py`),
`sheet.py` and `shortcuts.py` (with `features.py` and `contingency.py`). `findings.py` lists all codes, `folder.py`
writes findings to a folder, `run_checks.py` keeps those about a run's repertoires, `cautions.py` makes warnings of
them, `joined_donors.py` writes a sheet with groups.
"""

from __future__ import annotations

from deeprc.checks.cohort import check_cohort
from deeprc.checks.container import check_dataset
from deeprc.checks.examination import CohortCheck
from deeprc.checks.findings import CODES, Finding, Severity

__all__ = ["CODES", "CohortCheck", "Finding", "Severity", "check_cohort", "check_dataset"]
