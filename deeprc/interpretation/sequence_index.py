"""An index of chosen sequences in a dataset, so that they need not be found again by name.

Three kinds of indices occur together, all from 0: the `position` of a repertoire in the dataset, the `row` of a
sequence in its repertoire, and the `item`, which is the index of a chosen sequence among the n.

Letters: n chosen sequences.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError

__all__ = ["RepertoireItems", "SequenceIndex"]


class RepertoireItems(NamedTuple):
    """The position of a repertoire in the dataset, and the items of its chosen sequences, (m,)."""

    position: int
    items: NDArray[np.int64]


@dataclass(frozen=True)
class SequenceIndex:
    """The indices of n sequences in a dataset; a sequence may occur more than once.

    For example, positions [2, 2, 0] and rows [7, 7, 5] are the eighth sequence of the third repertoire twice, and the
    sixth one of the first repertoire.

    Attributes
    ----------
    positions
        Position of each sequence's repertoire in the dataset, (n,).
    rows
        Row of each sequence in its repertoire, (n,).
    """

    positions: NDArray[np.int64]
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, dataset: RepertoireDataset, sequences: pd.DataFrame | SequenceIndex) -> SequenceIndex:
        """Return the index of sequences in a table; an index is returned unchanged.

        Parameters
        ----------
        dataset
            Dataset with the repertoires.
        sequences
            A table with the columns repertoire_id and sequence_id (the index in the repertoire, from 1), like those of
            `attention_table`; other columns are ignored. Or an index.

        Raises
        ------
        InputError
            If a column is missing, or the dataset has no such repertoire or sequence.
        """
        if isinstance(sequences, SequenceIndex):
            return sequences
        for column in ("repertoire_id", "sequence_id"):
            if column not in sequences:
                raise InputError(f"sequences: expected the columns repertoire_id and sequence_id, {column} is missing")
        position_of = {str(repertoire_id): i for i, repertoire_id in enumerate(dataset.repertoire_ids)}
        sizes = dataset.n_sequences.tolist()
        positions, rows = np.zeros((2, len(sequences)), np.int64)
        numbers = pd.to_numeric(sequences["sequence_id"], errors="coerce")
        for i, (repertoire_id, number) in enumerate(zip(sequences["repertoire_id"], numbers, strict=True)):
            position = position_of.get(str(repertoire_id))
            if position is None:
                where = f"{dataset.container.path}: no repertoire {repertoire_id!r}"
                raise InputError(f"{where}; row {i + 1} of the sequences names it")
            if not (1 <= number <= sizes[position] and number == int(number)):
                raise InputError(
                    f"sequences, row {i + 1}: sequence_id: expected a whole number from 1 to {sizes[position]}, the "
                    f"size of {repertoire_id!r}, found {sequences['sequence_id'].iloc[i]}"
                )
            positions[i], rows[i] = position, number - 1
        return cls(positions, rows)

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, items: NDArray[np.int64]) -> SequenceIndex:
        """Return some of the sequences, by their indices among the n."""
        return SequenceIndex(self.positions[items], self.rows[items])

    def drop_repeats(self) -> tuple[SequenceIndex, NDArray[np.int64]]:
        """Return each different sequence once, and the index of each of the n sequences among these, (n,)."""
        pairs = np.stack([self.positions, self.rows], axis=1)
        different, inverse = np.unique(pairs, axis=0, return_inverse=True)
        return SequenceIndex(different[:, 0], different[:, 1]), inverse.ravel()

    def group_by_repertoire(self) -> Iterator[RepertoireItems]:
        """Yield each repertoire that occurs, with its sequences among the n."""
        for position in np.unique(self.positions).tolist():
            yield RepertoireItems(position, np.flatnonzero(self.positions == position))

    def to_container_rows(self, dataset: RepertoireDataset) -> NDArray[np.int64]:
        """Return the row of each sequence among all sequences of the container, (n,)."""
        starts = dataset.container.repertoire_offsets[dataset.repertoire_indices]
        return np.asarray(starts[self.positions] + self.rows)

    def frame(self, dataset: RepertoireDataset) -> pd.DataFrame:
        """Return the sequences as a table, see `Repertoire.columns`."""
        parts = [
            dataset[position].to_frame(self.rows[items]).assign(item=items)
            for position, items in self.group_by_repertoire()
        ]
        if not parts:
            return pd.DataFrame({"repertoire_id": [], "sequence_id": [], "junction_aa": []}, dtype=object)
        table = pd.concat(parts, ignore_index=True).sort_values("item", kind="stable")
        return table.drop(columns="item").reset_index(drop=True)
