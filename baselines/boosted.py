"""Boosted trees on k-mers, gene usage, lengths and diversity of a repertoire.

Letters: B repertoires, M k-mers, P components, S selected k-mers, G genes, F features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from deeprc.arrays import Floats, Integers
from deeprc.baselines.abundance_histogram import load_histograms
from deeprc.baselines.diversity import DIVERSITY_FEATURES, compute_diversity_table, find_common_depth
from deeprc.baselines.gapped import list_gapped_offsets
from deeprc.baselines.gene_usage import (
    compute_centred_log_ratios,
    count_genes_by_field,
    learn_gene_names,
    list_genes,
)
from deeprc.baselines.parameters import check_positive, check_whole_number
from deeprc.baselines.restored import check_texts
from deeprc.baselines.standardised_columns import StandardisedColumns
from deeprc.baselines.trees import Trees
from deeprc.compilation import njit
from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.representations import compute_kmer_frequencies, compute_kmer_matrix
from deeprc.documents import to_plain, validate
from deeprc.estimators import BinaryClassifier, RepertoireEstimator, RepertoireRegressor
from deeprc.threads import limit_blas_threads

__all__ = ["BoostedTrees", "BoostedTreesRegressor"]

_COMPONENT_OFFSETS = (0, 1, 2)  # offsets of the k-mers whose components are features
_SELECTED_K = 4  # number of residues of a selected k-mer
_MIN_LENGTH, _MAX_LENGTH = 6, 35  # lengths of a sequence; shorter and longer ones are counted with these
_N_LENGTH_FEATURES = _MAX_LENGTH - _MIN_LENGTH + 3
_MIN_VARIANCE = 1e-9  # smallest variance of a component, as a share of that of the first
_L2, _FEATURE_SHARE = 1.0, 0.3  # penalty of the leaves; share of the features that each split may choose from


class _BoostedTrees(RepertoireEstimator):
    """An estimator that learns trees on the features of a repertoire.

    The features are, in this order:

    - the first `n_components` principal components of the frequencies of 3-mers in the training repertoires;
    - the frequencies of the `n_selected` 4-mers, with and without gaps, whose frequencies correlate most with the
      labels of the training repertoires;
    - the usage of V and J genes as centred log-ratios, if the container has them;
    - the shares of sequences of each length, and the mean and the standard deviation of the lengths;
    - the diversity, see `deeprc.baselines.diversity.compute_diversity_features`.

    Attributes
    ----------
    loadings_, origin_
        The components are frequencies @ `loadings_` - `origin_`, (M, P) and (P,).
    patterns_, kmers_
        Selected k-mers, (S,) each: index of the pattern among `list_gapped_offsets(4, max_gap)`, and index of the
        k-mer.
    v_names_, j_names_
        Names of the genes that occur in the training repertoires, (G,) text each. Other genes are ignored.
    depth_
        Number of counts at which richness is compared.
    baseline_
        Output before the first tree.
    """

    loadings_: Floats
    origin_: Floats
    patterns_: Integers
    kmers_: Integers
    v_names_: NDArray[np.str_]
    j_names_: NDArray[np.str_]
    depth_: int
    baseline_: float

    def __init__(
        self,
        *,
        n_components: int = 50,
        n_selected: int = 10,
        max_gap: int = 1,
        max_iter: int = 150,
        learning_rate: float = 0.1,
        max_leaf_nodes: int = 8,
        min_samples_leaf: int = 5,
        seed: int = 0,
    ) -> None:
        self.n_components = n_components
        self.n_selected = n_selected
        self.max_gap = max_gap
        self.max_iter = max_iter
        self.learning_rate = learning_rate
        self.max_leaf_nodes = max_leaf_nodes
        self.min_samples_leaf = min_samples_leaf
        self.seed = seed

    def check_parameters(self) -> None:
        """Raise InputError if a parameter is wrong for any cohort."""
        for name, low in (("n_components", 0), ("n_selected", 0), ("max_iter", 1), ("min_samples_leaf", 1)):
            check_whole_number(name, getattr(self, name), low=low)
        check_whole_number("max_leaf_nodes", self.max_leaf_nodes, low=2)
        check_whole_number("seed", self.seed, low=0, high=2**32 - 1)
        check_positive("learning_rate", self.learning_rate)
        list_gapped_offsets(_SELECTED_K, self.max_gap)
        super().check_parameters()

    def prepare(self, X: RepertoireDataset) -> None:
        """Compute and cache the counts of k-mers, genes, lengths and clones of the container's repertoires."""
        if self.n_components:
            compute_kmer_matrix(X[:0], _COMPONENT_OFFSETS)
        if self.n_selected:
            for offsets in list_gapped_offsets(_SELECTED_K, self.max_gap):
                compute_kmer_matrix(X[:0], offsets)
        for field in X.gene_fields:
            list_genes(X[:0], field)
        _compute_length_features(X[:0])
        load_histograms(X)

    def _learn(self, X: RepertoireDataset, labels: Floats, *, is_number: bool) -> None:
        """Learn from the repertoires in canonical order; labels are 0 and 1, or numbers, (B,)."""
        self.check_parameters()
        self.loadings_, self.origin_ = _compute_principal_components(X, self.n_components)
        self.patterns_, self.kmers_ = _select_most_correlated(X, labels, self.n_selected, self.max_gap)
        self.v_names_, self.j_names_ = learn_gene_names(X, X.gene_fields)
        self.depth_ = find_common_depth(X)
        model_class = HistGradientBoostingRegressor if is_number else HistGradientBoostingClassifier
        model = model_class(
            max_iter=self.max_iter,
            learning_rate=self.learning_rate,
            max_leaf_nodes=self.max_leaf_nodes,
            min_samples_leaf=self.min_samples_leaf,
            l2_regularization=_L2,
            max_features=_FEATURE_SHARE,
            early_stopping=False,
            random_state=self.seed,
        )
        with threadpool_limits(1):  # also OpenMP of the trees, so that the number of threads changes nothing
            model.fit(self._compute_features(X), labels)
        self.baseline_ = float(model._baseline_prediction.ravel()[0])
        for name, array in Trees.of(model)._asdict().items():
            setattr(self, f"tree_{name}_", array)

    @property
    def _trees(self) -> Trees:
        return Trees(*(getattr(self, f"tree_{name}_") for name in Trees._fields))

    def _compute_features(self, X: RepertoireDataset) -> Floats:
        """Return the features, (B, F); each row depends on its own repertoire only."""
        usage = [compute_centred_log_ratios(counts) for counts in count_genes_by_field(X, self.v_names_, self.j_names_)]
        parts = [
            self._project_components(X),
            self._take_selected(X),
            *usage,
            _compute_length_features(X),
            compute_diversity_table(X, self.depth_),
        ]
        return np.ascontiguousarray(np.hstack(parts), np.float64)

    def _project_components(self, X: RepertoireDataset) -> Floats:
        """Return the principal components of the k-mer frequencies, (B, P)."""
        if not self.loadings_.shape[1]:
            return np.zeros((len(X), 0))
        frequencies = np.asarray(compute_kmer_frequencies(X, _COMPONENT_OFFSETS))
        return np.asarray(_project_rows(frequencies, self.loadings_) - self.origin_)

    def _take_selected(self, X: RepertoireDataset) -> Floats:
        """Return the frequencies of the selected k-mers, with and without gaps, (B, number of k-mers)."""
        patterns = list_gapped_offsets(_SELECTED_K, self.max_gap)
        features = np.zeros((len(X), len(self.kmers_)))
        for pattern in np.unique(self.patterns_).tolist():
            columns = np.flatnonzero(self.patterns_ == pattern)
            features[:, columns] = compute_kmer_frequencies(X, patterns[pattern], kmers=self.kmers_[columns])
        return features

    def _compute_outputs(self, X: RepertoireDataset) -> Floats:
        return self.baseline_ + self._trees.sum_leaves(self._compute_features(X))

    def _restore(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Mapping[str, Any]]) -> None:
        super()._restore(arrays, values)
        self.check_parameters()
        n_components, n_selected = len(self.origin_), len(self.kmers_)
        if self.loadings_.shape != (20 ** len(_COMPONENT_OFFSETS), n_components) or self.origin_.ndim != 1:
            raise ValueError(f"loadings: expected {n_components} components, found {self.loadings_.shape}")
        _check_indices("patterns", self.patterns_, n_selected, len(list_gapped_offsets(_SELECTED_K, self.max_gap)))
        _check_indices("kmers", self.kmers_, n_selected, 20**_SELECTED_K)
        check_whole_number("depth", self.depth_)
        self.baseline_ = float(validate(to_plain(self.baseline_), float, "baseline"))
        for name in ("v_names_", "j_names_"):
            check_texts(name, getattr(self, name, None))
        n_genes = len(self.v_names_) + len(self.j_names_)
        self._trees.check(n_components + n_selected + n_genes + _N_LENGTH_FEATURES + len(DIVERSITY_FEATURES))


