"""How frequent each amino acid is among the residues of repertoires: what an average residue is."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.progress import track

__all__ = ["ResidueCounts", "residue_frequencies"]

_PIECE = 1 << 20  # residues that are counted at a time


class ResidueCounts:
    """Counts of the amino acids, from repertoires one by one; every sequence counts once, whatever its abundance."""

    def __init__(self) -> None:
        self._counts = np.zeros(len(AMINO_ACIDS), np.int64)

    def add(self, repertoire: Repertoire) -> None:
        """Count the residues of a repertoire."""
        residues = repertoire.residues
        for first in range(0, len(residues), _PIECE):
            self._counts += np.bincount(residues[first : first + _PIECE], minlength=len(AMINO_ACIDS))

    def frequencies(self) -> NDArray[np.float64]:
        """Return the frequencies, (20,), in the order of `AMINO_ACIDS`; 1 / 20 each without any residue."""
        n = len(self._counts)
        return self._counts / self._counts.sum() if self._counts.any() else np.full(n, 1 / n)


def residue_frequencies(dataset: RepertoireDataset) -> NDArray[np.float64]:
    """Return how frequent each amino acid is among all residues of a dataset, (20,), in the order of `AMINO_ACIDS`."""
    counts = ResidueCounts()
    for repertoire in track(dataset, "counting residues", len(dataset)):
        counts.add(repertoire)
    return counts.frequencies()
