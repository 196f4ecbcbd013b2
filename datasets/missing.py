"""The words that stand for a missing value, in any case, and why they differ between a sheet, a table and a gene.

A word that is missing everywhere is in `_EVERYWHERE`. The others depend on who writes the value:

- Spreadsheets write `#n/a`, and `#div/0!` and others for errors of formulas, R and pandas `<na>`, people `?`,
  `missing` and `not available`. In a sheet `none` is an answer, as in a column of treatments.
- Tools that write tables of sequences have words of their own for "not assigned", and write `none` where Python has
  None.
- A gene may be `-` too. A count or a flag may not: there a `-` is more likely an error than a missing value.
"""

from __future__ import annotations

__all__ = ["MISSING_GENES", "MISSING_IN_SHEETS", "MISSING_IN_TABLES", "is_missing"]

_EVERYWHERE = frozenset({"", "na", "n/a", "nan", "null", "no data", "unknown"})

_ERRORS = frozenset({"#n/a", "#div/0!", "#name?", "#null!", "#num!", "#ref!", "#value!"})

MISSING_IN_SHEETS = _EVERYWHERE | _ERRORS | {"<na>", "missing", "not available", "?"}
"""Missing cells of a metadata sheet."""

MISSING_IN_TABLES = _EVERYWHERE | {"none", "unresolved", "undefined", "(undefined)", "."}
"""Missing counts, flags, sequences and names in a table of sequences."""

MISSING_GENES = MISSING_IN_TABLES | {"-"}
"""Missing names of genes."""


def is_missing(value: str, words: frozenset[str]) -> bool:
    """Return whether a value, without blanks around it, is one of these words in any case."""
    return value.strip().lower() in words
