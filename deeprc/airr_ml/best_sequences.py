"""The best sequences of a container by a score, each once, in memory that does not grow with the cohort.

Letters: n sequences.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.sequence_hash import hash_rows

__all__ = ["BestSequences"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


class BestSequences:
    """The best sequences of a container, the first best; among equals the first that was offered.

    Sequences with the same genes are one, told by 64 bits of both.

    Attributes
    ----------
    indices, scores, hashes
        Their indices in the container, their scores and the hashes of residues and genes, (n,).
    """

    def __init__(self, X: RepertoireDataset, fields: list[str], max_sequences: int) -> None:
        self._sequences, self._max_sequences = X[0].container.sequences.arrays(fields), max_sequences
        self.indices: Integers = np.zeros(0, np.int64)
        self.scores: Floats = np.zeros(0)
        self.hashes: NDArray[np.uint64] = np.zeros(0, np.uint64)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def is_full(self) -> bool:
        """Whether further sequences must be better than the last."""
        return len(self) == self._max_sequences

    @property
    def lowest(self) -> float:
        """The score below which sequences were left out; -inf if there were none."""
        return float(self.scores[-1]) if self.is_full else -np.inf

    def offer(self, indices: Integers, scores: Floats) -> None:
        """Look at further sequences: their indices in the container and their scores, (n,) each."""
        if self.is_full:
            better = scores > self.scores[-1]
            indices, scores = indices[better], scores[better]
        indices = np.concatenate([self.indices, indices])
        scores = np.concatenate([self.scores, scores])
        hashes = np.concatenate([self.hashes, hash_rows(self._sequences, indices[len(self) :])])
        self._keep(np.argsort(-scores, kind="stable"), indices, scores, hashes)

    def append(self, others: BestSequences) -> None:
        """Put others behind, whatever their scores."""
        parts = ((a, b) for a, b in zip(self._columns(), others._columns(), strict=True))
        indices, scores, hashes = (np.concatenate(part) for part in parts)
        self._keep(np.arange(len(indices)), indices, scores, hashes)

    def _columns(self) -> tuple[Integers, Floats, NDArray[np.uint64]]:
        return self.indices, self.scores, self.hashes

    def _keep(self, order: Integers, indices: Integers, scores: Floats, hashes: NDArray[np.uint64]) -> None:
        first = np.sort(np.unique(hashes[order], return_index=True)[1])[: self._max_sequences]
        kept = order[first]
        self.indices, self.scores, self.hashes = indices[kept], scores[kept], hashes[kept]
