"""Checks of the repertoires and labels that an estimator is given, and their encoding.

Letters: B repertoires, C classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import column_or_1d

from deeprc.datasets.cache import digest_with_genes
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.groups import convert_keeping_missing

__all__ = [
    "encode_classes",
    "encode_two_classes",
    "find_canonical_order",
    "validate_dataset",
    "validate_numbers",
    "validate_sequences",
]


def validate_dataset(X: object) -> RepertoireDataset:
    """Return X if it is a `RepertoireDataset`; raise TypeError if not."""
    if not isinstance(X, RepertoireDataset):
        raise TypeError(f"X: expected a RepertoireDataset (see deeprc.open), found {type(X).__name__}")
    return X


def validate_sequences(dataset: RepertoireDataset) -> None:
    """Raise InputError if no repertoire has a sequence, so that nothing can be learned."""
    if not dataset.n_sequences.any():
        raise InputError(
            f"{dataset.container.path}: expected repertoires with sequences, found {len(dataset)} empty ones"
        )


def encode_classes(X: object, y: ArrayLike) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the classes in sorted order, (C,), and the index of the class of each repertoire, (B,).

    Raises
    ------
    TypeError
        If X is not a `RepertoireDataset`.
    ValueError
        If X and y differ in length, if y has only one class, or if a label is missing.
    """
    n = len(validate_dataset(X))
    label_of: NDArray[Any] = column_or_1d(convert_keeping_missing(y))
    if n != len(label_of):
        raise ValueError(f"expected one label per repertoire, found {len(label_of)} labels for {n} repertoires")
    if pd.isna(label_of).any():
        raise ValueError("y has missing labels; leave out their repertoires")
    if label_of.dtype == object:
        label_of = np.array(label_of.tolist())  # object arrays cannot be saved
    classes, index = np.unique(label_of, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(f"y has one class only: {classes.tolist()}")
    return classes, index.astype(np.int64)


def encode_two_classes(X: object, y: ArrayLike) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """Return the two classes in sorted order, (2,), and whether each repertoire has the second class, (B,) bool.

    Raises
    ------
    TypeError, ValueError
        As in `encode_classes`; or if there are more than two classes.
    """
    classes, index = encode_classes(X, y)
    if len(classes) > 2:
        raise ValueError(f"y: expected two classes, found {len(classes)}: {classes.tolist()[:8]}")
    return classes, np.asarray(index == 1)


def validate_numbers(X: object, y: ArrayLike) -> NDArray[np.float64]:
    """Return the numbers to predict, (B,) float64.

    Raises
    ------
    TypeError
        If X is not a `RepertoireDataset`.
    ValueError
        If X and y differ in length, if y does not consist of numbers, if one is missing, or if all are equal.
    """
    n = len(validate_dataset(X))
    numbers: NDArray[np.float64] = column_or_1d(y).astype(np.float64)
    if n != len(numbers):
        raise ValueError(f"expected one label per repertoire, found {len(numbers)} labels for {n} repertoires")
    if not np.isfinite(numbers).all():
        raise ValueError("y has missing or infinite labels; leave out their repertoires")
    if len(np.unique(numbers)) < 2:
        raise ValueError(f"y has one value only: {numbers[:1].tolist()}")
    return numbers


def find_canonical_order(X: RepertoireDataset, labels: NDArray[Any]) -> NDArray[np.int64]:
    """Return the indices of the repertoires, (B,), in an order that depends on content and labels, not on X's order.

    Random draws and sums over repertoires in this order do not depend on how a cohort is sorted. `labels` are numbers,
    (B,) or (B, number of targets), with NaN for missing labels.
    """
    known = np.nan_to_num(np.asarray(labels, np.float64), nan=-np.inf)
    keys = list(zip(digest_with_genes(X), known.tolist(), strict=True))
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
