"""Null distribution of the strongest k-mer in a search for motifs, from permuted labels.

Letters: P permutations, n k-mers. The strength of a k-mer is |r| times the square root of the number of donors, where r
is its correlation with the label.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats

__all__ = ["N_PERMUTATIONS", "PermutationNull"]

N_PERMUTATIONS = 100
_ROUNDING = 1e-5  # relative; strengths that differ by less are equal, because those of permutations have 32 bits
_MIN_SPREAD = 1e-6  # a smaller standard deviation of the highest strengths, relative to their mean, is rounding


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
        share_reached = 1 - np.searchsorted(np.sort(highest), strength * (1 - _ROUNDING)) / len(highest)
        n_ks = len(self._max_strengths)
        return np.asarray(np.minimum(n_ks * np.maximum(gumbel_tail, share_reached), 1))
