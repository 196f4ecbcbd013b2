"""What chance gives a search for motifs: labels permuted, and how strong the strongest motif is then.

Letters: B repertoires, M k-mers of a pattern of places, P permutations, n k-mers. The strength of a k-mer is |r| times
the square root of the number of repertoires.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["N_PERMUTATIONS", "PermutationNull", "label_permutations", "permutation"]

Floats = NDArray[np.float64]
Sizes = NDArray[np.int64]

N_PERMUTATIONS = 100
_NARROWEST = 1e-6  # spread of the highest strengths, of their mean, below which it is rounding
_N_STRATA = 6  # by size, within which labels are permuted
_SMALLEST_STRATUM = 10


def permutation(sizes: Sizes, rng: np.random.Generator) -> Sizes:
    """Return a random order of repertoires in which each place has one of about the same number of sequences, (B,).

    Rare k-mers are in large repertoires only: where labels go with size, free permutations would call them significant.
    """
    by_size = np.lexsort((rng.random(len(sizes)), sizes))
    order = np.empty(len(sizes), np.int64)
    for stratum in np.array_split(by_size, max(1, min(_N_STRATA, len(sizes) // _SMALLEST_STRATUM))):
        order[stratum] = rng.permutation(stratum)
    return order


def label_permutations(sizes: Sizes, n_permutations: int, rng: np.random.Generator) -> list[Sizes]:
    """Return the order of the repertoires as it is, and so many random ones, each (B,); see `permutation`."""
    return [np.arange(len(sizes)), *(permutation(sizes, rng) for _ in range(n_permutations))]


class PermutationNull:
    """How strong the strongest k-mer is where labels tell nothing, for each number of residues by itself.

    Parameters
    ----------
    sizes
        The numbers of residues.
    n
        Repertoires.
    """

    def __init__(self, sizes: Iterable[int], n: int) -> None:
        self._root = n**0.5
        self.highest = {k: np.zeros(N_PERMUTATIONS) for k in sizes}

    def note(self, size: int, permuted: Sequence[NDArray[np.float32]]) -> None:
        """Take in the correlations, (M,), of k-mers of a size with each order of the labels."""
        highest = [self._root * max(r.max(), -r.min()) for r in permuted]
        self.highest[size] = np.maximum(self.highest[size], highest)

    def p_value(self, size: int, correlation: Floats) -> Floats:
        """Return how likely the strongest k-mer of all is as strong as each of this size, (n,).

        From a Gumbel distribution with the moments of the highest, and not below the share of them that is as strong;
        times the number of sizes.
        """
        highest, strength = self.highest[size], np.abs(correlation) * self._root
        scale = max(highest.std(ddof=1) * 6**0.5 / np.pi, _NARROWEST * highest.mean())
        beyond = (strength - highest.mean()) / max(scale, _NARROWEST) + np.euler_gamma
        gumbel = -np.expm1(-np.exp(np.clip(-beyond, -700, 700)))
        seen = 1 - np.searchsorted(np.sort(highest), strength) / len(highest)
        return np.asarray(np.minimum(len(self.highest) * np.maximum(gumbel, seen), 1))
