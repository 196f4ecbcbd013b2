"""The kinds of features of the branch `composition`, and a linear function of them.

Letters: M 4-mers, G genes, Q features of abundances, E 3-mers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from deeprc.arrays import Floats

__all__ = ["FREQUENCY_KINDS", "KIND_NAMES", "Kind", "LassoKind", "LinearFunction", "ModelKind", "name_kind"]

Kind = Literal["kmers", "genes", "abundances", "expansion", "gene_expansion"]
"""A kind of features."""

ModelKind = Literal["kmers", "overdispersed_kmers", "genes", "abundances", "expansion", "gene_expansion"]
"""A kind of features of a model: all k-mers, those that are overdispersed, or another kind."""

LassoKind = Literal["genes", "gene_expansion", "overdispersed_kmers"]
"""A kind of features that has lasso models, which use a few of the features only."""

KIND_NAMES: Mapping[Kind, str] = {
    "kmers": "k-mers",
    "genes": "genes",
    "abundances": "counts",
    "expansion": "k-mers weighted by counts",
    "gene_expansion": "genes weighted by counts",
}
"""What logs and tables call the kinds of features."""

FREQUENCY_KINDS: Sequence[Kind] = ("genes", "kmers")
"""The kinds that are frequencies among sequences, or among clonal families if each counts once."""


def name_kind(kind: Kind, *, of_families: bool) -> str:
    """Return what logs call a kind of features of sequences, or of clonal families."""
    return f"{KIND_NAMES[kind]} of clonal families" if of_families and kind in FREQUENCY_KINDS else KIND_NAMES[kind]


@dataclass(frozen=True)
class LinearFunction:
    """A linear function of unscaled features, or their means.

    Attributes
    ----------
    kmers, genes, abundances
        Weights, or means, of 4-mers, (M,), genes, (G,), and abundances, (Q,).
    expansion, gene_expansion
        Weights, or means, of 3-mers, (E,), and genes, (G,), of expanded clones.
    """

    kmers: Floats
    genes: Floats
    abundances: Floats
    expansion: Floats
    gene_expansion: Floats

    def __add__(self, other: LinearFunction) -> LinearFunction:
        """Return the sum of two functions."""
        return LinearFunction(*(getattr(self, kind) + getattr(other, kind) for kind in get_args(Kind)))