class BoostedTrees(_BoostedTrees, BinaryClassifier):
    """Gradient boosting of trees (scikit-learn's HistGradientBoostingClassifier) on features of a repertoire.

    The features are the principal components of 3-mer frequencies, the frequencies of selected 4-mers, the usage of
    genes, lengths and diversity. Components and selected k-mers are learned from the training repertoires only.

    Parameters
    ----------
    n_components
        Number of principal components of the 3-mer frequencies.
    n_selected
        Number of 4-mers whose frequencies are features of their own: those that correlate most with the labels.
    max_gap
        Largest number of residues that a selected 4-mer leaves out; see `deeprc.baselines.gapped.list_gapped_offsets`.
    max_iter, learning_rate
        Number of trees, and the factor of each.
    max_leaf_nodes, min_samples_leaf
        Largest number of leaves of a tree, and smallest number of repertoires in a leaf.
    seed
        Seed of the features that each split may choose from: three tenths of all.
    """

    def _fit(self, X: RepertoireDataset, positive: NDArray[np.bool_]) -> None:
        self._learn(X, positive.astype(np.float64), is_number=False)

    def _score_repertoires(self, X: RepertoireDataset) -> Floats:
        return self._compute_outputs(X)


class BoostedTreesRegressor(_BoostedTrees, RepertoireRegressor):
    """Gradient boosting of trees for a number; see `BoostedTrees`."""

    def _fit(self, X: RepertoireDataset, numbers: Floats) -> None:
        self._learn(X, numbers, is_number=True)

    def _predict(self, X: RepertoireDataset) -> Floats:
        return self._compute_outputs(X)


