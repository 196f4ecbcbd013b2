"""Tests of k-mers by permuted labels: the strongest of all k-mers, and false discovery rates of a few of them.

Letters: B repertoires, n k-mers, P permutations. The strength of a k-mer is |r| times the square root of the number of
donors, where r is its correlation with the label.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats, Integers
from deeprc.training.kmer_correlations import correlate_columns

__all__ = ["N_DISCOVERY_PERMUTATIONS", "N_PERMUTATIONS", "FalseDiscoveryTest", "PermutationNull"]

N_DISCOVERY_PERMUTATIONS = 2000
"""Number of permutations of the labels for the false discovery rates."""

_ROUNDING = 1e-12  # correlations that differ by less are equal
N_PERMUTATIONS = 100
"""Number of permutations of the labels for the strongest k-mer."""

_RELATIVE_ROUNDING = 1e-5  # strengths that differ by a smaller share are equal: those of permutations have 32 bits
_MIN_SPREAD = 1e-6  # a smaller standard deviation of the highest strengths, relative to their mean, is rounding


class FalseDiscoveryTest:
    """A permutation test of several k-mers together, which gives each k-mer a q-value, its false discovery rate.

    The q-value is a ratio (the rate of Benjamini and Hochberg). Its denominator is the number of k-mers that are at
    least as correlated with the true labels, and its numerator the mean number with permuted labels. So if several
    k-mers are associated with the label, each needs less evidence than if it were alone.

    k-mers with a q-value of at most the level are significant. Only the other k-mers are correlated by chance. So the
    numerator is then multiplied by their share of all k-mers, as in the adaptive rate of Benjamini, Krieger and
    Yekutieli. This may make more k-mers significant. A k-mer keeps the q-value with which it became significant.
    Without any signal, the probability that some k-mer reaches the level is about the level.

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
        self._permuted: Floats = np.sort(strengths[:, 1:], axis=None)  # (n * P,)

    def compute_q_values(self, correlation: Floats) -> Floats:
        """Return the q-values of all n k-mers, or of m of them, from their correlations, (m,).

        If the sequences of a motif are left out, correlations are smaller than the first ones, `correlation`. So k-mers
        are counted by the given correlations: the first ones are no evidence for what is left.

        Parameters
        ----------
        correlation
            Correlations in the tested direction, (m,), for example `strength`.
        """
        strength = np.abs(correlation)
        n_permuted = _count_at_least(self._permuted, strength)  # in all permutations together
        n_observed = _count_at_least(np.sort(strength), strength)
        weakest_first = np.argsort(strength, kind="stable")
        q_values, n_significant = np.ones(len(strength)), 0
        while True:
            share_of_others = 1 - n_significant / len(self.correlation)
            round_q_values = (1 + share_of_others * n_permuted) / self._n_labels / n_observed
            # a stronger k-mer has no larger q-value than a weaker one
            round_q_values[weakest_first] = np.minimum.accumulate(round_q_values[weakest_first])
            round_q_values[~(strength > 0)] = 1
            q_values = np.where(q_values > self._level, np.minimum(round_q_values, 1), q_values)
            n_before, n_significant = n_significant, int((q_values <= self._level).sum())
            if n_significant == n_before:
                return q_values


def _count_at_least(ordered: Floats, limits: Floats) -> Integers:
    """Return how many of some numbers in rising order are at least as large as each limit, (m,)."""
    return np.asarray(len(ordered) - np.searchsorted(ordered, limits - _ROUNDING))


class PermutationNull:
    """Null distribution of the strength of the strongest k-mer, for each k, if labels are independent of sequences.

    Parameters
    ----------
    ks
        Values of k, the number of residues of a k-mer.
    n_donors
        Number of donors.
    """

    def __init__(self, ks: Iterable[int], n_donors: int) -> None:
        self._sqrt_n_donors = n_donors**0.5
        self._max_strengths = {k: np.zeros(N_PERMUTATIONS) for k in ks}  # of all k-mers, with each permutation

    def add_strongest(self, k: int, max_correlations: NDArray[np.float32]) -> None:
        """Add the largest absolute correlation of k-mers of k residues with each of the permuted labels, (P,)."""
        strengths = self._sqrt_n_donors * max_correlations.astype(np.float64)
        self._max_strengths[k] = np.maximum(self._max_strengths[k], strengths)

    def compute_p_values(self, k: int, correlation: Floats) -> Floats:
        """Return the probability that the strongest of all k-mers is as strong as each of these, (n,).

        It is computed from a Gumbel distribution with the mean and the variance of the highest strengths in the
        permutations. It is at least the share of permutations that reach the strength, and is multiplied by the number
        of values of k (Bonferroni).
        """
        highest, strength = self._max_strengths[k], np.abs(correlation) * self._sqrt_n_donors
        scale = max(highest.std(ddof=1) * 6**0.5 / np.pi, _MIN_SPREAD * highest.mean())
        reduced_variate = (strength - highest.mean()) / max(scale, _MIN_SPREAD) + np.euler_gamma
        gumbel_tail = -np.expm1(-np.exp(np.clip(-reduced_variate, -700, 700)))  # 1 - exp(-exp(-reduced variate))
        share_reached = 1 - np.searchsorted(np.sort(highest), strength * (1 - _RELATIVE_ROUNDING)) / len(highest)
        n_ks = len(self._max_strengths)
        return np.asarray(np.minimum(n_ks * np.maximum(gumbel_tail, share_reached), 1))
