"""Candidates for motifs: k-mers that the search tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.training.kmer_frequencies import Codes, Flags

__all__ = ["ANY", "Candidates", "compute_code", "list_kmer_offsets"]

Floats = NDArray[np.float64]

ANY = -1
"""A letter that stands for any residue."""


@dataclass(frozen=True)
class Candidates:
    """n k-mers that may be motifs.

    Attributes
    ----------
    spacing
        Index of each k-mer's spacing, (n,).
    code
        Index of each k-mer among those of its spacing, (n,).
    correlation
        Correlation of each k-mer's frequency with the label, (n,).
    overdispersed
        Whether each k-mer was found by its dispersion, (n,), see `deeprc.training.kmer_dispersion`.
    """

    spacing: Codes
    code: Codes
    correlation: Floats
    overdispersed: Flags

    def __len__(self) -> int:
        return len(self.code)

    @classmethod
    def none(cls) -> Candidates:
        """Return an empty set of candidates."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0), np.empty(0, np.bool_))

    def take(self, rows: NDArray[np.int64] | Flags) -> Candidates:
        """Return some of the candidates, by their rows."""
        return Candidates(self.spacing[rows], self.code[rows], self.correlation[rows], self.overdispersed[rows])

    @classmethod
    def concatenate(cls, parts: Sequence[Candidates]) -> Candidates:
        """Join the candidates of several parts, in their order."""
        columns = zip(*((part.spacing, part.code, part.correlation, part.overdispersed) for part in parts), strict=True)
        return cls(*map(np.concatenate, columns))

    def sort(self) -> Candidates:
        """Return the candidates, strongest first."""
        return self.take(np.lexsort((self.code, self.spacing, -np.abs(self.correlation))))

    def without(self, others: Candidates) -> Candidates:
        """Return the candidates that are not among others."""
        known = set(zip(others.spacing.tolist(), others.code.tolist(), strict=True))
        pairs = zip(self.spacing.tolist(), self.code.tolist(), strict=True)
        return self.take(np.array([pair not in known for pair in pairs], np.bool_))

    def take_first_of_each_sign(self, max_of_sign: int) -> Candidates:
        """Return the first `max_of_sign` candidates with a positive correlation, and as many with a negative one."""
        rank = np.zeros(len(self), np.int64)
        for sign in (self.correlation > 0, self.correlation <= 0):
            rank[sign] = np.arange(int(sign.sum()))
        return self.take(rank < max_of_sign)

    def letters(self, i: int, spacings: Sequence[Sequence[int]]) -> tuple[int, ...]:
        """Return the amino-acid indices of candidate i, with `ANY` between them."""
        kmer_offsets = spacings[self.spacing[i]]
        code, letters = int(self.code[i]), [ANY] * (kmer_offsets[-1] + 1)
        for offset in reversed(kmer_offsets):
            code, letters[offset] = divmod(code, len(AMINO_ACIDS))
        return tuple(letters)


def list_kmer_offsets(letters: Sequence[int]) -> tuple[int, ...]:
    """Return the offsets of the fixed residues among amino-acid indices with `ANY` between them."""
    return tuple(offset for offset, letter in enumerate(letters) if letter != ANY)


def compute_code(letters: Sequence[int]) -> int:
    """Return the index of a k-mer among those with its offsets, as in `deeprc.datasets.kmers.count_kmers`."""
    code = 0
    for offset in list_kmer_offsets(letters):
        code = code * len(AMINO_ACIDS) + letters[offset]
    return code
