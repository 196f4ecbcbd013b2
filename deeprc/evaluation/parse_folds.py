"""Parse `folds=leave-one-out:COLUMN`. The command line imports this module, so it imports nothing slow."""

from __future__ import annotations

__all__ = ["LEAVE_ONE_OUT", "parse_left_out_column"]

LEAVE_ONE_OUT = "leave-one-out:"
"""Prefix of `folds`, followed by a column: the values of the column are left out for testing, one after the other."""


def parse_left_out_column(folds: object) -> str | None:
    """Return the column whose values are left out, if `folds` names one; otherwise None."""
    is_named = isinstance(folds, str) and folds.startswith(LEAVE_ONE_OUT)
    return str(folds).removeprefix(LEAVE_ONE_OUT) if is_named else None
