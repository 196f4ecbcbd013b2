"""Controls: estimators that read no residue, only the number of sequences, their abundances and their genes.

If a control predicts as well as a method, the labels can be predicted without any motif. Often the samples of the
classes were then taken or sequenced differently.

Letters: B repertoires, N sequences of a repertoire, G genes, F features.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.abundance_histogram import AbundanceHistogram, compute_shannon_entropy
from deeprc.baselines.gene_usage import GeneUsageFeatures
from deeprc.baselines.linear import PenalisedClassifier, RidgeRegressor
from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.estimators import RepertoireEstimator
from deeprc.progress import track

__all__ = [
    "SIZE_FEATURES",
    "RepertoireSize",
    "RepertoireSizeRidge",
    "VGeneUsage",
    "VGeneUsageRidge",
    "compute_size_features",
]

SIZE_FEATURES = (
    "log_sequences",
    "log_total_count",
    "shannon_entropy",
    "clonality",
    "log_hill_2",
    "gini",
    "share_of_largest",
    "share_of_singletons",
    "log_chao1",
)
"""Names of the features that `compute_size_features` returns, in the same order."""


class _SizeFeatures(RepertoireEstimator):
    """An estimator that reads the features of `compute_size_features`."""

    def __init__(self, *, C: float = 1.0) -> None:
        self.C = C

    def prepare(self, X: RepertoireDataset) -> None:
        """Compute and cache the features of the container's repertoires."""
        self._compute_features(X[:0])

    def _compute_features(self, X: RepertoireDataset) -> NDArray[np.float64]:
        table = load_or_compute(X, "sizes", {"features": SIZE_FEATURES}, _compute_size_table)
        return np.asarray(table["features"][X.repertoire_indices])


class RepertoireSize(_SizeFeatures, PenalisedClassifier):
    """Logistic regression on the size and the diversity of a repertoire alone, with an l2 penalty.

    The features are those of `compute_size_features`, divided by their standard deviations. Constant features are left
    out, for example those of abundance if all counts are 1.

    Parameters
    ----------
    C
        Weight of the losses against the penalty; see `deeprc.baselines.logistic.LogisticRegression`.
    """


class RepertoireSizeRidge(_SizeFeatures, RidgeRegressor):
    """Ridge regression on the size and the diversity of a repertoire alone; see `RepertoireSize`.

    Parameters
    ----------
    C
        Weight of the squared errors against the penalty; see `deeprc.baselines.linear.fit_ridge_path`.
    """


def _compute_size_table(all_repertoires: RepertoireDataset) -> Arrays:
    table = [
        compute_size_features(repertoire.counts)
        for repertoire in track(all_repertoires, "sizes of repertoires", len(all_repertoires))
    ]
    return {"features": np.array(table).reshape(len(all_repertoires), len(SIZE_FEATURES))}


def compute_size_features(counts: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Return the size and the diversity of a repertoire whose sequences have these abundances, (N,).

    The order of the sequences does not matter. With abundances c, shares p = c / sum(c) and natural logarithms:

    - `log_sequences`, `log_total_count`: log(1 + N), log(1 + sum(c));
    - `shannon_entropy`: -sum(p log p); `clonality`: 1 - entropy / log(N), 0 for a single sequence;
    - `log_hill_2`: -log(sum(p^2)), the logarithm of Hill's number of order 2 (the inverse Simpson index);
    - `gini`: Gini's index of inequality of c;
    - `share_of_largest`, `share_of_singletons`: largest p; share of the sequences with c = 1;
    - `log_chao1`: log(1 + Chao's estimate of richness). The estimate is N + f1 (f1 - 1) / (2 (f2 + 1)), where f1 and f2
      are the numbers of sequences with c = 1 and c = 2 (Chao 1984, bias-corrected).

    All are 0 for a repertoire without sequences.

    Returns
    -------
    numpy.ndarray
        The features in the order of `SIZE_FEATURES`, (F,) float64.
    """
    n = len(counts)
    if n == 0:
        return np.zeros(len(SIZE_FEATURES))
    histogram = AbundanceHistogram.from_abundances(np.asarray(counts, np.float64))
    abundances, n_sequences, total = histogram.abundances, histogram.n_clones, histogram.total
    share = abundances / total
    entropy = compute_shannon_entropy(histogram)
    n_singletons, n_doubletons = float(histogram.count_clones(1)), float(histogram.count_clones(2))
    last_rank = np.cumsum(n_sequences)
    rank_sum = n_sequences * (2 * last_rank - n_sequences + 1) / 2  # of the sequences with each abundance
    gini = 2 * float(rank_sum @ abundances) / (n * total) - (n + 1) / n
    return np.array(
        [
            np.log1p(n),
            np.log1p(total),
            entropy,
            1 - entropy / np.log(n) if n > 1 else 0.0,
            -np.log(n_sequences @ share**2),
            gini,
            share[-1],
            n_singletons / n,
            np.log1p(n + n_singletons * (n_singletons - 1) / (2 * (n_doubletons + 1))),
        ]
    )


class VGeneUsage(GeneUsageFeatures, PenalisedClassifier):
    """Logistic regression on the usage of V genes alone, with an l2 penalty.

    The features are log(number of a gene's sequences + 0.5), centred within the repertoire (the centred log-ratio:
    Aitchison 1986, The Statistical Analysis of Compositional Data) and divided by their standard deviations.

    Parameters
    ----------
    genes
        `v_call` for V genes only, `both` for V and J genes.
    C
        Weight of the losses against the penalty; see `deeprc.baselines.logistic.LogisticRegression`.
    """

    def __init__(self, *, genes: str = "v_call", C: float = 1.0) -> None:
        self.genes = genes
        self.C = C


class VGeneUsageRidge(GeneUsageFeatures, RidgeRegressor):
    """Ridge regression on the usage of V genes alone; see `VGeneUsage`.

    Parameters
    ----------
    genes
        `v_call` for V genes only, `both` for V and J genes.
    C
        Weight of the squared errors against the penalty; see `deeprc.baselines.linear.fit_ridge_path`.
    """

    def __init__(self, *, genes: str = "v_call", C: float = 1.0) -> None:
        self.genes = genes
        self.C = C
