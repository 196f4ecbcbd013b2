"""Which repertoires are of one donor: groups, as estimators take them.

Letters: B repertoires.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from deeprc.datasets.dataset import RepertoireDataset

__all__ = ["number_groups", "pass_groups", "validate_groups"]


def number_groups(values: ArrayLike) -> NDArray[np.int64]:
    """Return the number of each repertoire's group, (B,): equal values are one group, each missing one its own."""
    codes, _ = pd.factorize(np.asarray(values))
    return np.where(codes < 0, len(codes) + np.arange(len(codes)), codes)


def validate_groups(
    X: RepertoireDataset, groups: ArrayLike | None, *, several: bool = True
) -> NDArray[np.int64] | None:
    """Return the number of each repertoire's group, (B,); None without groups.

    Raises
    ------
    ValueError
        If there is not one value for each repertoire, or only one group although `several` are needed.
    """
    if groups is None:
        return None
    given = np.asarray(groups)
    if given.shape != (len(X),):
        raise ValueError(f"groups: expected {len(X)} values, found {given.shape}")
    numbers = number_groups(given)
    if several and len(np.unique(numbers)) < 2:
        raise ValueError("groups: expected at least two donors, found one")
    return numbers


def pass_groups(estimator: BaseEstimator, groups: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
    """Return the argument of an estimator's `fit` that says which repertoires are of one donor, if it takes one."""
    if groups is None or not getattr(estimator, "uses_groups", False):
        return {}
    return {"groups": groups}
