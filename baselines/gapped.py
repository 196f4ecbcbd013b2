"""L1 logistic regression on k-mers with gaps and the usage of genes.

Letters: B repertoires, M k-mers of all patterns, G genes.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack

from deeprc.baselines.gene_usage import count_genes_by_field, learn_gene_names, list_genes
from deeprc.baselines.linear import FeatureMatrix, PenalisedClassifier
from deeprc.baselines.parameters import check_choice, check_whole_number
from deeprc.baselines.restored import check_texts
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.representations import compute_kmer_frequencies, compute_kmer_matrix

__all__ = ["GappedKmerLogisticRegression", "list_gapped_offsets"]

_MAX_DENSE_K, _MAX_K, _MAX_GAP = 4, 6, 4


class GappedKmerLogisticRegression(PenalisedClassifier):
    """Logistic regression on the frequencies of k-mers with and without gaps, and of V and J genes.

    The features are the number of occurrences of each k-mer per sequence, for each pattern of gaps, and the share of
    sequences with each gene. All are divided by their standard deviations.

    Parameters
    ----------
    k
        Number of residues of a k-mer, without those in gaps; from 5 on the features are sparse.
    max_gap
        Largest number of residues that a k-mer leaves out in all its gaps together; see `list_gapped_offsets`.
    genes
        `auto` reads the usage of V and J genes if the container has them, `none` reads no genes.
    C, penalty
        As in `deeprc.baselines.logistic.LogisticRegression`.
    weighted
        Whether each sequence counts as often as its `duplicate_count` says, in k-mers.

    Attributes
    ----------
    v_names_, j_names_
        Names of the genes that occur in the training repertoires, (G,) text each. Other genes are ignored.
    """

    v_names_: NDArray[np.str_]
    j_names_: NDArray[np.str_]

    def __init__(
        self,
        *,
        k: int = 4,
        max_gap: int = 1,
        genes: str = "auto",
        C: float = 1.0,
        penalty: str = "l1",
        weighted: bool = False,
    ) -> None:
        self.k = k
        self.max_gap = max_gap
        self.genes = genes
        self.C = C
        self.penalty = penalty
        self.weighted = weighted

    def check_parameters(self) -> None:
        """Raise InputError if a parameter is wrong for any cohort."""
        super().check_parameters()
        check_choice("genes", self.genes, ("auto", "none"))
        list_gapped_offsets(self.k, self.max_gap)

    def _restore(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Mapping[str, Any]]) -> None:
        self.check_parameters()
        super()._restore(arrays, values)
        for name in ("v_names_", "j_names_"):
            check_texts(name, getattr(self, name, None))

    def _learn_columns(self, X: RepertoireDataset) -> None:
        check_choice("genes", self.genes, ("auto", "none"))
        self.v_names_, self.j_names_ = learn_gene_names(X, X.gene_fields if self.genes == "auto" else ())

    def prepare(self, X: RepertoireDataset) -> None:
        """Compute and cache the k-mer counts, for each pattern of gaps, and the gene counts of the container."""
        for offsets in list_gapped_offsets(self.k, self.max_gap):
            compute_kmer_matrix(X[:0], offsets, weighted=self.weighted)
        if self.genes == "auto":
            for field in X.gene_fields:
                list_genes(X[:0], field)

    def _compute_features(self, X: RepertoireDataset) -> FeatureMatrix:
        patterns = list_gapped_offsets(self.k, self.max_gap)
        genes = [_normalise_rows(counts) for counts in count_genes_by_field(X, self.v_names_, self.j_names_)]
        if self.k > _MAX_DENSE_K:
            kmers = [csr_matrix(compute_kmer_frequencies(X, offsets, weighted=self.weighted)) for offsets in patterns]
            return csr_matrix(hstack([*kmers, *map(csr_matrix, genes)], format="csr", dtype=np.float32))
        width = 20**self.k
        rows = np.zeros((len(X), width * len(patterns) + sum(gene.shape[1] for gene in genes)), np.float32)
        for index, offsets in enumerate(patterns):  # filled, not joined: one copy of a large matrix is enough
            rows[:, index * width : (index + 1) * width] = compute_kmer_frequencies(X, offsets, weighted=self.weighted)
        start = width * len(patterns)
        for gene in genes:
            rows[:, start : start + gene.shape[1]] = gene
            start += gene.shape[1]
        return rows


def list_gapped_offsets(k: int, max_gap: int) -> list[tuple[int, ...]]:
    """Return the offsets of all k-mers that leave out at most `max_gap` residues between their first and their last.

    They are sorted by the number of residues left out. For example, (3, 1) gives (0, 1, 2), (0, 1, 3), (0, 2, 3).

    Raises
    ------
    InputError
        If k is not 1 to 6 or `max_gap` not 0 to 4.
    """
    check_whole_number("k", k, high=_MAX_K)
    check_whole_number("max_gap", max_gap, low=0, high=_MAX_GAP)
    if k == 1:
        return [(0,)]
    spans = range(k - 1, k + max_gap)
    return [(0, *inner, last) for last in spans for inner in combinations(range(1, last), k - 2)]


def _normalise_rows(counts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the counts, (B, G), divided by the sum of their row; a row of zeros stays 0."""
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), np.float32)
