"""Sets of gapped k-mers, and the candidates for motifs: k-mers that the search tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from deeprc.arrays import Flags, Floats, Integers
from deeprc.datasets.alphabet import AMINO_ACIDS

__all__ = ["ANY", "KmerCandidates", "KmerSet", "Spacing", "compute_code", "enumerate_spacings", "find_spacing"]

Spacing = tuple[int, ...]
"""Offsets of a k-mer's residues from its first one, such as (0, 1, 3)."""

ANY = -1
"""A letter that stands for any residue; `njit` functions use it, too."""


@dataclass(frozen=True)
class KmerSet:
    """n gapped k-mers.

    Attributes
    ----------
    spacings
        All spacings of the search.
    spacing_index
        Index of each k-mer's spacing, (n,).
    code
        Index of each k-mer among those of its spacing, (n,), see `compute_code`.
    """

    spacings: Sequence[Spacing]
    spacing_index: Integers
    code: Integers

    def __len__(self) -> int:
        return len(self.code)

    @classmethod
    def concatenate(cls, parts: Sequence[KmerSet]) -> KmerSet:
        """Join sets of k-mers of the same search, in their order."""
        spacing_index = np.concatenate([part.spacing_index for part in parts])
        return cls(parts[0].spacings, spacing_index, np.concatenate([part.code for part in parts]))

    def take(self, rows: Integers | Flags) -> KmerSet:
        """Return some of the k-mers, by their rows."""
        return KmerSet(self.spacings, self.spacing_index[rows], self.code[rows])

    def find_missing(self, others: KmerSet) -> Flags:
        """Return whether each k-mer is missing from others, (n,)."""
        present = set(others._iterate_pairs())
        return np.array([pair not in present for pair in self._iterate_pairs()], np.bool_)

    def get_letters(self, i: int) -> tuple[int, ...]:
        """Return the amino-acid indices of k-mer i, with `ANY` between them."""
        spacing = self.spacings[self.spacing_index[i]]
        code, letters = int(self.code[i]), [ANY] * (spacing[-1] + 1)
        for offset in reversed(spacing):
            code, letters[offset] = divmod(code, len(AMINO_ACIDS))
        return tuple(letters)

    def _iterate_pairs(self) -> Iterable[tuple[int, int]]:
        return zip(self.spacing_index.tolist(), self.code.tolist(), strict=True)


def enumerate_spacings(k: int, span: int) -> list[Spacing]:
    """Return all spacings that k residues can have within `span` positions."""
    return [(0, *others) for others in combinations(range(1, span), k - 1)]


def find_spacing(letters: Sequence[int]) -> Spacing:
    """Return the offsets of the fixed residues among amino-acid indices with `ANY` between them."""
    return tuple(offset for offset, letter in enumerate(letters) if letter != ANY)


def compute_code(letters: Sequence[int]) -> int:
    """Return the index of a k-mer among those of its spacing, as in `deeprc.datasets.kmers.count_kmers`."""
    code = 0
    for offset in find_spacing(letters):
        code = code * len(AMINO_ACIDS) + letters[offset]
    return code


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
