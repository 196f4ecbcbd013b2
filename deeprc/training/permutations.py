"""Permuted labels, and how strong the strongest k-mer is with them: the null distribution of a search for motifs.

Letters: B repertoires, M k-mers of one pattern, P permutations, n k-mers. The strength of a k-mer is |r| times the
square root of the number of repertoires, where r is its correlation with the label.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["N_PERMUTATIONS", "PermutationNull", "permute_labels", "permute_within_sizes"]

Floats = NDArray[np.float64]
Sizes = NDArray[np.int64]

N_PERMUTATIONS = 100
_MIN_SPREAD = 1e-6  # a smaller spread of the highest strengths, as a share of their mean, is rounding
_MAX_STRATA = 6  # of repertoires of about the same size, within which labels are permuted
_MIN_STRATUM = 10


def permute_within_sizes(sizes: Sizes, rng: np.random.Generator) -> Sizes:
    """Return a random order of the repertoires, (B,), in which each is replaced by one of about the same size.

    Rare k-mers are in large repertoires only: where labels go with size, free permutations would call them significant.
    """
    by_size = np.lexsort((rng.random(len(sizes)), sizes))
    order = np.empty(len(sizes), np.int64)
    for stratum in np.array_split(by_size, max(1, min(_MAX_STRATA, len(sizes) // _MIN_STRATUM))):
        order[stratum] = rng.permutation(stratum)
    return order


def permute_labels(sizes: Sizes, n_permutations: int, rng: np.random.Generator) -> list[Sizes]:
    """Return the order of the labels as it is, and so many random orders, each (B,); see `permute_within_sizes`."""
    return [np.arange(len(sizes)), *(permute_within_sizes(sizes, rng) for _ in range(n_permutations))]


class PermutationNull:
    """How strong the strongest k-mer is if labels have nothing to do with sequences, for each k separately.

    Parameters
    ----------
    sizes
        The values of k, the number of residues of a k-mer.
    n
        The number of repertoires.
    """

    def __init__(self, sizes: Iterable[int], n: int) -> None:
        self._root = n**0.5
        self.highest = {k: np.zeros(N_PERMUTATIONS) for k in sizes}

    def add(self, size: int, permuted: Sequence[NDArray[np.float32]]) -> None:
        """Add the correlations of k-mers of `size` residues with each of the P permuted labels, (M,) each."""
        highest = [self._root * max(r.max(), -r.min()) for r in permuted]
        self.highest[size] = np.maximum(self.highest[size], highest)

    def p_value(self, size: int, correlation: Floats) -> Floats:
        """Return the probability that the strongest of all k-mers is as strong as each of these, (n,).

        It is computed from a Gumbel distribution with the mean and the variance of the highest strengths in the
        permutations, is at least the share of permutations that reach the strength, and is multiplied by the number of
        sizes (Bonferroni).
        """
        highest, strength = self.highest[size], np.abs(correlation) * self._root
        scale = max(highest.std(ddof=1) * 6**0.5 / np.pi, _MIN_SPREAD * highest.mean())
        beyond = (strength - highest.mean()) / max(scale, _MIN_SPREAD) + np.euler_gamma
        gumbel = -np.expm1(-np.exp(np.clip(-beyond, -700, 700)))
        seen = 1 - np.searchsorted(np.sort(highest), strength) / len(highest)
        return np.asarray(np.minimum(len(self.highest) * np.maximum(gumbel, seen), 1))
