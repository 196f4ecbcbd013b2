"""Whether a column of the metadata sheet holds categories, such as batches, or measurements, such as ages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

__all__ = ["is_category"]

_MAX_NUMBERS = 20  # a column with more different numbers holds measurements
_MIN_DONORS_PER_NUMBER = 3  # on average; a column with fewer holds measurements


def is_category(values: pd.Series[Any], donors: NDArray[np.int64] | None = None) -> bool:
    """Return whether the values of a column are categories. Missing values are ignored.

    Texts and booleans are categories. So are two different numbers, and at most 20 different whole numbers, if each is
    that of three donors on average, such as batches 1 to 12. Other numbers are measurements.

    Parameters
    ----------
    values
        Values of the whole cohort, (B,), because a small part of it may have few different ages.
    donors
        Index of the donor of each repertoire, (B,); None: each repertoire has its own donor.
    """
    if not pd.api.types.is_numeric_dtype(values) or pd.api.types.is_bool_dtype(values):
        return True
    is_known = values.notna().to_numpy()
    different, index = np.unique(values.to_numpy()[is_known], return_inverse=True)
    if len(different) <= 2 or len(different) > _MAX_NUMBERS:
        return len(different) <= 2
    with np.errstate(invalid="ignore"):  # infinity is no whole number
        is_whole = bool((different % 1 == 0).all())
    donor = np.arange(len(index)) if donors is None else donors[is_known]
    n_donors = len(np.unique(index + len(different) * donor))  # of each number, summed
    return is_whole and len(different) * _MIN_DONORS_PER_NUMBER <= n_donors
