"""Controls that read the metadata sheet alone: its columns may hold the batch, the site, sex, age and others.

Letters: B repertoires, F features.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.baselines.linear import PenalisedClassifier, RidgeRegressor
from deeprc.datasets.categories import is_category
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError, describe_missing_column
from deeprc.estimators import RepertoireEstimator

__all__ = ["SheetColumns", "SheetColumnsRidge", "list_control_columns"]

_MAX_CATEGORIES = 20  # a column with more categories names single repertoires
_MIN_REPERTOIRES_PER_CATEGORY = 2  # on average


def list_control_columns(metadata: pd.DataFrame, *, left_out: Collection[str]) -> list[str]:
    """Return the names of the columns that a control can read: numbers, and categories that several repertoires share.

    Parameters
    ----------
    metadata
        The sheet, with one row for each repertoire.
    left_out
        Columns that must not be read: targets, and columns that identify a repertoire or its donor.
    """
    readable = []
    for column in map(str, metadata.columns):
        values = metadata[column].dropna()
        n_different = int(values.nunique())
        if column in left_out or n_different < 2:
            continue
        is_shared = n_different <= _MAX_CATEGORIES and n_different * _MIN_REPERTOIRES_PER_CATEGORY <= len(values)
        if is_shared or pd.api.types.is_numeric_dtype(values):
            readable.append(column)
    return readable


class _SheetFeatures(RepertoireEstimator):
    """An estimator that reads columns of the sheet: measurements unchanged, categories and missing values as 0 or 1.

    An infinite number counts as missing.

    Attributes
    ----------
    known_
        What the training repertoires have in each column, by its name. A measurement has `mean`, the mean of its finite
        numbers. A column of categories has `categories`, the list of the texts or numbers.
    """

    known_: dict[str, dict[str, Any]]

    def __init__(self, *, columns: Sequence[str] = (), categories: Sequence[str] | None = None, C: float = 1.0) -> None:
        self.columns = columns
        self.categories = categories
        self.C = C

    @property
    def sheet_columns(self) -> Sequence[str]:
        """Names of the columns of the metadata sheet that the method reads."""
        return self.columns

    def _learn_columns(self, X: RepertoireDataset) -> None:
        """Set `known_`: the categories of each column, or the mean of its numbers, in the training repertoires."""
        metadata = X.metadata  # copied at each access
        missing = [name for name in self.columns if name not in metadata]
        if missing or not self.columns:
            lacking = describe_missing_column(missing[0], metadata) if missing else "no other column"
            raise InputError(f"the sheet has {lacking}")
        self.known_ = {name: self._learn_column(name, metadata[name].dropna()) for name in self.columns}

    def _learn_column(self, name: str, values: pd.Series[Any]) -> dict[str, Any]:
        """Return the categories of a column, or the mean of its numbers, from the values that are not missing."""
        if not pd.api.types.is_numeric_dtype(values):
            return {"categories": sorted(set(values.astype(str)))}
        numbers = _to_numbers(values)
        if is_category(values) if self.categories is None else name in self.categories:
            return {"categories": sorted(set(numbers.tolist()))}
        finite = numbers[np.isfinite(numbers)]
        return {"mean": float(finite.mean()) if len(finite) else 0.0}

    def _compute_features(self, X: RepertoireDataset) -> NDArray[np.float64]:
        """Return the numeric columns, their gaps filled with the mean, and an indicator of each category, (B, F)."""
        parts, metadata = [np.zeros((len(X), 0))], X.metadata
        for name, known in self.known_.items():
            if name not in metadata:
                raise InputError(f"{X.container.path}: the sheet has {describe_missing_column(name, metadata)}")
            parts.append(_encode_column(metadata[name], known))
        return np.hstack(parts)


def _encode_column(values: pd.Series[Any], known: Mapping[str, Any]) -> NDArray[np.float64]:
    """Return the features of one column, (B, F), as `known_` says; the last one is whether the value is missing."""
    missing = values.isna().to_numpy()
    if "mean" in known:
        numbers = _to_numbers(values)
        missing = ~np.isfinite(numbers)
        features = [np.where(missing, known["mean"], numbers)]
    elif all(isinstance(category, str) for category in known["categories"]):
        texts = np.array(["" if absent else str(value) for value, absent in zip(values, missing, strict=True)])
        features = [(texts == category) & ~missing for category in known["categories"]]
    else:
        numbers = _to_numbers(values)
        features = [numbers == category for category in known["categories"]]
    return np.stack([*features, missing], axis=1).astype(np.float64)


def _to_numbers(values: pd.Series[Any]) -> NDArray[np.float64]:
    """Return values as numbers; NaN for those that are missing or no numbers."""
    return np.asarray(pd.to_numeric(values, errors="coerce").to_numpy(np.float64, na_value=np.nan))


class SheetColumns(_SheetFeatures, PenalisedClassifier):
    """Logistic regression on columns of the metadata sheet, with an l2 penalty.

    Parameters
    ----------
    columns
        Names of the columns to read; see `list_control_columns`.
    categories
        Those of the columns whose numbers are categories. None: `is_category` decides, from the training
        repertoires alone.
    C
        Weight of the losses against the penalty; see `deeprc.baselines.logistic.LogisticRegression`.
    """


class SheetColumnsRidge(_SheetFeatures, RidgeRegressor):
    """Ridge regression on columns of the metadata sheet; see `SheetColumns`.

    Parameters
    ----------
    columns
        Names of the columns to read; see `list_control_columns`.
    categories
        Those of the columns whose numbers are categories. None: `is_category` decides, from the training
        repertoires alone.
    C
        Weight of the squared errors against the penalty; see `deeprc.baselines.linear.fit_ridge_path`.
    """
