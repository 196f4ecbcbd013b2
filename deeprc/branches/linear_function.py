"""The kinds of features of the branch `composition`, and a linear function of them.

Letters: M 4-mers, G genes, Q features of abundances, E 3-mers, R residues at positions, P pairs of genes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from deeprc.arrays import Floats

__all__ = [
    "FREQUENCY_KINDS",
    "KIND_NAMES",
    "KIND_OF_MODEL",
    "Kind",
    "LassoKind",
    "LinearFunction",
    "ModelKind",
    "name_kind",
]

Kind = Literal["kmers", "genes", "abundances", "expansion", "gene_expansion", "residues", "gene_pairs"]
"""A kind of features."""

ModelKind = Literal[
    "kmers",
    "overdispersed_kmers",
    "genes",
    "abundances",
    "expansion",
    "gene_expansion",
    "length",
    "gene_lengths",
    "residues",
    "gene_residues",
    "gene_pairs",
]
"""A kind of features of a model: a kind above, or some of its features, or sums of them, see `KIND_OF_MODEL`."""

KIND_OF_MODEL: Mapping[ModelKind, Kind] = {
    "kmers": "kmers",
    "overdispersed_kmers": "kmers",
    "genes": "genes",
    "abundances": "abundances",
    "expansion": "expansion",
    "gene_expansion": "gene_expansion",
    "length": "residues",
    "gene_lengths": "residues",
    "residues": "residues",
    "gene_residues": "residues",
    "gene_pairs": "gene_pairs",
}
"""The kind of features whose weights a model sets."""

LassoKind = Literal["genes", "gene_expansion", "overdispersed_kmers"]
"""A kind of features that has lasso models, which use a few of the features only."""

KIND_NAMES: Mapping[Kind, str] = {
    "kmers": "k-mers",
    "genes": "genes",
    "abundances": "counts",
    "expansion": "k-mers weighted by counts",
    "gene_expansion": "genes weighted by counts",
    "residues": "residues",
    "gene_pairs": "gene pairs",
}
"""What logs and tables call the kinds of features."""

FREQUENCY_KINDS: Sequence[Kind] = ("genes", "kmers", "residues", "gene_pairs")
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
    residues
        Weights, or means, of residues at positions by V gene, (R,), see `deeprc.branches.residues`.
    gene_pairs
        Weights, or means, of pairs of a V gene and a J gene, (P,), see `deeprc.branches.gene_pairs`.
    """

    kmers: Floats
    genes: Floats
    abundances: Floats
    expansion: Floats
    gene_expansion: Floats
    residues: Floats
    gene_pairs: Floats

    def __add__(self, other: LinearFunction) -> LinearFunction:
        """Return the sum of two functions."""
        return LinearFunction(*(getattr(self, kind) + getattr(other, kind) for kind in get_args(Kind)))
