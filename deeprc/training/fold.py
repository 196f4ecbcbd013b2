"""`Fold`: repertoires with their labels, and whose they are.

Letters: B repertoires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.estimators import canonical_order

__all__ = ["Fold", "number_groups", "validate_groups"]


def number_groups(values: ArrayLike) -> NDArray[np.int64]:
    """Return the number of each repertoire's group, (B,): equal values are one group, each missing one its own."""
    codes, _ = pd.factorize(np.asarray(values))
    return np.where(codes < 0, len(codes) + np.arange(len(codes)), codes)


def validate_groups(X: RepertoireDataset, groups: ArrayLike | None) -> NDArray[np.int64] | None:
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


@dataclass(frozen=True)
class Fold:
    """Repertoires, their labels, (B, number of tasks) float64, NaN where missing, and whose they are.

    Repertoires with equal `groups`, (B,) int64, are of one donor. None: each repertoire is its own.
    """

    dataset: RepertoireDataset
    labels: NDArray[np.float64]
    groups: NDArray[np.int64] | None = None

    def number_donors(self) -> NDArray[np.int64]:
        """Return the index of each repertoire's donor, (B,): from 0, in the order in which donors first occur."""
        return np.arange(len(self.labels)) if self.groups is None else number_groups(self.groups)

    def take(self, rows: NDArray[np.int64]) -> Fold:
        """Return some of the repertoires, rows (n,), in this order."""
        return Fold(self.dataset[rows], self.labels[rows], None if self.groups is None else self.groups[rows])

    def ordered(self) -> Fold:
        """Return the repertoires that have a label, in an order that their content decides, see `canonical_order`."""
        rows = np.flatnonzero(~np.isnan(self.labels).all(axis=1))
        if len(rows):
            rows = rows[canonical_order(self.dataset[rows], self.labels[rows])]
        return self.take(rows)

    @classmethod
    def join(cls, folds: Sequence[Fold]) -> Fold:
        """Return the repertoires of several folds of one container together."""
        labels = np.concatenate([fold.labels for fold in folds])
        groups = [fold.groups for fold in folds if fold.groups is not None]
        return cls(
            reduce(RepertoireDataset.join, (fold.dataset for fold in folds)),
            labels,
            np.concatenate(groups) if len(groups) == len(folds) else None,
        )
