"""Find what is wrong or suspicious about a cohort before anything is trained on it: `deeprc check` as a function.

`cohort.py` reads repertoire files and `container.py` a container. Both make profiles (`profile.py`): a profile
describes one repertoire in a few kB, so that memory does not grow with the number of sequences. `examination.py` gives
the profiles to the modules that find something:

| module | finds problems of |
|---|---|
| `contents.py` | one repertoire by itself, or compared with the others: chains, genes, counts, sizes, dropped rows |
| `similar_repertoires.py`, `swaps.py` (with `overlaps.py`) | repertoires that share too many clones |
| `sheet.py` | the metadata sheet: labels and donors |
| `shortcuts.py` (with `features.py`, `contingency.py`) | properties that predict a label without any sequence |

`findings.py` lists all codes. `folder.py` writes findings to a folder, `run_checks.py` keeps those about a run's
repertoires, `cautions.py` makes warnings of them, and `joined_donors.py` writes a sheet with groups.
"""

from __future__ import annotations

from deeprc.checks.cohort import check_cohort
from deeprc.checks.container import check_dataset
from deeprc.checks.examination import CohortCheck
from deeprc.checks.findings import CODES, Finding, Severity

__all__ = ["CODES", "CohortCheck", "Finding", "Severity", "check_cohort", "check_dataset"]
