"""Checks that a container has the same names of genes as the repertoires to which a branch was fitted."""

from __future__ import annotations

from collections.abc import Collection

from deeprc.datasets.categorical import Categorical
from deeprc.datasets.dataset import Repertoire
from deeprc.documents import abbreviate
from deeprc.errors import InputError

__all__ = ["check_some_genes_known", "get_known_genes"]


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
