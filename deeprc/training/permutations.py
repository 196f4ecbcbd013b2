"""Permutations of labels, and the null distribution of the strongest k-mer in a search for motifs.

Repertoires of one donor are not independent, so labels are permuted between donors, not between repertoires.

Letters: B repertoires, D donors, S repertoires of a donor, T outputs, M k-mers of one spacing, P permutations, n
k-mers. The strength of a k-mer is |r| times the square root of the number of donors, where r is its correlation with
the label.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats, Integers

__all__ = ["N_PERMUTATIONS", "PermutationNull", "permute_labels"]

N_PERMUTATIONS = 100
_MIN_SPREAD = 1e-6  # a smaller standard deviation of the highest strengths, relative to their mean, is rounding
_MAX_STRATA = 6  # largest number of groups of donors with similar sizes, within which labels are permuted
_MIN_STRATUM = 10


def permute_labels(
    labels: Floats, sizes: Integers, donors: Integers, n_permutations: int, rng: np.random.Generator
) -> Floats:
    """Return the true labels, and P permutations of them, (B, T, 1 + P).

    Donors whose repertoires all have the same label exchange it. Other donors exchange all their labels with donors
    that have the same number of repertoires, and the labels of each donor are shuffled among the donor's repertoires.
    So the numbers of labels per donor do not change, and labels that vary only within donors are permuted only within
    donors. If labels are independent of sequences, all these permutations are equally probable, even if repertoires of
    one donor are alike: tests are exact (Winkler et al., NeuroImage 2015, 123:253-268).

    Labels are exchanged between donors with similar numbers of sequences, because rare k-mers occur only in large
    repertoires: if labels depend on size, they would otherwise be significant.

    Parameters
    ----------
    labels
        Labels, one column for each output, (B, T).
    sizes
        Number of sequences of each repertoire, (B,).
    donors
        Index of each repertoire's donor, (B,), from 0 in the order in which donors first occur.
    n_permutations
        Number of permutations, P.
    rng
        Random generator of the permutations.
    """
    blocks = _list_blocks(labels, donors)
    totals = np.bincount(donors, sizes).astype(np.int64)
    permuted = np.repeat(labels[:, :, None], 1 + n_permutations, axis=2)
    for k in range(1, 1 + n_permutations):
        for block in blocks:
            permuted[block.repertoires, :, k] = labels[block.draw_sources(totals[block.donors], rng)]
    return permuted


class _Block(NamedTuple):
    """Donors that exchange their labels with each other.

    Attributes
    ----------
    donors
        Indices of the donors, (D,).
    segments
        Position in `donors` of the donor of each of `repertoires`.
    repertoires
        Indices of their repertoires, donor by donor.
    n_labels
        Number of labels that a donor exchanges: 1 if all repertoires of the donor have the same label, else S.
    """

    donors: Integers
    segments: Integers
    repertoires: Integers
    n_labels: int

    def draw_sources(self, totals: Integers, rng: np.random.Generator) -> Integers:
        """Return the repertoires whose labels those of the block get.

        `totals` are the numbers of sequences of the donors, (D,).
        """
        order = _permute_within_sizes(totals, rng)
        if self.n_labels == 1:
            first = self.repertoires[np.searchsorted(self.segments, np.arange(len(self.donors)))]
            return np.asarray(first[order][self.segments])
        table = self.repertoires.reshape(len(self.donors), self.n_labels)  # (D, S)
        return rng.permuted(table[order], axis=1).ravel()


def _list_blocks(labels: Floats, donors: Integers) -> list[_Block]:
    """Return a block of the donors whose labels do not vary, and a block for each number of repertoires of others."""
    by_donor = np.argsort(donors, kind="stable")
    n_of = np.bincount(donors)
    starts = np.cumsum(n_of) - n_of
    ordered = labels[by_donor]
    varies = (np.maximum.reduceat(ordered, starts) > np.minimum.reduceat(ordered, starts)).any(axis=1)  # (D,)
    n_labels = np.where(varies, n_of, 1)
    blocks = []
    for n in np.unique(n_labels).tolist():
        members = np.flatnonzero(n_labels == n)
        repertoires = by_donor[np.isin(donors[by_donor], members)]
        blocks.append(_Block(members, np.searchsorted(members, donors[repertoires]), repertoires, n))
    return blocks


def _permute_within_sizes(sizes: Integers, rng: np.random.Generator) -> Integers:
    """Return a random order of donors, (D,), in which each is replaced by one with a similar size."""
    by_size = np.lexsort((rng.random(len(sizes)), sizes))
    order = np.empty(len(sizes), np.int64)
    for stratum in np.array_split(by_size, max(1, min(_MAX_STRATA, len(sizes) // _MIN_STRATUM))):
        order[stratum] = rng.permutation(stratum)
    return order


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
        self._root = n_donors**0.5
        self._strongest = {k: np.zeros(N_PERMUTATIONS) for k in ks}

    def add_strongest(self, k: int, largest: NDArray[np.float32]) -> None:
        """Add the largest absolute correlation of k-mers of k residues with each of the permuted labels, (P,)."""
        self._strongest[k] = np.maximum(self._strongest[k], [self._root * correlation for correlation in largest])

    def compute_p_values(self, k: int, correlation: Floats) -> Floats:
        """Return the probability that the strongest of all k-mers is as strong as each of these, (n,).

        It is computed from a Gumbel distribution with the mean and the variance of the highest strengths in the
        permutations. It is at least the share of permutations that reach the strength, and is multiplied by the number
        of values of k (Bonferroni).
        """
        highest, strength = self._strongest[k], np.abs(correlation) * self._root
        scale = max(highest.std(ddof=1) * 6**0.5 / np.pi, _MIN_SPREAD * highest.mean())
        beyond = (strength - highest.mean()) / max(scale, _MIN_SPREAD) + np.euler_gamma
        gumbel = -np.expm1(-np.exp(np.clip(-beyond, -700, 700)))
        share_reached = 1 - np.searchsorted(np.sort(highest), strength) / len(highest)
        return np.asarray(np.minimum(len(self._strongest) * np.maximum(gumbel, share_reached), 1))
