"""Containers that store no sequences: the sequences of a repertoire are made each time that it is read.

Letters: B repertoires, n chosen sequences.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import invert_order
from deeprc.datasets.sequences import SequenceArrays, Sequences

__all__ = ["OnDemandContainer", "OnDemandSequences"]


class OnDemandContainer(ABC):
    """What a `CohortContainer` needs to make its sequences on demand.

    Attributes
    ----------
    repertoire_offsets
        Repertoire b has the sequences from `repertoire_offsets[b]`, (B + 1,).
    """

    repertoire_offsets: NDArray[np.int64]

    @abstractmethod
    def make_sequences(self, repertoire: int, rows: NDArray[np.int64] | None = None) -> Sequences:
        """Make the sequences of a repertoire, with their genes if they are known: all, or those at some rows, (n,)."""

    @cached_property
    def gene_fields(self) -> list[str]:
        """Those of `v_call` and `j_call` that the sequences have."""
        sizes = np.diff(self.repertoire_offsets)
        filled = int(np.argmax(sizes > 0)) if len(sizes) else 0
        return list(self.make_sequences(filled, np.zeros(1, np.int64)).genes) if sizes.any() else []

    def take(self, rows: NDArray[np.int64]) -> Sequences:
        """Make some of the sequences, at rows (n,) counted through all repertoires, in this order."""
        if len(rows) and not 0 <= rows.min() <= rows.max() < self.repertoire_offsets[-1]:
            raise IndexError(f"expected sequences from 0 to {self.repertoire_offsets[-1] - 1}")
        repertoires = np.searchsorted(self.repertoire_offsets, rows, side="right") - 1
        if (np.diff(repertoires) >= 0).all():
            return self._make_in_order(repertoires, rows)
        order = np.argsort(repertoires, kind="stable")  # each repertoire is made once
        return self._make_in_order(repertoires[order], rows[order]).take(invert_order(order))

    def _make_in_order(self, repertoires: NDArray[np.int64], rows: NDArray[np.int64]) -> Sequences:
        """Make the sequences at some rows, (n,), which lie in these repertoires, (n,), in rising order."""
        bounds = np.flatnonzero(np.diff(repertoires, prepend=-1, append=-1))
        parts = []
        for start, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            index = int(repertoires[start])
            parts.append(self.make_sequences(index, rows[start:stop] - self.repertoire_offsets[index]))
        return Sequences.concatenate(parts)

    def get_arrays_at(
        self, rows: NDArray[np.int64], gene_fields: Collection[str]
    ) -> tuple[SequenceArrays, NDArray[np.int64]]:
        """Make the sequences at `rows`, (n,); return them, and the indices 0 to n - 1; see `CohortContainer`."""
        return self.take(rows).arrays(gene_fields), np.arange(len(rows))

    def arrays(self, gene_fields: Collection[str]) -> SequenceArrays | OnDemandSequences:
        """Return all sequences as arrays for compiled code, with the codes of the genes that `gene_fields` names.

        Without genes, sequences are made when they are read. With genes, all of them are made at once, because a gene
        may have a different code in each repertoire that is made.
        """
        if not gene_fields:
            return OnDemandSequences(self)
        n_repertoires = len(self.repertoire_offsets) - 1
        return Sequences.concatenate([self.make_sequences(index) for index in range(n_repertoires)]).arrays(gene_fields)

    def choose_max_hashes(self, gene_fields: Collection[str], minimum: int) -> int:
        """Return how many hashes should be in memory at once; see `CohortContainer`.

        Without genes it is the number of all sequences, because it takes longer to make them again than to hash them.
        """
        return minimum if gene_fields else max(minimum, int(self.repertoire_offsets[-1]))


class OnDemandSequences:
    """The residues of sequences that are made on demand, as `SequencesInParts`.

    Parameters
    ----------
    container
        The container. Each of its repertoires is a part.
    """

    def __init__(self, container: OnDemandContainer) -> None:
        self._container = container
        self.bounds: Sequence[int] = container.repertoire_offsets.tolist()

    def view(self, start: int, stop: int) -> SequenceArrays:
        """Make the sequences from `start` to `stop`, counted through all repertoires, which must lie in one of them."""
        return self._container.take(np.arange(start, stop)).arrays()

    def take(self, rows: NDArray[np.int64]) -> SequenceArrays:
        """Make some of the sequences, at rows (n,) counted through all repertoires."""
        return self._container.take(rows).arrays()
