"""Count the sequences with each gene, by the name of the gene; the counts are cached beside the container.

Letters: B repertoires, G genes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.clones import list_gene_fields
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.representations import count_genes
from deeprc.errors import InputError

__all__ = ["centred_log_ratios", "count_named_genes", "has_genes", "list_genes"]

_PSEUDOCOUNT = 0.5


def has_genes(X: RepertoireDataset, field: str) -> bool:
    """Return whether the container has a column of gene calls, `v_call` or `j_call`."""
    return field in list_gene_fields(X)


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
    counts, known = _load_gene_counts(X, field)
    index_of = {name: index for index, name in enumerate(known)}
    table = np.zeros((len(X), len(names)), np.int64)
    for column, name in enumerate(names):
        if name in index_of:
            table[:, column] = counts[:, index_of[name]]
    return table


def centred_log_ratios(counts: NDArray[Any]) -> NDArray[np.float64]:
    """Return log(count + 0.5) of each gene, less the mean over the genes, (B, G), from the counts, (B, G).

    The centred log-ratio: Aitchison 1986, The Statistical Analysis of Compositional Data.
    """
    logarithms = np.log(counts + _PSEUDOCOUNT)
    return np.asarray(logarithms - logarithms.mean(axis=1, keepdims=True))


def _load_gene_counts(X: RepertoireDataset, field: str) -> tuple[NDArray[np.int64], list[str]]:
    if not has_genes(X, field):
        raise InputError(f"{X.container.path}: has no {field}")

    def compute(whole: RepertoireDataset) -> Arrays:
        counts, names = count_genes(whole, field)
        return {"counts": counts, "names": np.array(names, np.str_)}

    arrays = load_or_compute(X, "genes", {"field": field}, compute)
    return np.asarray(arrays["counts"][X.rows]), [str(name) for name in arrays["names"]]
