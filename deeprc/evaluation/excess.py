"""The excess of sequences over chance at a score, which makes lists with different scores comparable.

The **excess** at a score is the share of the sequences with about this score that chance does not explain: 1 minus the
local false discovery rate (Efron, Large-Scale Inference, 2010). For a list of sequences from positive repertoires,
negative repertoires show what chance gives: if they have 20 sequences where positive ones have 100, the excess is 0.8.
For clones and their p-values, chance is the hypergeometric distribution of the number of positive carriers. If a model
is overfitted to its training repertoires, their excess is too large, and held-out repertoires do not confirm it, see
`estimate_confirmed_share`.

Letters: n sequences of a list, M of the null distribution, G bins, H repertoires.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import hypergeom, mannwhitneyu, norm
from sklearn.isotonic import IsotonicRegression

from deeprc.arrays import Floats, Integers

__all__ = [
    "MIN_CONFIRMING",
    "ExpectedClones",
    "choose_bin_ends",
    "compute_excess_shares",
    "compute_expected_clones",
    "estimate_confirmed_share",
    "find_tie_ends",
    "interpolate_excess",
]

_MIN_BIN = 10
_GROWTH = 1.2  # ratio of the ranks at which two consecutive bins end

MIN_CONFIRMING = 5
"""Smallest number of repertoires of each class that can confirm an excess."""


def compute_excess_shares(
    scores: Floats, null_scores: Floats, null_weights: Floats, *, lowest_null: float = -np.inf
) -> Floats:
    """Return the excess of each sequence of a list, (n,), which never rises with the rank.

    1. The ranks are divided into bins, see `choose_bin_ends`.
    2. The excess of a bin is (n - c - 1) / n, where n is its number of sequences, and c the number by chance. For
       example, a bin of 10 sequences, 4 of them by chance, has the excess 0.5. Because of the 1, a bin without chance
       sequences is not certain.
    3. Isotonic regression makes the excess fall with the rank.
    4. Between the middles of the bins, the excess is interpolated.

    Parameters
    ----------
    scores
        The scores of the list, the highest first, (n,).
    null_scores, null_weights
        The scores that chance gives, in any order, and how many sequences each stands for, (M,).
    lowest_null
        Lowest score for which null scores are known; below it, the excess is 0.
    """
    n = len(scores)
    if n == 0:
        return np.zeros(0)
    ends = choose_bin_ends(n)
    starts = np.concatenate([[0], ends[:-1]])
    observed = np.diff(ends, prepend=0)
    chance = np.diff(_count_by_chance(scores, null_scores, null_weights)[ends], prepend=0.0)
    excess = np.clip((observed - chance - 1) / observed, 0.0, 1.0)
    excess[scores[ends - 1] < lowest_null] = 0.0
    bins = np.arange(len(ends))
    excess = IsotonicRegression(increasing=False).fit(bins, excess, sample_weight=observed).predict(bins)
    return np.asarray(np.interp(np.arange(n), (starts + ends - 1) / 2, excess), np.float64)


def interpolate_excess(scores: Floats, list_scores: Floats, list_excess: Floats) -> Floats:
    """Return the excess of sequences with some scores, (m,), from a list with its scores and its excess, (n,) each.

    Between two scores of the list it is interpolated; of equal scores in the list, the highest excess counts. Below the
    lowest score it is 0.
    """
    if len(list_scores) == 0:
        return np.zeros(len(scores))
    excess = np.interp(scores, list_scores[::-1], list_excess[::-1])
    return np.where(scores < list_scores[-1], 0.0, excess)


def estimate_confirmed_share(evidence: Floats, positive: NDArray[np.bool_]) -> float:
    """Return which share of a list's excess is confirmed by repertoires from which the list was not learned.

    If the list has a signal, these repertoires have more evidence if they are positive. The test of Mann and Whitney
    compares the ranks of the evidence of positive and negative repertoires, and gives the difference in standard
    deviations, z. The confirmed share is 1 - 1 / z^2, and 0 if z is at most 1. The reason: chance alone gives z^2 a
    mean of 1, so z^2 - 1 estimates the part of z^2 that is signal. A list without any signal has the share 0 in five of
    six cases.

    Parameters
    ----------
    evidence
        Mean excess of the sequences of each repertoire, or of each donor, by the list, (H,).
    positive
        Whether each of them is positive, (H,).

    Returns
    -------
    The share; 1 if a class has fewer than 5 repertoires or donors, because so few can confirm nothing.
    """
    if min(positive.sum(), (~positive).sum()) < MIN_CONFIRMING:
        return 1.0
    if (evidence == evidence[0]).all():
        return 0.0
    test = mannwhitneyu(
        evidence[positive], evidence[~positive], alternative="greater", method="asymptotic", use_continuity=False
    )
    z = float(norm.isf(test.pvalue))
    return 1 - 1 / z**2 if z > 1 else 0.0


class ExpectedClones(NamedTuple):
    """Clones of M kinds, each with a number of positive carriers and a number of all carriers.

    Attributes
    ----------
    n_positive, n_carriers
        Number of positive carriers of each kind, and of all carriers, (M,) each.
    n_clones
        Expected number of clones of each kind, (M,).
    """

    n_positive: Integers
    n_carriers: Integers
    n_clones: Floats


def compute_expected_clones(n_clones: Mapping[int, int], n_positive: int, n_repertoires: int) -> ExpectedClones:
    """Return the expected number of clones for each number of carriers, if labels are exchanged at random.

    Parameters
    ----------
    n_clones
        The number of clones by their number of carriers.
    n_positive, n_repertoires
        The number of positive repertoires, and of all.
    """
    positive, carriers, expected = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)], [np.zeros(0)]
    for n_carriers, n in sorted(n_clones.items()):
        smallest, largest = max(0, n_carriers - (n_repertoires - n_positive)), min(n_carriers, n_positive)
        possible = np.arange(smallest, largest + 1)
        positive.append(possible)
        carriers.append(np.full(len(possible), n_carriers))
        expected.append(n * hypergeom.pmf(possible, n_repertoires, n_positive, n_carriers))
    return ExpectedClones(np.concatenate(positive), np.concatenate(carriers), np.concatenate(expected))


def choose_bin_ends(n: int) -> Integers:
    """Return the ranks at which bins of n sequences end, (G,); the last is n.

    The first bin ends at rank 10. Each of the others ends at 1.2 times the rank at which the bin before it ends, and
    has at least 10 ranks. A last bin with fewer than 10 ranks is joined with the one before it.
    """
    ends = [min(_MIN_BIN, n)]
    while ends[-1] < n:
        ends.append(min(n, max(ends[-1] + _MIN_BIN, int(ends[-1] * _GROWTH))))
    if len(ends) > 1 and ends[-1] - ends[-2] < _MIN_BIN:
        del ends[-2]
    return np.array(ends)


def find_tie_ends(scores: Floats) -> Integers:
    """Return the ranks at which groups of equal scores end; the scores are sorted."""
    return np.asarray(1 + np.flatnonzero(np.append(np.diff(scores) != 0, True)), np.int64)


def _count_by_chance(scores: Floats, null_scores: Floats, null_weights: Floats) -> Floats:
    """Return the number of sequences that chance explains before each rank, from 0 to n, (n + 1,).

    Within a group of equal scores, chance is spread evenly.
    """
    order = np.argsort(-null_scores, kind="stable")
    so_far = np.concatenate([[0.0], np.cumsum(null_weights[order])])
    ends = find_tie_ends(scores)
    at_ends = so_far[np.searchsorted(-null_scores[order], -scores[ends - 1], side="right")]
    ranks = np.arange(len(scores) + 1)
    return np.asarray(np.interp(ranks, np.append(0, ends), np.append(0.0, at_ends)), np.float64)
