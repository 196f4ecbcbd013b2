"""Repertoires with their labels and donors.

Letters: B repertoires.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.groups import index_groups
from deeprc.labels import find_canonical_order

__all__ = ["LabelledRepertoires"]


@dataclass(frozen=True)
class LabelledRepertoires:
    """Repertoires with their labels, (B, number of tasks) float64, NaN if missing, and their donors.

    Repertoires with equal `groups`, (B,) int64, are from one donor. If `groups` is None, every repertoire is from a
    different donor.
    """

    dataset: RepertoireDataset
    labels: NDArray[np.float64]
    groups: NDArray[np.int64] | None = None

    def index_donors(self) -> NDArray[np.int64]:
        """Return the index of each repertoire's donor, (B,), from 0, in the order in which donors first occur."""
        return np.arange(len(self.labels)) if self.groups is None else index_groups(self.groups)

    def take(self, positions: NDArray[np.int64]) -> LabelledRepertoires:
        """Return some of the repertoires, by their positions, (n,), in this order."""
        groups = None if self.groups is None else self.groups[positions]
        return LabelledRepertoires(self.dataset[positions], self.labels[positions], groups)

    def take_labelled_in_order(self) -> LabelledRepertoires:
        """Return the repertoires that have a label, in the order of `find_canonical_order`."""
        positions = np.flatnonzero(~np.isnan(self.labels).all(axis=1))
        if len(positions):
            positions = positions[find_canonical_order(self.dataset[positions], self.labels[positions])]
        return self.take(positions)

    @classmethod
    def join(cls, parts: Sequence[LabelledRepertoires]) -> LabelledRepertoires:
        """Join several parts of one container.

        Raises
        ------
        ValueError
            If only some of the parts have groups.
        """
        groups = [repertoires.groups for repertoires in parts if repertoires.groups is not None]
        if groups and len(groups) < len(parts):
            raise ValueError(f"groups: expected those of all {len(parts)} parts or of none, found {len(groups)}")
        return cls(
            reduce(RepertoireDataset.concatenate, (repertoires.dataset for repertoires in parts)),
            np.concatenate([repertoires.labels for repertoires in parts]),
            np.concatenate(groups) if groups else None,
        )
