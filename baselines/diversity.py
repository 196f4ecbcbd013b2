"""Diversity: a control that reads how the abundances of a repertoire's clones are distributed, and no residue.

A clone is a junction with its V and J gene. Rows of one clone are merged first.

Letters: B repertoires, M clones of a repertoire, A different abundances in it, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Integers
from deeprc.baselines.linear import PenalisedClassifier, RidgeRegressor
from deeprc.baselines.parameters import check_whole_number
from deeprc.compilation import njit
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.clones.distinct import sum_clone_abundances
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.estimators import RepertoireEstimator

__all__ = [
    "DIVERSITY_FEATURES",
    "AbundanceHistogram",
    "Diversity",
    "DiversityRidge",
    "compute_diversity_features",
    "compute_diversity_table",
    "compute_rarefied_richness",
    "compute_shannon_entropy",
    "find_common_depth",
    "prepare_abundances",
]


DIVERSITY_FEATURES = (
    "log_richness",
    "log_richness_at_depth",
    "shannon_entropy",
    "log_hill_2",
    "clonality",
    "evenness",
    "share_of_largest",
    "share_of_ten_largest",
)
"""Names of the features that `compute_diversity_features` returns, in the same order."""

_N_LARGEST = 10
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

    @property
    def richness(self) -> int:
        """Number of all clones, M."""
        return int(self.n_clones.sum())

    @property
    def total(self) -> int:
        """Sum of the abundances of all clones."""
        return int(self.abundances @ self.n_clones)


class _DiversityFeatures(RepertoireEstimator):
    """An estimator that reads the features of `compute_diversity_features`.

    Attributes
    ----------
    depth_
        Number of counts at which richness is compared: the smallest sum of counts of a training repertoire.
    """

    depth_: int

    def __init__(self, *, C: float = 1.0) -> None:
        self.C = C

    @classmethod
    def check_cohort(cls, X: RepertoireDataset) -> None:
        """Raise InputError if no clone of the container has a count above 1, so that only the size would be read."""
        if len(X) and int(_load_abundances(X)["values"].max(initial=1)) == 1:
            path = getattr(X.container, "path", "the cohort")
            raise InputError(f"{path}: no clone has a count above 1, so diversity is the same as `repertoire-size`")

    def prepare(self, X: RepertoireDataset) -> None:
        """Count and cache the abundances of the clones of the container's repertoires."""
        prepare_abundances(X)

    def _learn_columns(self, X: RepertoireDataset) -> None:
        self.depth_ = find_common_depth(X)

    def _compute_features(self, X: RepertoireDataset) -> NDArray[np.float64]:
        return compute_diversity_table(X, self.depth_)

    def _restore(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Mapping[str, Any]]) -> None:
        super()._restore(arrays, values)
        check_whole_number("depth", self.depth_)


class Diversity(_DiversityFeatures, PenalisedClassifier):
    """Logistic regression on the diversity of a repertoire alone, with an l2 penalty.

    The features are those of `compute_diversity_features`, divided by their standard deviations.

    Parameters
    ----------
    C
        Weight of the losses against the penalty; see `deeprc.baselines.logistic.LogisticRegression`.
    """


class DiversityRidge(_DiversityFeatures, RidgeRegressor):
    """Ridge regression on the diversity of a repertoire alone; see `Diversity`.

    Parameters
    ----------
    C
        Weight of the squared errors against the penalty; see `deeprc.baselines.ridge.fit_ridge_path`.
    """


def prepare_abundances(X: RepertoireDataset) -> None:
    """Count and cache the abundances of the clones of the container's repertoires."""
    _load_abundances(X)


def find_common_depth(X: RepertoireDataset) -> int:
    """Return the smallest sum of counts of the repertoires that are not empty, at least 1."""
    return min((histogram.total for histogram in _load_histograms(X) if histogram.richness), default=1)


def compute_diversity_table(X: RepertoireDataset, depth: int) -> NDArray[np.float64]:
    """Return the features of `compute_diversity_features` of each repertoire, (B, F)."""
    table = [compute_diversity_features(histogram, depth) for histogram in _load_histograms(X)]
    return np.array(table).reshape(len(X), len(DIVERSITY_FEATURES))


