"""Keep the best sequences of a container by a score, in memory that does not grow with the cohort.

Letters: n sequences.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats, Integers, find_first_occurrences
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.sequence_hash import hash_sequences

__all__ = ["BestSequences"]


class BestSequences:
    """A list of sequences of a container, the highest score first; of equal scores, the one that was offered first.

    Equal sequences with equal genes are kept once. They are recognised by a hash of 64 bits.

    Attributes
    ----------
    indices, scores, hashes
        Indices of the sequences in the container, their scores, and hashes of their residues and genes, (n,) each.
    """

    def __init__(self, X: RepertoireDataset, fields: list[str], max_sequences: int) -> None:
        self._cohort, self._fields, self._max_sequences = X, fields, max_sequences
        self.indices: Integers = np.zeros(0, np.int64)
        self.scores: Floats = np.zeros(0)
        self.hashes: NDArray[np.uint64] = np.zeros(0, np.uint64)

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def is_full(self) -> bool:
        """Whether the list is full, so that a further sequence must have a higher score than the last one."""
        return len(self) == self._max_sequences

    @property
    def lowest(self) -> float:
        """The lowest score of a full list; -inf if the list is not full."""
        return float(self.scores[-1]) if self.is_full else -np.inf

    def add_candidates(self, indices: Integers, scores: Floats) -> None:
        """Add sequences if their scores are high enough, given their indices in the container and scores, (n,) each."""
        if self.is_full:
            better = scores > self.scores[-1]
            indices, scores = indices[better], scores[better]
        indices = np.concatenate([self.indices, indices])
        scores = np.concatenate([self.scores, scores])
        hashes = np.concatenate([self.hashes, hash_sequences(self._cohort, indices[len(self) :], self._fields)])
        self._keep_best(np.argsort(-scores, kind="stable"), indices, scores, hashes)

    def append(self, others: BestSequences) -> None:
        """Add other sequences at the end of the list, whatever their scores are."""
        indices = np.concatenate([self.indices, others.indices])
        scores = np.concatenate([self.scores, others.scores])
        hashes = np.concatenate([self.hashes, others.hashes])
        self._keep_best(np.arange(len(indices)), indices, scores, hashes)

    def _keep_best(self, order: Integers, indices: Integers, scores: Floats, hashes: NDArray[np.uint64]) -> None:
        """Set the list to the first different sequences in this order."""
        kept = order[find_first_occurrences(hashes[order])[: self._max_sequences]]
        self.indices, self.scores, self.hashes = indices[kept], scores[kept], hashes[kept]
