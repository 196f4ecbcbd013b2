"""The fields that the AIRR Rearrangement schema requires, for tables that deeprc writes."""

from __future__ import annotations

import pandas as pd

__all__ = ["add_required_fields"]

_REQUIRED = (
    *("v_call", "j_call", "sequence", "rev_comp", "productive", "d_call", "sequence_alignment", "germline_alignment"),
    *("junction", "v_cigar", "d_cigar", "j_cigar"),
)


def add_required_fields(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with all fields that the schema requires; fields without a known value are empty."""
    return table.assign(**{name: "" for name in _REQUIRED if name not in table})
