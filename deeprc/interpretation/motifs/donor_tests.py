"""Whether donors of a class carry a motif at a higher rate than others: the test of its association.

It looks only at repertoires that the model has not learned from. The motif was found without their labels, so these
are as random as before. The unit is the donor, and a donor's number is the rate of the motif: the share of the donor's
sequences that carry it. Ranks of rates find a motif that all donors carry, some more often, as well as one that few
carry at all; and deep repertoires do not have a higher rate only because they are deep.

Letters: B repertoires, D donors, M motifs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu, rankdata, spearmanr, wilcoxon

__all__ = ["donor_rates", "goes_with_class", "goes_with_number"]

_MAX_EXACT = 60  # donors, up to which p-values are exact
_ROUNDING = 1e-9

Floats = NDArray[np.float64]


def donor_rates(counts: NDArray[np.int64], sizes: NDArray[np.int64], donors: NDArray[np.int64]) -> dict[int, float]:
    """Return the share of the sequences of each donor that carry a motif; of donors that have sequences.

    Parameters
    ----------
    counts, sizes, donors
        The number of sequences with the motif, of all sequences, and the donor of each repertoire, (B,).
    """
    names, place = np.unique(donors, return_inverse=True)
    n_with, n = np.bincount(place, counts), np.bincount(place, sizes)
    return {int(names[i]): float(n_with[i] / n[i]) for i in np.flatnonzero(n > 0)}


def goes_with_class(own: dict[int, float], other: dict[int, float]) -> float:
    """Return the one-sided p-value that rates of donors are higher in a class, from the donors' rates in both.

    Where most donors have repertoires of the class and others, it is Wilcoxon's signed-rank test of those donors; else
    the test of Mann and Whitney of the donors who have repertoires of one kind only. Of up to 60 donors the p-value is
    exact, also where rates are equal.

    Returns
    -------
    NaN where there is nobody to compare.
    """
    paired = own.keys() & other.keys()
    if 2 * len(paired) > len(own.keys() | other.keys()):
        return _signed_rank_p(np.array([own[donor] - other[donor] for donor in sorted(paired)]))
    first = np.array([rate for donor, rate in own.items() if donor not in paired])
    second = np.array([rate for donor, rate in other.items() if donor not in paired])
    return _rank_sum_p(first, second) if len(first) and len(second) else float("nan")


def goes_with_number(rates: Floats, values: Floats) -> float:
    """Return the one-sided p-value that donors with higher numbers have higher rates, (D,) each: Spearman's test."""
    if len(rates) < 3 or np.ptp(rates) == 0 or np.ptp(values) == 0:
        return 1.0 if len(rates) else float("nan")
    return float(spearmanr(rates, values, alternative="greater").pvalue)


def _rank_sum_p(first: Floats, second: Floats) -> float:
    """Return the probability that the ranks of the first have so high a sum, or a higher one."""
    if np.ptp(np.append(first, second)) == 0:
        return 1.0
    n, n_all = len(first), len(first) + len(second)
    if n_all > _MAX_EXACT:
        return float(mannwhitneyu(first, second, alternative="greater", method="asymptotic").pvalue)
    ranks = _whole_ranks(np.append(first, second))
    ways = np.zeros((n + 1, int(ranks.sum()) + 1))  # to choose so many donors with this sum
    ways[0, 0] = 1.0
    for rank in ranks.tolist():
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank].copy()
    return _upper_tail(ways[n], int(ranks[:n].sum()))


def _signed_rank_p(differences: Floats) -> float:
    """Return the probability that positive differences have so high a sum of ranks; zeros are left out."""
    differences = differences[np.abs(differences) > _ROUNDING * np.abs(differences).max(initial=0.0)]
    if len(differences) == 0:
        return 1.0
    if len(differences) > _MAX_EXACT:
        return float(wilcoxon(differences, alternative="greater", method="asymptotic").pvalue)
    ranks = _whole_ranks(np.abs(differences))
    ways = np.zeros(int(ranks.sum()) + 1)
    ways[0] = 1.0
    for rank in ranks.tolist():
        ways[rank:] += ways[: len(ways) - rank].copy()
    return _upper_tail(ways, int(ranks[differences > 0].sum()))


def _whole_ranks(values: Floats) -> NDArray[np.int64]:
    """Return twice the ranks; rates that differ by rounding only are equal."""
    return np.asarray(np.rint(2 * rankdata(np.round(values, 12))), np.int64)


def _upper_tail(ways: Floats, total: int) -> float:
    return float(ways[total:].sum() / ways.sum())
