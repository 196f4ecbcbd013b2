"""Frequencies of the amino acids among the residues of repertoires, which define an average residue."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.progress import track

__all__ = ["ResidueCounts", "residue_frequencies"]

_PIECE = 1 << 20  # number of residues that are counted at a time


class ResidueCounts:
    """Counts of the amino acids, collected repertoire by repertoire; every sequence counts once, whatever its count."""

    def __init__(self) -> None:
        self._counts = np.zeros(len(AMINO_ACIDS), np.int64)

    def add(self, repertoire: Repertoire) -> None:
        """Count the residues of a repertoire."""
        residues = repertoire.residues
        for first in range(0, len(residues), _PIECE):
            self._counts += np.bincount(residues[first : first + _PIECE], minlength=len(AMINO_ACIDS))

    def join(self, other: ResidueCounts) -> None:
        """Add the counts of another collector."""
        self._counts += other._counts

    def compute_frequencies(self) -> NDArray[np.float64]:
        """Return the frequencies, (20,), in the order of `AMINO_ACIDS`; each is 1 / 20 if there are no residues."""
        n = len(self._counts)
        return self._counts / self._counts.sum() if self._counts.any() else np.full(n, 1 / n)


def residue_frequencies(dataset: RepertoireDataset) -> NDArray[np.float64]:
    """Return the frequency of each amino acid among all residues of a dataset, (20,), in the order of `AMINO_ACIDS`."""
    counts = ResidueCounts()
    for repertoire in track(dataset, "counting residues", len(dataset)):
        counts.add(repertoire)
    return counts.compute_frequencies()
