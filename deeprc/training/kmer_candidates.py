"""Candidates for motifs: k-mers that the search tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from deeprc.arrays import Flags, Floats, Integers
from deeprc.training.kmer_sets import KmerSet

__all__ = ["KmerCandidates"]


@dataclass(frozen=True)
class KmerCandidates:
    """n k-mers that may be motifs.

    Attributes
    ----------
    kmers
        The k-mers.
    correlation
        Correlation of each k-mer's frequency with the label, (n,).
    overdispersed
        Whether each k-mer was found by its dispersion, (n,), see `deeprc.training.kmer_dispersion`.
    """

    kmers: KmerSet
    correlation: Floats
    overdispersed: Flags

    def __len__(self) -> int:
        return len(self.kmers)

    def take(self, rows: Integers | Flags) -> KmerCandidates:
        """Return some of the candidates, by their rows."""
        return KmerCandidates(self.kmers.take(rows), self.correlation[rows], self.overdispersed[rows])

    def with_correlation(self, correlation: Floats) -> KmerCandidates:
        """Return the same k-mers with other correlations, (n,)."""
        return replace(self, correlation=correlation)

    @classmethod
    def concatenate(cls, parts: Sequence[KmerCandidates]) -> KmerCandidates:
        """Join the candidates of several parts, in their order."""
        correlation = np.concatenate([part.correlation for part in parts])
        overdispersed = np.concatenate([part.overdispersed for part in parts])
        return cls(KmerSet.concatenate([part.kmers for part in parts]), correlation, overdispersed)

    def sort(self) -> KmerCandidates:
        """Return the candidates, strongest first."""
        return self.take(np.lexsort((self.kmers.code, self.kmers.spacing_index, -np.abs(self.correlation))))

    def take_first_of_each_sign(self, max_of_sign: int) -> KmerCandidates:
        """Return the first `max_of_sign` candidates with a positive correlation, and as many with a negative one."""
        rank = np.zeros(len(self), np.int64)
        for sign in (self.correlation > 0, self.correlation <= 0):
            rank[sign] = np.arange(int(sign.sum()))
        return self.take(rank < max_of_sign)