def _check_indices(name: str, indices: NDArray[Any], n: int, end: int) -> None:
    """Raise ValueError if an array does not hold n integers from 0 to `end` - 1."""
    are_integers = indices.dtype.kind == "i" and indices.shape == (n,)
    if not are_integers or not ((indices >= 0) & (indices < end)).all():
        raise ValueError(f"{name}: expected {n} numbers from 0 to {end - 1}")


def _compute_principal_components(X: RepertoireDataset, n: int) -> tuple[Floats, Floats]:
    """Return the loadings, (M, P), and the origin, (P,), of the first components; see `_BoostedTrees.loadings_`.

    They are computed from the B x B inner products of the repertoires. Components without variance are left out, so
    there are at most n and at most B - 1.
    """
    n_kmers = 20 ** len(_COMPONENT_OFFSETS)
    if n == 0:
        return np.zeros((n_kmers, 0)), np.zeros(0)
    columns = StandardisedColumns(compute_kmer_frequencies(X, _COMPONENT_OFFSETS), scale="common")
    with limit_blas_threads():  # so that the number of threads changes nothing
        variances, vectors = eigh(columns.compute_gram())
    largest = np.argsort(-variances, kind="stable")[:n]
    largest = largest[variances[largest] > _MIN_VARIANCE * max(float(variances.max()), 0)]
    loadings = [columns.factor * columns.compute_products(vectors[:, i]) / np.sqrt(variances[i]) for i in largest]
    table = np.ascontiguousarray(np.reshape(loadings, (len(largest), n_kmers)).T)
    return table, columns.centre @ table


def _select_most_correlated(X: RepertoireDataset, labels: Floats, n: int, max_gap: int) -> tuple[Integers, Integers]:
    """Return the patterns and the indices, (S,) each, of the 4-mers that correlate most with the labels, best first."""
    if n == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    centred = labels - labels.mean()
    strengths, patterns, kmers = [], [], []
    for index, offsets in enumerate(list_gapped_offsets(_SELECTED_K, max_gap)):
        strength = np.abs(StandardisedColumns(compute_kmer_frequencies(X, offsets)).compute_products(centred))
        best = np.argsort(-strength, kind="stable")[:n]
        best = best[strength[best] > 0]
        strengths.append(strength[best])
        patterns.append(np.full(len(best), index, np.int64))
        kmers.append(best)
    chosen = np.argsort(-np.concatenate(strengths), kind="stable")[:n]
    return np.concatenate(patterns)[chosen], np.concatenate(kmers)[chosen]


@njit(nogil=True)
def _project_rows(rows: NDArray[np.float32], loadings: Floats) -> Floats:
    """Return rows @ loadings, (B, P); each sum runs in the order of the k-mers, so it does not depend on the batch."""
    n_rows, n_columns = rows.shape
    scores = np.zeros((n_rows, loadings.shape[1]))
    for row in range(n_rows):
        for column in range(n_columns):
            value = rows[row, column]
            if value != 0:
                for component in range(loadings.shape[1]):
                    scores[row, component] += value * loadings[column, component]
    return scores


def _compute_length_features(X: RepertoireDataset) -> Floats:
    """Return the share of the sequences of each length, and the mean and standard deviation of the lengths."""

    def compute(all_repertoires: RepertoireDataset) -> Arrays:
        table = np.zeros((len(all_repertoires), _N_LENGTH_FEATURES))
        for row, repertoire in enumerate(all_repertoires):
            lengths = repertoire.lengths
            if len(lengths):
                index = np.clip(lengths, _MIN_LENGTH, _MAX_LENGTH) - _MIN_LENGTH
                table[row, :-2] = np.bincount(index, minlength=_N_LENGTH_FEATURES - 2) / len(lengths)
                table[row, -2:] = lengths.mean(), lengths.std()
        return {"features": table}

    arrays = load_or_compute(X, "lengths", {"first": _MIN_LENGTH, "last": _MAX_LENGTH}, compute)
    return np.asarray(arrays["features"][X.repertoire_indices])
