"""Which genes the branches know, whether they are those of B cells, and checks that a container has the same ones."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from deeprc.baselines.gene_usage import count_named_genes, list_genes
from deeprc.datasets.categorical import Categorical
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.sequences import GENE_FIELDS
from deeprc.documents import abbreviate
from deeprc.errors import InputError

__all__ = ["check_some_genes_known", "get_known_genes", "has_heavy_chains", "list_frequent_genes"]

_MAX_GENES = 300  # IMGT has fewer V genes of any chain; ties, such as TRBV6-2/TRBV6-3, can be thousands of names


def has_heavy_chains(dataset: RepertoireDataset) -> bool:
    """Return whether most sequences of a dataset are heavy chains of B cells, by their V genes, with known J genes."""
    if any(field not in dataset.gene_fields or not list_genes(dataset, field) for field in GENE_FIELDS):
        return False
    names = list_genes(dataset, "v_call")
    counts = count_named_genes(dataset, "v_call", names).sum(axis=0)
    n_heavy = sum(n for name, n in zip(names, counts.tolist(), strict=True) if name.startswith("IGH"))
    return bool(2 * n_heavy > dataset.n_sequences.sum())


def list_frequent_genes(dataset: RepertoireDataset, field: str) -> list[str]:
    """Return the genes of a field that occur in the repertoires, sorted; only the 300 most frequent of the container.

    Raises
    ------
    InputError
        If the container has no calls of this field.
    """
    names = list_genes(dataset, field)
    every_name = list_genes(dataset.whole(), field)
    if len(every_name) <= _MAX_GENES:
        return names
    counts = count_named_genes(dataset.whole(), field, every_name).sum(axis=0)
    frequent = {every_name[index] for index in np.argsort(-counts, kind="stable")[:_MAX_GENES].tolist()}
    return [name for name in names if name in frequent]


def get_known_genes(repertoire: Repertoire, field: str, known: Collection[str]) -> Categorical:
    """Return the genes of the sequences of a repertoire.

    Raises
    ------
    InputError
        If the container has none, or if the branch `composition` knows none of them.
    """
    genes, path = repertoire.sequences.genes, repertoire.container.path
    if field not in genes:
        raise InputError(f"{path}: has no {field}, which the branch `composition` of the model needs")
    check_some_genes_known(path, field, known, genes[field].vocabulary)
    return genes[field]


def check_some_genes_known(source: object, field: str, known: Collection[str], given: Collection[str]) -> None:
    """Raise InputError if a container has genes, but a branch knows none of their names.

    Parameters
    ----------
    source
        Path of the container.
    field
        Field of the genes, `v_call` or `j_call`.
    known, given
        Names that the branch knows, and names in the container; "" is an unknown gene.
    """
    known, given = sorted(set(known) - {""}), sorted(set(given) - {""})
    if known and not set(known) & set(given):
        example = abbreviate(given[0]) if given else "none"
        expected = f"expected genes named as in training, such as {known[0]!r}"
        raise InputError(f"{source}: {field}: {expected}, found {example}")
