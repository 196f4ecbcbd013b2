"""Groups of repertoires, such as those of one donor, that no fold may separate.

Letters: B repertoires.
"""

from __future__ import annotations

from collections.abc import Sized

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

__all__ = ["number_groups", "validate_groups"]


def number_groups(values: ArrayLike) -> NDArray[np.int64]:
    """Return the number of each repertoire's group, (B,): equal values are one group, each missing one its own."""
    codes, _ = pd.factorize(np.asarray(values))
    return np.where(codes < 0, len(codes) + np.arange(len(codes)), codes)


def validate_groups(X: Sized, groups: ArrayLike | None) -> NDArray[np.int64] | None:
    """Return the number of each repertoire's group, (B,); None without groups.

    Raises
    ------
    ValueError
        If there is not one value for each repertoire, or only one group.
    """
    if groups is None:
        return None
    given = np.asarray(groups)
    if given.shape != (len(X),):
        raise ValueError(f"groups: expected {len(X)} values, found {given.shape}")
    numbers = number_groups(given)
    if len(np.unique(numbers)) < 2:
        raise ValueError("groups: expected at least two donors, found one")
    return numbers
