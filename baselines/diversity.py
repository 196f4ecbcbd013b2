"""Diversity: a control that reads how the abundances of a repertoire's clones are distributed, and no residue.

A clone is a junction with its V and J gene. Rows of one clone are merged first.

Letters: B repertoires, M clones of a repertoire, A different abundances in it, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.abundance_histogram import (
    AbundanceHistogram,
    compute_rarefied_richness,
    compute_shannon_entropy,
    load_histograms,
)
from deeprc.baselines.linear import PenalisedClassifier, RidgeRegressor
from deeprc.baselines.parameters import check_whole_number
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.estimators import RepertoireEstimator

__all__ = [
    "DIVERSITY_FEATURES",
    "Diversity",
    "DiversityRidge",
    "compute_diversity_features",
    "compute_diversity_table",
    "find_common_depth",
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
        if len(X) and max(int(histogram.abundances.max(initial=1)) for histogram in load_histograms(X.whole())) == 1:
            path = getattr(X.container, "path", "the cohort")
            raise InputError(f"{path}: no clone has a count above 1, so diversity is the same as `repertoire-size`")

    def prepare(self, X: RepertoireDataset) -> None:
        """Count and cache the abundances of the clones of the container's repertoires."""
        load_histograms(X)

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
        Weight of the squared errors against the penalty; see `deeprc.baselines.linear.fit_ridge_path`.
    """


def find_common_depth(X: RepertoireDataset) -> int:
    """Return the smallest sum of counts of the repertoires that are not empty, at least 1."""
    return min((histogram.total for histogram in load_histograms(X) if histogram.richness), default=1)


def compute_diversity_table(X: RepertoireDataset, depth: int) -> NDArray[np.float64]:
    """Return the features of `compute_diversity_features` of each repertoire, (B, F)."""
    table = [compute_diversity_features(histogram, depth) for histogram in load_histograms(X)]
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


def _sum_largest(histogram: AbundanceHistogram, n: int) -> int:
    """Return the sum of the abundances of the n most abundant clones."""
    abundances, n_clones = histogram.abundances[::-1], histogram.n_clones[::-1]
    n_more_abundant = np.cumsum(n_clones) - n_clones
    return int(abundances @ np.clip(n - n_more_abundant, 0, n_clones))
