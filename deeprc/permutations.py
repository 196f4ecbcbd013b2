"""Permutations of labels between donors with similar numbers of sequences.

Repertoires of one donor are not independent, so labels are permuted between donors, not between repertoires.

Letters: B repertoires, D donors, S repertoires of a donor, T outputs, P permutations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deeprc.arrays import Floats, Integers

__all__ = ["permute_labels"]

_MAX_STRATA = 6  # largest number of groups of donors with similar sizes, within which labels are permuted
_MIN_STRATUM = 10  # smallest number of donors in one of several strata, but for 12 to 19 donors, who have two
_MIN_DIVIDED = 12  # smallest number of donors with more than one stratum


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
    """Return a random order of donors, (D,), in which each is replaced by one with a similar size.

    The number of strata is even, so donors of two classes of equal numbers, one of which has the larger repertoires,
    exchange no labels between the classes.
    """
    by_size = np.lexsort((rng.random(len(sizes)), sizes))
    order = np.empty(len(sizes), np.int64)
    fewest = 2 if len(sizes) >= _MIN_DIVIDED else 1
    n_strata = max(fewest, min(_MAX_STRATA, len(sizes) // (2 * _MIN_STRATUM) * 2))
    for stratum in np.array_split(by_size, n_strata):
        order[stratum] = rng.permutation(stratum)
    return order
