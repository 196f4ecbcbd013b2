"""Groups of repertoires: numbers that say which repertoires are from one donor, for estimators.

Letters: B repertoires.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.base import BaseEstimator

from deeprc.datasets.dataset import RepertoireDataset

__all__ = [
    "convert_keeping_missing",
    "index_connected",
    "index_groups",
    "pass_groups",
    "pass_path_groups",
    "shuffle_groups",
    "validate_groups",
]


def convert_keeping_missing(values: ArrayLike) -> ArrayLike:
    """Convert a list to an array of objects, in which NaN beside text stays NaN; return other values as they are."""
    return np.array(values, dtype=object) if isinstance(values, list | tuple) else values


def index_groups(values: ArrayLike) -> NDArray[np.int64]:
    """Return the index of each repertoire's group, (B,): equal values make one group, each missing value its own."""
    codes, _ = pd.factorize(np.asarray(convert_keeping_missing(values)))
    return np.where(codes < 0, len(codes) + np.arange(len(codes)), codes)


def index_connected(pairs: NDArray[np.integer[Any]], n: int) -> NDArray[np.int64]:
    """Return the index of the group of each of n nodes, (n,): pairs of nodes, (2, P), join groups, also indirectly."""
    first, second = pairs.astype(np.int32)  # SciPy 1.11 takes no other integers
    graph = coo_array((np.ones(len(first)), (first, second)), shape=(n, n))
    return np.asarray(connected_components(graph, directed=False)[1], np.int64)


def shuffle_groups(groups: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return the groups of the repertoires, (B,), with other indices, in a random order.

    `StratifiedGroupKFold` takes groups that it cannot tell apart in the order of their indices. So it makes random
    folds of the returned groups, those of its own `shuffle` from scikit-learn 1.8 on. Older versions shuffled the
    classes of the groups without the groups, and their folds were not stratified.
    """
    order = np.arange(len(np.unique(groups)))
    np.random.RandomState(seed).shuffle(order)
    return np.argsort(order)[np.unique(groups, return_inverse=True)[1]]


def validate_groups(
    X: RepertoireDataset, groups: ArrayLike | None, *, several: bool = True
) -> NDArray[np.int64] | None:
    """Return the index of each repertoire's group, (B,); None without groups.

    Raises
    ------
    ValueError
        If there is not one value for each repertoire, or if `several` groups are needed and there is only one.
    """
    if groups is None:
        return None
    given = np.asarray(convert_keeping_missing(groups))
    if given.shape != (len(X),):
        raise ValueError(f"groups: expected {len(X)} values, found {given.shape}")
    numbers = index_groups(given)
    if several and len(np.unique(numbers)) < 2:
        raise ValueError("groups: expected at least two donors, found one")
    return numbers


def pass_groups(estimator: BaseEstimator, groups: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
    """Return the argument `groups` of an estimator's `fit` as a dictionary; it is empty if `fit` does not take it."""
    if groups is None or not getattr(estimator, "uses_groups", False):
        return {}
    return {"groups": groups}


def pass_path_groups(estimator: BaseEstimator, groups: NDArray[Any] | None) -> dict[str, NDArray[Any]]:
    """Return the argument of `decision_path` that says which repertoires are of one donor, if it takes one."""
    if groups is None or not getattr(estimator, "path_uses_groups", False):
        return {}
    return {"groups": groups}
