"""Tests of association: whether donors of a class carry a motif at a higher rate than others.

They use only repertoires that the model has not learned from. The motif was found without their labels, so the test is
valid. The unit is the donor. The rate of a donor is the share of the donor's sequences that carry the motif. The tests
use ranks of rates, so they find a motif that all donors carry, but some more often, and a motif that only few donors
carry. Unlike a count, the rate is not higher only because a repertoire is large.

Letters: B repertoires, D donors, M motifs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu, spearmanr, wilcoxon

from deeprc.arrays import Floats
from deeprc.baselines.association_tests import compute_double_ranks

__all__ = ["compute_class_p_value", "compute_donor_rates", "compute_spearman_p_value"]

_MAX_EXACT = 60  # largest number of donors for which p-values are exact
_ROUNDING = 1e-9
_DIGITS = 12  # rates that differ only in later digits are equal


def compute_donor_rates(
    counts: NDArray[np.int64], sizes: NDArray[np.int64], donors: NDArray[np.int64]
) -> dict[int, float]:
    """Return the share of sequences that carry a motif, for each donor with sequences.

    Parameters
    ----------
    counts, sizes, donors
        Number of sequences with the motif, number of all sequences, and index of the donor of each repertoire, (B,)
        each.
    """
    names, donor_index = np.unique(donors, return_inverse=True)
    n_with, n = np.bincount(donor_index, counts), np.bincount(donor_index, sizes)
    return {int(names[i]): float(n_with[i] / n[i]) for i in np.flatnonzero(n > 0)}


def compute_class_p_value(rates: dict[int, float], other_rates: dict[int, float]) -> float:
    """Return the one-sided p-value of the test that donors of a class have higher rates, from the rates by donor.

    If most donors have repertoires of both kinds, it is Wilcoxon's signed-rank test of these donors; otherwise, it is
    the test of Mann and Whitney of the donors with repertoires of one kind only. With up to 60 donors the p-value is
    exact, even if rates are equal.

    Returns
    -------
    The p-value; NaN if there are no donors to compare.
    """
    paired = rates.keys() & other_rates.keys()
    if 2 * len(paired) > len(rates.keys() | other_rates.keys()):
        return _compute_signed_rank_p(np.array([rates[donor] - other_rates[donor] for donor in sorted(paired)]))
    first = np.array([rate for donor, rate in rates.items() if donor not in paired])
    second = np.array([rate for donor, rate in other_rates.items() if donor not in paired])
    return _compute_rank_sum_p(first, second) if len(first) and len(second) else float("nan")


def compute_spearman_p_value(rates: Floats, values: Floats) -> float:
    """Return the one-sided p-value of Spearman's test that donors with higher numbers have higher rates, (D,) each."""
    if len(rates) < 3 or np.ptp(rates) == 0 or np.ptp(values) == 0:
        return 1.0 if len(rates) else float("nan")
    return float(spearmanr(rates, values, alternative="greater").pvalue)


def _compute_rank_sum_p(first: Floats, second: Floats) -> float:
    """Return the probability that the sum of the ranks of `first` is at least as high by chance."""
    if np.ptp(np.append(first, second)) == 0:
        return 1.0
    n, n_all = len(first), len(first) + len(second)
    if n_all > _MAX_EXACT:
        return float(mannwhitneyu(first, second, alternative="greater", method="asymptotic").pvalue)
    ranks = compute_double_ranks(np.round(np.append(first, second), _DIGITS))
    n_ways = np.zeros((n + 1, int(ranks.sum()) + 1))  # number of ways to choose so many donors with this sum
    n_ways[0, 0] = 1.0
    for rank in ranks.tolist():
        n_ways[1:, rank:] += n_ways[:-1, : n_ways.shape[1] - rank].copy()
    return _compute_upper_tail(n_ways[n], int(ranks[:n].sum()))


def _compute_signed_rank_p(differences: Floats) -> float:
    """Return the probability that the rank sum of positive differences is at least as high; zeros are left out."""
    differences = differences[np.abs(differences) > _ROUNDING * np.abs(differences).max(initial=0.0)]
    if len(differences) == 0:
        return 1.0
    if len(differences) > _MAX_EXACT:
        return float(wilcoxon(differences, alternative="greater", method="asymptotic").pvalue)
    ranks = compute_double_ranks(np.round(np.abs(differences), _DIGITS))
    n_ways = np.zeros(int(ranks.sum()) + 1)
    n_ways[0] = 1.0
    for rank in ranks.tolist():
        n_ways[rank:] += n_ways[: len(n_ways) - rank].copy()
    return _compute_upper_tail(n_ways, int(ranks[differences > 0].sum()))


def _compute_upper_tail(n_ways: Floats, total: int) -> float:
    return float(n_ways[total:].sum() / n_ways.sum())
