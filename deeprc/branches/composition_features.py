"""Features of the branch `composition`, in the form of inner products between repertoires.

There are two kinds of features: k-mers and genes. The matrix of inner products of each kind is divided by the mean of
its diagonal. So the kinds can be mixed, and C has about the same meaning for each mixture.


- The k-mers have 1 to 4 residues; each length has a quarter of the inner products. All k-mers of one length have one
  common scale. Frequencies of shorter k-mers are sums over the 4-mers that begin with them. So a difference that many
  4-mers share has a smaller penalty than as many differences of single 4-mers.
- Each gene's centred log-ratio is divided by its standard deviation.

Letters: B repertoires, M 4-mers, G genes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.baselines.columns import Columns
from deeprc.baselines.gene_usage import centred_log_ratios, count_named_genes, list_genes
from deeprc.branches.composition import NOISE_SEQUENCES, K
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.representations import compute_kmer_frequencies

__all__ = ["CompositionFeatures", "LinearFunction"]

_N_LETTERS = len(AMINO_ACIDS)


@dataclass(frozen=True)
class LinearFunction:
    """A linear function of unscaled features: weights of the 4-mers, (M,), and of the genes, (G,)."""

    kmers: Floats
    genes: Floats


class CompositionFeatures:
    """The features of the training repertoires.

    Parameters
    ----------
    dataset
        The B repertoires.

    Attributes
    ----------
    size_weights
        Weight of the features of each repertoire, n / (n + m), (B,), where n is its number of sequences and m is
        `NOISE_SEQUENCES`.
    genes
        Names of the genes that occur, by field.
    kmer_products, gene_products
        Inner products between repertoires, (B, B); None if no feature varies.
    kmer_centre, gene_centre
        Mean features, (M,) and (G,), with the weights `size_weights`.
    """

    def __init__(self, dataset: RepertoireDataset) -> None:
        self.size_weights: Floats = dataset.n_sequences / (dataset.n_sequences + NOISE_SEQUENCES)
        self._kmers = self._count_kmers(dataset)
        self.genes = {field: tuple(list_genes(dataset, field)) for field in dataset.gene_fields}
        ratios = [
            centred_log_ratios(count_named_genes(dataset, field, names)) for field, names in self.genes.items() if names
        ]
        self._gene_ratios: Floats = np.hstack([np.zeros((len(dataset), 0)), *ratios])
        self._genes = Columns(self._gene_ratios, scale="standard", weights=self.size_weights)
        self.kmer_centre, self.gene_centre = self._kmers[0].centre, self._genes.centre
        self._gene_scale, self.gene_products = _scale_to_unit_diagonal(self._genes.gram())
        parts = [_scale_to_unit_diagonal(columns.gram()) for columns in self._kmers]
        self._kmer_scales = [scale / len(parts) for scale, _ in parts]
        varying = [products for _, products in parts if products is not None]
        self.kmer_products = np.asarray(sum(varying) / len(parts)) if varying else None

    def _count_kmers(self, dataset: RepertoireDataset) -> list[Columns]:
        """Return the frequencies of the k-mers with K, K - 1, ... 1 residues."""
        rows = np.asarray(compute_kmer_frequencies(dataset, range(K)))
        columns = [Columns(rows, scale="common", weights=self.size_weights)]
        while rows.shape[1] > _N_LETTERS:
            rows = rows.reshape(len(rows), -1, _N_LETTERS).sum(axis=2)
            columns.append(Columns(rows, scale="common", weights=self.size_weights))
        return columns

    def make_linear_function(self, dual: Floats, kmer_share: float) -> LinearFunction:
        """Return the linear function that belongs to weights of the repertoires: the weighted sum of their features.

        Parameters
        ----------
        dual
            Weights of the repertoires, (B,).
        kmer_share
            Share of the k-mers in the inner products to which the weights belong; the rest is the share of genes.
        """
        kmers = np.zeros(self._kmers[0].shape[1])
        for columns, scale in zip(self._kmers, self._kmer_scales, strict=True):
            weights = kmer_share * scale * columns.factor * columns.products(dual)
            kmers += np.repeat(weights, len(kmers) // len(weights))
        genes = (1 - kmer_share) * self._gene_scale * self._genes.factor * self._genes.products(dual)
        return LinearFunction(kmers, genes)

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
        return LinearFunction(np.zeros(self._kmers[0].shape[1]), weights)

    def mix_inner_products(self, kmer_shares: Sequence[float]) -> dict[float, Floats]:
        """Return the inner products, (B, B), of mixtures of both kinds of features, by the share of the k-mers.

        A mixture is left out if a kind that it needs does not vary.
        """
        found = {}
        for share in kmer_shares:
            parts = [(share, self.kmer_products), (1 - share, self.gene_products)]
            used = [weight * products for weight, products in parts if weight > 0 and products is not None]
            if len(used) == sum(weight > 0 for weight, _ in parts):
                found[share] = np.asarray(sum(used))
        return found


def _scale_to_unit_diagonal(gram: Floats) -> tuple[float, Floats | None]:
    """Return a factor and the inner products times it, so that their mean diagonal is 1; 0 and None if all are 0."""
    mean = float(np.trace(gram)) / max(len(gram), 1)
    return (1 / mean, gram / mean) if mean > 0 else (0.0, None)
