"""Repertoires without some of their sequences, such as those that are already explained.

Letter: n sequences of one repertoire that are left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.on_demand import OnDemandContainer
from deeprc.datasets.parts import RepertoireInMemory
from deeprc.datasets.sequences import Sequences

__all__ = ["RemainingDataset"]


class RemainingDataset(RepertoireDataset):
    """A dataset without some of its sequences, which are left out each time that a repertoire is read.

    It can only be given to code that reads one repertoire after the other, because the remaining sequences of all
    repertoires are not stored in one array.

    Parameters
    ----------
    dataset
        The whole repertoires.
    left_out
        Indices of the few sequences of each repertoire that are left out, (n,) int64 each, in ascending order.
    """

    container: _RemainingContainer

    def __init__(self, dataset: RepertoireDataset, left_out: Sequence[NDArray[np.int64]]) -> None:
        self.container = _RemainingContainer(dataset, left_out)
        self.repertoire_indices = np.arange(len(dataset))

    def __repr__(self) -> str:
        return f"RemainingDataset({self.container.whole!r}, {len(self)} repertoires)"

    def _make_repertoire(self, index: int) -> Repertoire:
        whole, left_out = self.container.whole[index], self.container.left_out[index]
        if len(left_out) == 0:
            return whole
        store = RepertoireInMemory(self.container.path, whole.sequences.drop(left_out), {})
        return Repertoire(whole.repertoire_id, 0, len(store.sequences), store, whole.metadata)


class _RemainingContainer(OnDemandContainer):
    """A `CohortContainer` without sequences of its own; the parameters are those of `RemainingDataset`."""

    def __init__(self, dataset: RepertoireDataset, left_out: Sequence[NDArray[np.int64]]) -> None:
        self.whole, self.left_out = dataset, left_out
        container = dataset.container
        self.path, self.created_by, self.source = container.path, container.created_by, container.source
        self.preprocessing, self.simulation = container.preprocessing, container.simulation
        self.has_witness = container.has_witness
        self.repertoire_ids, self.metadata = dataset.repertoire_ids, dataset.metadata
        sizes = dataset.n_sequences - np.array([len(rows) for rows in left_out], np.int64)
        self.repertoire_offsets = compute_offsets(sizes)

    def make_sequences(self, repertoire: int, rows: NDArray[np.int64] | None = None) -> Sequences:
        """Return the remaining sequences of a repertoire: all, or those at some rows, (n,), of them."""
        remaining = self.whole[repertoire].sequences.drop(self.left_out[repertoire])
        return remaining if rows is None else remaining.take(rows)
