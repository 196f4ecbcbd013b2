"""Groups of repertoires: numbers that say which repertoires are from one donor, for estimators; columns of donors.

Letters: B repertoires.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator

from deeprc.datasets.dataset import RepertoireDataset

__all__ = [
    "choose_donor_column",
    "convert_keeping_missing",
    "find_donor_columns",
    "index_groups",
    "pass_groups",
    "pass_path_groups",
    "shuffle_groups",
    "validate_groups",
]

_SURE_NAME = re.compile("(?:subject|patient|donor|participant)(?:id)?|.*(?:subject|patient|donor)id", re.DOTALL)
"""Names of columns of donors, as letters and digits alone, in lower case."""

_LIKELY_NAME = re.compile(
    "(?:subject|patient|donor|participant)name"
    "|.*(?:subject|patient|donor|participant|individual)(?:id|identifier|nr|no|number)"
    "|(?:pat|mouse|animal)(?:id|identifier|nr|no|number)",
    re.DOTALL,
)
"""Names of columns that hold donors if no column has one of the first names; `donor_number` may also be a count."""


def convert_keeping_missing(values: ArrayLike) -> ArrayLike:
    """Convert a list to an array of objects, in which NaN beside text stays NaN; return other values as they are."""
    return np.array(values, dtype=object) if isinstance(values, list | tuple) else values


def index_groups(values: ArrayLike) -> NDArray[np.int64]:
    """Return the index of each repertoire's group, (B,): equal values make one group, each missing value its own."""
    codes, _ = pd.factorize(np.asarray(convert_keeping_missing(values)))
    return np.where(codes < 0, len(codes) + np.arange(len(codes)), codes)


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
    if isinstance(groups, str):
        raise ValueError(f"groups: expected the donor of each of {len(X)} repertoires, found the text {groups!r}")
    given = np.asarray(convert_keeping_missing(groups))
    if given.shape != (len(X),):
        raise ValueError(f"groups: expected {len(X)} values, found an array of shape {given.shape}")
    numbers = index_groups(given)
    if several and len(np.unique(numbers)) < 2:
        raise ValueError("groups: expected at least two donors, found one")
    return numbers


def find_donor_columns(metadata: pd.DataFrame) -> list[str]:
    """Return the columns of a sheet whose names say that they hold the donor: `subject_id`, `donor`, `Patient Nr.`.

    Columns such as `Patient Nr.` are among them only if all columns with surer names, such as `subject_id`, are empty.
    """
    names = {str(column): "".join(filter(str.isalnum, str(column).lower())) for column in metadata.columns}
    sure, likely = (
        [column for column, name in names.items() if pattern.fullmatch(name)] for pattern in (_SURE_NAME, _LIKELY_NAME)
    )
    if any(metadata[column].notna().any() for column in sure):
        return sure
    return [*sure, *(column for column in likely if column not in sure)]


def choose_donor_column(metadata: pd.DataFrame) -> str | None:
    """Return the column of donors of a metadata sheet that names the fewest of them; None if there is none."""
    filled = [name for name in find_donor_columns(metadata) if metadata[name].notna().any()]
    return min(filled, key=lambda name: metadata[name].nunique(), default=None)


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
