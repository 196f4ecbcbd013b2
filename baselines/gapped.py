"""L1 logistic regression on k-mers with gaps and the usage of genes.

Letters: B repertoires, M k-mers of all patterns, G genes.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix, hstack

from deeprc.baselines.gene_usage import gene_table, genes_of, has_genes
from deeprc.baselines.linear import Matrix, PenalisedClassifier, check_choice
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.representations import kmer_frequencies, kmer_matrix
from deeprc.errors import InputError

__all__ = ["GappedKmerLogisticRegression", "gapped_places"]

_MOST_DENSE, _MOST_RESIDUES, _MOST_GAPS = 4, 6, 4


class GappedKmerLogisticRegression(PenalisedClassifier):
    """Logistic regression on the frequencies of k-mers with and without gaps, and of V and J genes.

    Features are how often each k-mer occurs per sequence, for every way of leaving out places, and the share of
    sequences with each gene; all are divided by their standard deviations.

    Parameters
    ----------
    k
        Residues of a k-mer, gaps not counted; from 5 on the features are sparse.
    max_gap
        Places that may be left out between a k-mer's residues, all together; see `gapped_places`.
    genes
        `auto`: with the usage of V and J genes where the container has them, `none`: without.
    C, penalty
        See `deeprc.baselines.logistic.LogisticRegression`.
    weighted
        Count each sequence as often as its `duplicate_count` says, for k-mers.

    Attributes
    ----------
    v_names_, j_names_
        The genes of the training repertoires, (G,) text each; others of unseen repertoires are not looked at.
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

    def _learn_columns(self, X: RepertoireDataset) -> None:
        check_choice("genes", self.genes, ("auto", "none"))
        names = {}
        for field in ("v_call", "j_call"):
            wanted = self.genes == "auto" and has_genes(X, field)
            names[field] = genes_of(X, field) if wanted else []
        self.v_names_ = np.array(names["v_call"], np.str_)
        self.j_names_ = np.array(names["j_call"], np.str_)

    def prepare(self, X: RepertoireDataset) -> None:
        """Compute and cache the container's k-mers of every pattern, and its genes."""
        for places in gapped_places(self.k, self.max_gap):
            kmer_matrix(X[:0], places, weighted=self.weighted)
        for field in ("v_call", "j_call"):
            if self.genes == "auto" and has_genes(X, field):
                genes_of(X[:0], field)

    def _rows(self, X: RepertoireDataset) -> Matrix:
        patterns = gapped_places(self.k, self.max_gap)
        genes = [
            _shares(gene_table(X, field, names))
            for field, names in (("v_call", self.v_names_.tolist()), ("j_call", self.j_names_.tolist()))
            if names
        ]
        if self.k > _MOST_DENSE:
            kmers = [csr_matrix(kmer_frequencies(X, places, weighted=self.weighted)) for places in patterns]
            return csr_matrix(hstack([*kmers, *map(csr_matrix, genes)], format="csr", dtype=np.float32))
        width = 20**self.k
        rows = np.zeros((len(X), width * len(patterns) + sum(each.shape[1] for each in genes)), np.float32)
        for number, places in enumerate(patterns):  # filled, not joined: one copy of a large matrix is enough
            rows[:, number * width : (number + 1) * width] = kmer_frequencies(X, places, weighted=self.weighted)
        at = width * len(patterns)
        for each in genes:
            rows[:, at : at + each.shape[1]] = each
            at += each.shape[1]
        return rows


def gapped_places(k: int, max_gap: int) -> list[tuple[int, ...]]:
    """Return every way to place k residues with up to `max_gap` places left out between them, fewest first.

    (3, 1) gives (0, 1, 2), (0, 1, 3), (0, 2, 3).

    Raises
    ------
    InputError
        If k is not 1 to 6 or `max_gap` not 0 to 4.
    """
    for name, value, low, high in (("k", k, 1, _MOST_RESIDUES), ("max_gap", max_gap, 0, _MOST_GAPS)):
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not low <= value <= high:
            raise InputError(f"{name}: expected a whole number from {low} to {high}, found {value!r}")
    if k == 1:
        return [(0,)]
    spans = range(k - 1, k + max_gap)
    return [(0, *inner, last) for last in spans for inner in combinations(range(1, last), k - 2)]


def _shares(counts: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return counts (B, G) divided by their sums; of a repertoire without any, 0."""
    return np.asarray(counts / np.maximum(counts.sum(axis=1, keepdims=True), 1), np.float32)
