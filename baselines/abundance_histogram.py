"""The abundances of a repertoire's clones as a histogram, and how many clones a sample of given size has.

A clone is a junction with its V and J gene. Rows of one clone are merged first.

Letters: B repertoires, M clones of a repertoire, A different abundances in it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Integers
from deeprc.compilation import njit
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.clones.distinct import sum_clone_abundances
from deeprc.datasets.dataset import Repertoire, RepertoireDataset

__all__ = [
    "AbundanceHistogram",
    "compute_rarefied_richness",
    "compute_shannon_entropy",
    "estimate_richness",
    "load_histograms",
]

_NEGLIGIBLE = 1e-18  # probability that a clone is missed: 1 minus this rounds to 1
_MAX_FACTORS = 1000  # largest number of factors of a probability that are multiplied one by one


@dataclass(frozen=True)
class AbundanceHistogram:
    """The number of clones of a repertoire with each abundance, from which all measures of diversity follow.

    Attributes
    ----------
    abundances
        The different abundances in rising order, (A,).
    n_clones
        Number of clones with each abundance, (A,).
    """

    abundances: NDArray[Any]
    n_clones: Integers

    @classmethod
    def from_abundances(cls, abundances: NDArray[Any]) -> AbundanceHistogram:
        """Count how many of M clones with these abundances, (M,), have each abundance."""
        return cls(*np.unique(abundances, return_counts=True))

    @classmethod
    def from_repertoire(cls, repertoire: Repertoire) -> AbundanceHistogram:
        """Count how many clones of a repertoire have each abundance, which is the sum of their counts."""
        return cls.from_abundances(sum_clone_abundances(repertoire, list(repertoire.sequences.genes)))

    @property
    def richness(self) -> int:
        """Number of all clones, M."""
        return int(self.n_clones.sum())

    @property
    def total(self) -> int:
        """Sum of the abundances of all clones."""
        return int(self.abundances @ self.n_clones)

    def count_clones(self, abundance: int) -> int:
        """Return the number of clones with this abundance."""
        return int(self.n_clones[self.abundances == abundance].sum())


def load_histograms(X: RepertoireDataset) -> list[AbundanceHistogram]:
    """Return the histogram of each repertoire; those of the whole container are cached."""
    arrays = _load_abundances(X)
    offsets = arrays["offsets"]
    parts = [slice(int(offsets[row]), int(offsets[row + 1])) for row in X.repertoire_indices]
    return [AbundanceHistogram(np.asarray(arrays["values"][part]), np.asarray(arrays["times"][part])) for part in parts]


def compute_shannon_entropy(histogram: AbundanceHistogram) -> float:
    """Return Shannon's entropy, -sum(p log p), of the shares p of the clones.

    If all abundances are equal, the result is exactly the logarithm of the number of clones. A sum would have rounding
    errors, and scaling the features to one spread could make these errors as large as a true difference.
    """
    if len(histogram.abundances) == 1:
        return float(np.log(histogram.richness))
    share = histogram.abundances / histogram.total  # (A,)
    return float(-(histogram.n_clones @ (share * np.log(share))))


def compute_rarefied_richness(histogram: AbundanceHistogram, depth: int) -> float:
    """Return the expected number of clones among `depth` counts that are drawn without replacement.

    With the abundance c of a clone and the sum N of all abundances, it is the sum of
    1 - binom(N - c, depth) / binom(N, depth) over the clones (Hurlbert 1971, Ecology 52:577), which is exact. If N is
    at most `depth`, it is the number of clones.

    Parameters
    ----------
    histogram
        Number of clones with each abundance.
    depth
        Number of counts that are drawn, not negative.
    """
    if depth >= histogram.total:
        return float(histogram.richness)
    return float(_compute_expected_clones(histogram.abundances, histogram.n_clones, histogram.total, depth))


def estimate_richness(histogram: AbundanceHistogram, depth: int) -> float:
    """Return the number of clones that are expected among `depth` counts, also if the repertoire has fewer counts.

    If the sum N of all counts is at least `depth`, it is `compute_rarefied_richness`. Otherwise it is extrapolated
    (Chao et al. 2014, Ecol. Monogr. 84:45) from the number S of clones, f1 of which have one count and f2 have two:

    - By Chao's estimate, f0 = (N - 1) / N * f1^2 / (2 f2) clones are unseen. If f2 is 0, the last fraction is
      f1 (f1 - 1) / 2.
    - S + f0 (1 - (1 - f1 / (N f0 + f1))^(depth - N)) clones are expected.

    Parameters
    ----------
    histogram
        Number of clones with each abundance.
    depth
        Number of counts, not negative.
    """
    total = histogram.total
    if depth <= total:
        return compute_rarefied_richness(histogram, depth)
    n_singletons, n_doubletons = float(histogram.count_clones(1)), float(histogram.count_clones(2))
    pairs = n_singletons**2 / (2 * n_doubletons) if n_doubletons else n_singletons * (n_singletons - 1) / 2
    n_unseen = (total - 1) / total * pairs if total else 0.0
    if n_unseen == 0:
        return float(histogram.richness)
    share = n_singletons / (total * n_unseen + n_singletons)
    return histogram.richness - n_unseen * float(np.expm1((depth - total) * np.log1p(-share)))


@njit(nogil=True)
def _compute_expected_clones(abundances: Integers, n_clones: Integers, total: int, depth: int) -> float:
    """Return the expected number of clones among `depth` of all `total` counts; see `AbundanceHistogram`."""
    expected = 0.0
    p_absent, abundance = 1.0, 0  # probability that none of the counts of a clone with this abundance is drawn
    for i in range(len(abundances)):
        if p_absent > _NEGLIGIBLE:
            p_absent *= _compute_absence_probability(total - abundance, abundances[i] - abundance, depth)
            abundance = abundances[i]
        expected += n_clones[i] * (1 - p_absent)
    return expected


@njit(nogil=True)
def _compute_absence_probability(total: int, n: int, depth: int) -> float:
    """Return the probability that `depth` counts, drawn from `total` without replacement, miss all of n given ones.

    It is binom(total - n, depth) / binom(total, depth), a product of n factors, or of `depth` factors. If both numbers
    are large, the sum of the factors' logarithms is replaced by an integral (midpoint rule), which Simpson's rule
    computes. Both rules are exact to 12 digits here: unless the product is negligible, n and `depth` are small shares
    of `total`, which is therefore large.
    """
    ratio = 1.0
    if n <= _MAX_FACTORS:
        for k in range(n):
            ratio *= max(total - depth - k, 0) / (total - k)
    elif depth <= _MAX_FACTORS:
        for k in range(depth):
            ratio *= max(total - n - k, 0) / (total - k)
    elif total - depth < n or n * np.log1p(-depth / total) < np.log(_NEGLIGIBLE):  # the largest factor, n times
        ratio = 0.0
    else:
        first, last = total + 0.5, total + 0.5 - n
        at_ends = np.log1p(-depth / first) + np.log1p(-depth / last)
        ratio = np.exp(n / 6 * (at_ends + 4 * np.log1p(-2 * depth / (first + last))))
    return ratio


def _load_abundances(X: RepertoireDataset) -> dict[str, NDArray[Any]]:
    """Return the histograms of the container's repertoires, one after another, as they are cached.

    `values` are their abundances, `times` their numbers of clones, and `offsets` says where each repertoire begins.
    """
    fields = X.gene_fields

    def compute(all_repertoires: RepertoireDataset) -> Arrays:
        histograms = list(all_repertoires.map_repertoires(AbundanceHistogram.from_repertoire))
        empty = [np.zeros(0, np.int64)]
        return {
            "values": np.concatenate([*empty, *(histogram.abundances for histogram in histograms)]),
            "times": np.concatenate([*empty, *(histogram.n_clones.astype(np.int64) for histogram in histograms)]),
            "offsets": compute_offsets(np.array([len(histogram.abundances) for histogram in histograms], np.int64)),
        }

    return load_or_compute(X, "abundances", {"fields": fields}, compute)
