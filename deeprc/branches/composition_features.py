"""Features of the branch `composition`, in the form of inner products between repertoires.

There are three kinds of features: k-mers, genes and abundances. The matrix of inner products of each kind is divided by
the mean of its diagonal. So the kinds can be mixed, and C has about the same meaning for each mixture.

- The k-mers have 1 to 4 residues; each length has a quarter of the inner products. All k-mers of one length have one
  common scale. Frequencies of shorter k-mers are sums over the 4-mers that begin with them. So a difference that many
  4-mers share has a smaller penalty than as many differences of single 4-mers.
- Each gene's centred log-ratio is divided by its standard deviation.
- So is each feature of the abundances. A repertoire without known counts has the mean of the others.

Letters: B repertoires, M 4-mers, G genes, Q features of abundances.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.baselines.columns import Columns
from deeprc.baselines.gene_usage import compute_centred_log_ratios, count_named_genes, list_genes
from deeprc.branches.abundances import TOP_FRACTIONS, compute_log_top_shares_table
from deeprc.branches.composition import NOISE_SEQUENCES, K
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.representations import compute_kmer_frequencies

__all__ = ["CompositionFeatures", "Kind", "LinearFunction"]

Kind = Literal["kmers", "genes", "abundances"]
"""A kind of features."""

_N_LETTERS = len(AMINO_ACIDS)


@dataclass(frozen=True)
class LinearFunction:
    """A linear function of unscaled features: weights of 4-mers, (M,), of genes, (G,), and of abundances, (Q,)."""

    kmers: Floats
    genes: Floats
    abundances: Floats


class CompositionFeatures:
    """The features of the training repertoires.

    Parameters
    ----------
    dataset
        The B repertoires.
    with_counts
        Whether the counts are read; if not, their features are constant.

    Attributes
    ----------
    size_weights
        Weight of the features of each repertoire, n / (n + m), (B,), where n is its number of sequences and m is
        `NOISE_SEQUENCES`.
    known_weights
        The same weights for each kind of features, where those of unknown features are 0.
    genes
        Names of the genes that occur, by field.
    products
        Inner products between repertoires, (B, B), of each kind of features that vary.
    kmer_centre, gene_centre, abundance_centre
        Mean features, (M,), (G,) and (Q,), with the weights `size_weights`.
    """

    def __init__(self, dataset: RepertoireDataset, *, with_counts: bool = True) -> None:
        self.size_weights: Floats = dataset.n_sequences / (dataset.n_sequences + NOISE_SEQUENCES)
        self._kmers = self._count_kmers(dataset)
        self.genes = {field: tuple(list_genes(dataset, field)) for field in dataset.gene_fields}
        ratios = [
            compute_centred_log_ratios(count_named_genes(dataset, field, names))
            for field, names in self.genes.items()
            if names
        ]
        self._gene_ratios: Floats = np.hstack([np.zeros((len(dataset), 0)), *ratios])
        self._genes = Columns(self._gene_ratios, scale="standard", weights=self.size_weights)
        shares = compute_log_top_shares_table(dataset) if with_counts else np.zeros((len(dataset), len(TOP_FRACTIONS)))
        is_known = ~np.isnan(shares).any(axis=1)
        self.known_weights: dict[Kind, Floats] = dict.fromkeys(get_args(Kind), self.size_weights)
        self.known_weights["abundances"] = self.size_weights * is_known
        self._abundances = Columns(_fill_unknown(shares, self.size_weights), weights=self.size_weights)
        self.kmer_centre, self.gene_centre = self._kmers[0].centre, self._genes.centre
        self.abundance_centre = self._abundances.centre
        self._gene_scale, gene_products = _scale_to_unit_diagonal(self._genes.gram())
        self._abundance_scale, abundance_products = _scale_to_unit_diagonal(self._abundances.gram())
        parts = [_scale_to_unit_diagonal(columns.gram()) for columns in self._kmers]
        self._kmer_scales = [scale / len(parts) for scale, _ in parts]
        varying = [products for _, products in parts if products is not None]
        kmer_products = np.asarray(sum(varying) / len(parts)) if varying else None
        of_kinds = zip(get_args(Kind), (kmer_products, gene_products, abundance_products), strict=True)
        self.products: dict[Kind, Floats] = {kind: found for kind, found in of_kinds if found is not None}

    def _count_kmers(self, dataset: RepertoireDataset) -> list[Columns]:
        """Return the frequencies of the k-mers with K, K - 1, ... 1 residues."""
        rows = np.asarray(compute_kmer_frequencies(dataset, range(K)))
        columns = [Columns(rows, scale="common", weights=self.size_weights)]
        while rows.shape[1] > _N_LETTERS:
            rows = rows.reshape(len(rows), -1, _N_LETTERS).sum(axis=2)
            columns.append(Columns(rows, scale="common", weights=self.size_weights))
        return columns

    def make_linear_function(self, dual: Floats, shares: Mapping[Kind, float]) -> LinearFunction:
        """Return the linear function that belongs to weights of the repertoires: the weighted sum of their features.

        Parameters
        ----------
        dual
            Weights of the repertoires, (B,).
        shares
            Shares of the kinds of features in the inner products to which the weights belong.
        """
        kmers = np.zeros(self._kmers[0].shape[1])
        for columns, scale in zip(self._kmers, self._kmer_scales, strict=True):
            weights = shares.get("kmers", 0) * scale * columns.factor * columns.products(dual)
            kmers += np.repeat(weights, len(kmers) // len(weights))
        genes = shares.get("genes", 0) * self._gene_scale * self._genes.factor * self._genes.products(dual)
        columns, scale = self._abundances, shares.get("abundances", 0) * self._abundance_scale
        return LinearFunction(kmers, genes, scale * columns.factor * columns.products(dual))

    def centre_genes(self, present: NDArray[np.bool_]) -> Floats:
        """Return size_weights * (x - mean), (B, G), for the centred log-ratios x of the genes.

        Parameters
        ----------
        present
            Whether each repertoire counts for the mean, which has the weights `size_weights`, (B,).
        """
        centre = Columns(self._gene_ratios, weights=self.size_weights * present).centre
        return np.asarray(self.size_weights[:, None] * (self._gene_ratios - centre))

    def make_gene_function(self, weights: Floats) -> LinearFunction:
        """Return the linear function of weights of the genes, (G,), as of `centre_genes`."""
        return LinearFunction(np.zeros(self._kmers[0].shape[1]), weights, np.zeros(self._abundances.shape[1]))

    def mix_inner_products(self, shares: Mapping[Kind, float]) -> Floats:
        """Return the inner products, (B, B), of a mixture of kinds of features, which must vary."""
        return np.asarray(sum(share * self.products[kind] for kind, share in shares.items()))


def _fill_unknown(rows: Floats, weights: Floats) -> Floats:
    """Return rows of features, (B, Q), where rows of NaN have become the mean of the others with weights, (B,)."""
    known = np.asarray(~np.isnan(rows).any(axis=1))
    total = weights[known].sum()
    mean = weights[known] @ rows[known] / total if total > 0 else np.zeros(rows.shape[1])
    return np.where(known[:, None], rows, mean)


def _scale_to_unit_diagonal(gram: Floats) -> tuple[float, Floats | None]:
    """Return a factor and the inner products times it, so that their mean diagonal is 1; 0 and None if all are 0."""
    mean = float(np.trace(gram)) / max(len(gram), 1)
    return (1 / mean, gram / mean) if mean > 0 else (0.0, None)
