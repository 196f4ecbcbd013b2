"""False discovery rates of a few k-mers that are tested together for association with a label, by permutations.

Letters: B repertoires, n k-mers, P permutations.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.training.kmer_correlations import standardise

__all__ = ["N_PERMUTATIONS", "FalseDiscoveries"]

N_PERMUTATIONS = 2000
"""Number of permutations of the labels that a rate of some k-mers needs."""

Floats = NDArray[np.float64]

_ROUNDING = 1e-12  # of equal correlations


class FalseDiscoveries:
    """The share of chance findings among k-mers that correlate with a label at least as strongly as a given one.

    It is the mean number of such k-mers with permuted labels, divided by their number with the labels as they are (the
    false discovery rate of Benjamini and Hochberg). Where several k-mers go with the label, each needs less evidence
    than if it were alone. k-mers whose rate is at most the level are taken, and the number that is expected by chance
    is counted again among the others (the adaptive rate of Benjamini, Krieger and Yekutieli). Without any signal, some
    k-mer reaches the level with a probability of about the level.

    Parameters
    ----------
    frequencies
        Of each k-mer in each repertoire, (B, n).
    labels
        Labels of the repertoires as they are, and permutations of them, (B, 1 + P); see `permute_labels`.
    weights
        Weights of the repertoires, (B,).
    level
        Largest rate of a k-mer that is taken.

    Attributes
    ----------
    correlation
        Correlation of each k-mer with the label, (n,).
    """

    def __init__(self, frequencies: Floats, labels: Floats, weights: Floats, level: float) -> None:
        self._n_labels = labels.shape[1]
        r = (weights[:, None] * standardise(frequencies, weights)).T @ standardise(labels, weights)  # (n, 1 + P)
        self.correlation: Floats = r[:, 0].copy()
        observed, permuted = np.abs(self.correlation), np.abs(r[:, 1:])
        self._observed, self._lowest = np.sort(observed), np.ones(len(observed))
        taken = np.zeros(len(observed), np.bool_)
        while True:
            self._permuted = np.sort(permuted[~taken], axis=None)
            self._lowest = np.minimum.accumulate(self._share(self._observed))  # a stronger k-mer has no higher rate
            again = self.rate(self.correlation) <= level
            if (taken == again).all():
                return
            taken = again

    def rate(self, correlation: Floats) -> Floats:
        """Return the rates of k-mers that have these correlations."""
        strength = np.abs(correlation)
        weaker = np.searchsorted(self._observed, strength + _ROUNDING, side="right")
        lowest = np.concatenate([[1.0], self._lowest])[weaker]
        return np.asarray(np.minimum(lowest, self._share(strength)))

    def _share(self, strength: Floats) -> Floats:
        """Return how many k-mers are as strong by chance, divided by how many are, at least one."""
        by_chance = len(self._permuted) - np.searchsorted(self._permuted, strength - _ROUNDING)
        seen = len(self._observed) - np.searchsorted(self._observed, strength - _ROUNDING)
        return np.asarray((1 + by_chance) / self._n_labels / np.maximum(seen, 1))
