"""q-values of a few k-mers that are tested together for association with a label, by permutations.

Letters: B repertoires, n k-mers, P permutations.
"""

from __future__ import annotations

import numpy as np

from deeprc.arrays import Floats
from deeprc.training.kmer_correlations import correlate_columns

__all__ = ["N_DISCOVERY_PERMUTATIONS", "FalseDiscoveryTest"]

N_DISCOVERY_PERMUTATIONS = 2000
"""Number of permutations of the labels for the false discovery rates."""

_ROUNDING = 1e-12  # correlations that differ by less are equal


class FalseDiscoveryTest:
    """A permutation test of several k-mers together, which gives each k-mer a q-value, its false discovery rate.

    The q-value is the mean number of k-mers that are at least as correlated with permuted labels, divided by their
    number with the true labels (the false discovery rate of Benjamini and Hochberg). If several k-mers are
    associated with the label, each needs less evidence than if it were alone. k-mers with a q-value of at most the
    level are significant. Then the number that is expected by chance is counted again, only among the other k-mers
    (the adaptive rate of Benjamini, Krieger and Yekutieli). A k-mer keeps the q-value with which it became
    significant. Without any signal, the probability that some k-mer reaches the level is about the level.

    Parameters
    ----------
    frequencies
        Frequency of each k-mer in each repertoire, (B, n).
    labels
        True labels of the repertoires, and permutations of them, (B, 1 + P); see `permute_labels`.
    weights
        Weights of the repertoires, (B,).
    level
        Largest q-value of a significant k-mer.
    signs
        Direction in which each k-mer is tested: 1, -1, or 0 for both, (n,); None: all in both.

    Attributes
    ----------
    correlation
        Correlation of each k-mer with the label, (n,).
    strength
        The correlation in the tested direction, (n,); 0 if it has the other one.
    """

    def __init__(
        self, frequencies: Floats, labels: Floats, weights: Floats, level: float, signs: Floats | None = None
    ) -> None:
        self._n_labels, self._level = labels.shape[1], level
        r = correlate_columns(frequencies, labels, weights)  # (n, 1 + P)
        self.correlation: Floats = r[:, 0].copy()
        strengths = np.abs(r)
        if signs is not None:
            strengths[np.sign(r) * signs[:, None] < 0] = 0
        self.strength: Floats = strengths[:, 0]
        observed, permuted = self.strength, strengths[:, 1:]
        self._observed = np.sort(observed)
        # of each round: sorted strengths of its k-mers with permuted labels, and q-values, which fall with strength;
        # the first q-value is that of k-mers that are weaker than all observed ones
        self._rounds: list[tuple[Floats, Floats]] = []
        significant = np.zeros(len(observed), np.bool_)
        while True:
            of_round = np.sort(permuted[~significant], axis=None)
            q_values = np.minimum.accumulate(self._compute_raw_q_values(self._observed, of_round))
            self._rounds.append((of_round, np.concatenate([[1.0], q_values])))
            now_significant = self.compute_q_values(self.strength) <= level
            if (significant == now_significant).all():
                return
            significant = now_significant

    def compute_q_values(self, correlation: Floats) -> Floats:
        """Return the q-values of k-mers with these correlations in their tested direction."""
        abs_r = np.abs(correlation)
        weaker = np.searchsorted(self._observed, abs_r + _ROUNDING, side="right")
        q_values = np.ones(len(abs_r))
        for permuted, of_observed in self._rounds:
            of_round = np.minimum(of_observed[weaker], self._compute_raw_q_values(abs_r, permuted))
            q_values = np.where(q_values > self._level, of_round, q_values)
        return q_values

    def _compute_raw_q_values(self, abs_r: Floats, permuted: Floats) -> Floats:
        """Return the expected number of k-mers that are as strong by chance, divided by the observed number or 1."""
        n_by_chance = len(permuted) - np.searchsorted(permuted, abs_r - _ROUNDING)
        n_observed = len(self._observed) - np.searchsorted(self._observed, abs_r - _ROUNDING)
        return np.asarray((1 + n_by_chance) / self._n_labels / np.maximum(n_observed, 1))