def compute_diversity_features(histogram: AbundanceHistogram, depth: int) -> NDArray[np.float64]:
    """Return the diversity of a repertoire of M clones.

    Let p be the shares of the clones among all counts. Hill's numbers (Hill 1973, Ecology 54:427) are the richness M
    (order 0), exp(-sum(p log p)) (order 1) and 1 / sum(p^2) (order 2), with natural logarithms. The features are:

    - `log_richness`: log(1 + M);
    - `log_richness_at_depth`: log(1 + number of clones that are expected among `depth` counts), see
      `compute_rarefied_richness`; if there are fewer counts, all are used;
    - `shannon_entropy`: -sum(p log p), which is the logarithm of Hill's number of order 1;
    - `log_hill_2`: the logarithm of Hill's number of order 2;
    - `clonality`: 1 - entropy / log(M), 0 for a single clone;
    - `evenness`: Hill's number of order 1, divided by the richness;
    - `share_of_largest`, `share_of_ten_largest`: share of the most abundant clone, and of the ten most abundant ones.

    All are 0 for a repertoire without sequences.

    Parameters
    ----------
    histogram
        Number of clones with each abundance.
    depth
        Number of counts at which richness is compared.

    Returns
    -------
    numpy.ndarray
        The features in the order of `DIVERSITY_FEATURES`, (F,) float64.
    """
    richness, total = histogram.richness, histogram.total
    if richness == 0:
        return np.zeros(len(DIVERSITY_FEATURES))
    share = histogram.abundances / total  # (A,)
    entropy = compute_shannon_entropy(histogram)
    return np.array(
        [
            np.log1p(richness),
            np.log1p(compute_rarefied_richness(histogram, depth)),
            entropy,
            -np.log(histogram.n_clones @ share**2),
            1 - entropy / np.log(richness) if richness > 1 else 0.0,
            np.exp(entropy) / richness,
            share[-1],
            _sum_largest(histogram, _N_LARGEST) / total,
        ]
    )


def compute_shannon_entropy(histogram: AbundanceHistogram) -> float:
    """Return Shannon's entropy, -sum(p log p), of the shares p of the clones.

    If all abundances are equal, the entropy is exactly the logarithm of the number of clones: otherwise the rounding of
    a sum would become a feature, because features are scaled to the same spread.
    """
    if len(histogram.abundances) == 1:
        return float(np.log(histogram.richness))
    share = histogram.abundances / histogram.total  # (A,)
    return float(-(histogram.n_clones @ (share * np.log(share))))


def compute_rarefied_richness(histogram: AbundanceHistogram, depth: int) -> float:
    """Return the expected number of clones among `depth` counts that are drawn without replacement.

    It is exact: the sum of 1 - binom(N - c, depth) / binom(N, depth) over the clones, where c is the abundance of a
    clone and N the sum of all (Hurlbert 1971, Ecology 52:577). If N is at most `depth`, it is the number of clones.

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


def _sum_largest(histogram: AbundanceHistogram, n: int) -> int:
    """Return the sum of the abundances of the n most abundant clones."""
    abundances, n_clones = histogram.abundances[::-1], histogram.n_clones[::-1]
    n_more_abundant = np.cumsum(n_clones) - n_clones
    return int(abundances @ np.clip(n - n_more_abundant, 0, n_clones))


def _load_histograms(X: RepertoireDataset) -> list[AbundanceHistogram]:
    """Return the histogram of each repertoire."""
    arrays = _load_abundances(X)
    offsets = arrays["offsets"]
    parts = [slice(int(offsets[row]), int(offsets[row + 1])) for row in X.repertoire_indices]
    return [AbundanceHistogram(np.asarray(arrays["values"][part]), np.asarray(arrays["times"][part])) for part in parts]


def _load_abundances(X: RepertoireDataset) -> dict[str, NDArray[Any]]:
    """Return the histograms of the container's repertoires, one after another, as they are cached.

    `values` are their abundances, `times` their numbers of clones, and `offsets` says where each repertoire begins.
    """
    fields = X.gene_fields

    def compute(all_repertoires: RepertoireDataset) -> Arrays:
        histograms = [
            AbundanceHistogram.from_abundances(sum_clone_abundances(repertoire, fields))
            for repertoire in all_repertoires
        ]
        empty = [np.zeros(0, np.int64)]
        return {
            "values": np.concatenate([*empty, *(histogram.abundances for histogram in histograms)]),
            "times": np.concatenate([*empty, *(histogram.n_clones.astype(np.int64) for histogram in histograms)]),
            "offsets": compute_offsets(np.array([len(histogram.abundances) for histogram in histograms], np.int64)),
        }

    return load_or_compute(X, "abundances", {"fields": fields}, compute)
