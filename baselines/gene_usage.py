"""Count the sequences with each V or J gene, by its name, and make features of the counts.

The counts are cached beside the container.

Letters: B repertoires, G genes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.parameters import check_choice
from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.representations import count_genes
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.errors import InputError
from deeprc.estimators import RepertoireEstimator

__all__ = [
    "GeneUsageFeatures",
    "compute_centred_log_ratios",
    "count_genes_by_field",
    "count_named_genes",
    "learn_gene_names",
    "list_genes",
    "take_named_columns",
]

_PSEUDOCOUNT = 0.5
_Number = TypeVar("_Number", bound=np.generic)


class GeneUsageFeatures(RepertoireEstimator):
    """A mixin class for linear models: the features are the centred log-ratios of the usage of genes.

    A subclass has the parameter `genes`: `v_call` for V genes only, `both` for V and J genes.

    Attributes
    ----------
    v_names_, j_names_
        Names of the genes that occur in the training repertoires, (G,) text each. Other genes are ignored.
    """

    genes: str
    v_names_: NDArray[np.str_]
    j_names_: NDArray[np.str_]

    def check_parameters(self) -> None:
        """Raise InputError if a parameter is wrong for any cohort."""
        super().check_parameters()
        check_choice("genes", self.genes, ("v_call", "both"))

    @classmethod
    def check_cohort(cls, X: RepertoireDataset) -> None:
        """Raise InputError if the container has no V genes."""
        if "v_call" not in X.gene_fields:
            raise InputError(f"{X.container.path}: has no v_call; the usage of V genes cannot be compared")

    def prepare(self, X: RepertoireDataset) -> None:
        """Count and cache the genes of the container's repertoires."""
        for field in X.gene_fields:
            list_genes(X[:0], field)

    def _learn_columns(self, X: RepertoireDataset) -> None:
        check_choice("genes", self.genes, ("v_call", "both"))
        fields = GENE_FIELDS if self.genes == "both" else ("v_call",)
        self.v_names_, self.j_names_ = learn_gene_names(X, fields)

    def _compute_features(self, X: RepertoireDataset) -> NDArray[np.float64]:
        counts = count_genes_by_field(X, self.v_names_, self.j_names_)
        return np.hstack([np.zeros((len(X), 0)), *map(compute_centred_log_ratios, counts)])


def list_genes(X: RepertoireDataset, field: str) -> list[str]:
    """Return the names of the genes that occur in the repertoires, sorted.

    Raises
    ------
    InputError
        If the container has no calls of this field.
    """
    counts, names = _load_gene_counts(X, field)
    return [name for name, n in zip(names, counts.sum(axis=0), strict=True) if n]


def count_named_genes(X: RepertoireDataset, field: str, names: Sequence[str]) -> NDArray[np.int64]:
    """Return the number of sequences of each repertoire with each of the named genes, (B, G).

    Raises
    ------
    InputError
        If the container has no calls of this field.
    """
    counts, counted_names = _load_gene_counts(X, field)
    return take_named_columns(counts, counted_names, names)


def take_named_columns(
    table: NDArray[_Number], known_names: Sequence[str], names: Sequence[str], *, absent: Any = 0
) -> NDArray[_Number]:
    """Return some columns of a table by their names, (B, len(names)).

    Parameters
    ----------
    table, known_names
        Table, (B, G), and the names of its columns.
    names
        Names of the columns to take.
    absent
        Values of a column that the table lacks, one number or (B,).
    """
    index_of = {name: index for index, name in enumerate(known_names)}
    last = np.full(len(table), absent, table.dtype)
    return np.column_stack([table, last])[:, [index_of.get(name, -1) for name in names]]


def learn_gene_names(X: RepertoireDataset, gene_fields: Collection[str]) -> tuple[NDArray[np.str_], NDArray[np.str_]]:
    """Return the names of the V and of the J genes of training repertoires; none for a field that is not asked for.

    Raises
    ------
    InputError
        If the container has no calls of one of these genes.
    """
    v_names, j_names = (
        np.array(list_genes(X, field) if field in gene_fields else [], np.str_) for field in GENE_FIELDS
    )
    return v_names, j_names


def count_genes_by_field(
    X: RepertoireDataset, v_names: NDArray[np.str_], j_names: NDArray[np.str_]
) -> list[NDArray[np.int64]]:
    """Return the number of sequences with each V gene and each J gene, (B, G) each; a field without names is left out.

    Raises
    ------
    InputError
        If the container has no calls of a field that has names.
    """
    names_by_field = zip(GENE_FIELDS, (v_names.tolist(), j_names.tolist()), strict=True)
    return [count_named_genes(X, field, names) for field, names in names_by_field if names]


def compute_centred_log_ratios(counts: NDArray[Any]) -> NDArray[np.float64]:
    """Return log(count + 0.5) of each gene, minus the mean over the genes, (B, G), from the counts, (B, G).

    The centred log-ratio: Aitchison 1986, The Statistical Analysis of Compositional Data.
    """
    logarithms = np.log(counts + _PSEUDOCOUNT)
    return np.asarray(logarithms - logarithms.mean(axis=1, keepdims=True))


def _load_gene_counts(X: RepertoireDataset, field: str) -> tuple[NDArray[np.int64], list[str]]:
    """Return the number of sequences with each gene, (B, G), and the names of the genes."""
    if field not in X.gene_fields:
        raise InputError(f"{X.container.path}: has no {field}")

    def compute(all_repertoires: RepertoireDataset) -> Arrays:
        counts, names = count_genes(all_repertoires, field)
        return {"counts": counts, "names": np.array(names, np.str_)}

    arrays = load_or_compute(X, "genes", {"field": field}, compute)
    return np.asarray(arrays["counts"][X.repertoire_indices]), [str(name) for name in arrays["names"]]
