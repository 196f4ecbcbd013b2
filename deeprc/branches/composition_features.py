"""Features of the branch `composition`, in the form of inner products between repertoires.

There are five kinds of features: k-mers, genes, abundances, expansion and gene expansion. The matrix of inner products
of each kind is divided by the mean of its diagonal. So the kinds can be mixed, and C has about the same meaning for
each mixture.

- The k-mers have 1 to 4 residues; each length has a quarter of the inner products. All k-mers of one length have one
  common scale. Frequencies of shorter k-mers are sums over the 4-mers that begin with them. So a difference that many
  4-mers share has a smaller penalty than as many differences of single 4-mers.
- Each gene's centred log-ratio is divided by its standard deviation.
- So is each feature of the abundances. A repertoire without known counts has the mean of the others.
- Expansion: the k-mers of expanded clones. They have 1 to 3 residues, and scales as the k-mers have.
- Gene expansion: the genes of expanded clones, with one common scale. If each gene were divided by its own standard
  deviation, a gene that is hardly seen in training would have huge values in new repertoires. Unknown counts: as
  abundances.

Letters: B repertoires, M 4-mers, G genes, Q features of abundances, E 3-mers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.baselines.gene_usage import compute_centred_log_ratios, count_named_genes, list_genes
from deeprc.baselines.standardised_columns import StandardisedColumns
from deeprc.branches.abundances import TOP_FRACTIONS, compute_log_top_shares_table
from deeprc.branches.composition import NOISE_SEQUENCES, K
from deeprc.branches.expansion import N_EXPANSION_KMERS, compute_expansion_table, compute_gene_expansion_table
from deeprc.branches.linear_function import Kind, LinearFunction, SparseKind
from deeprc.datasets.alphabet import AMINO_ACIDS
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.representations import compute_kmer_frequencies

__all__ = ["CompositionFeatures"]

_N_LETTERS = len(AMINO_ACIDS)


class _KmerColumns:
    """The frequencies of k-mers of several lengths, in the form of inner products between repertoires.

    Parameters
    ----------
    rows
        Features of the longest k-mers, (B, 20 ** k) float32.
    weights
        Weights of the repertoires, (B,).

    Attributes
    ----------
    centre
        Mean features of the longest k-mers, (20 ** k,).
    shorter
        Features of the k-mers with one residue fewer, (B, 20 ** (k - 1)) float32.
    products
        Inner products between repertoires, (B, B); None if no feature varies.
    """

    def __init__(self, rows: NDArray[np.float32], weights: Floats) -> None:
        self._columns = [StandardisedColumns(rows, scale="common", weights=weights)]
        self.shorter = _sum_last_residue(rows)
        rows = self.shorter
        while rows.shape[1] >= _N_LETTERS:
            self._columns.append(StandardisedColumns(rows, scale="common", weights=weights))
            rows = _sum_last_residue(rows)
        self.centre = self._columns[0].centre
        parts = [_scale_to_unit_diagonal(columns.compute_gram()) for columns in self._columns]
        self._scales = [scale / len(parts) for scale, _ in parts]
        varying = [products for _, products in parts if products is not None]
        self.products = np.asarray(sum(varying) / len(parts)) if varying else None

    def combine(self, dual: Floats) -> Floats:
        """Return the sum of the features of the repertoires times their weights, (B,): (20 ** k,)."""
        total = np.zeros(self._columns[0].shape[1])
        for columns, scale in zip(self._columns, self._scales, strict=True):
            weights = scale * columns.factor * columns.compute_products(dual)
            total += np.repeat(weights, len(total) // len(weights))
        return total


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
    centre
        Mean features, with the weights `size_weights`.
    """

    def __init__(self, dataset: RepertoireDataset, *, with_counts: bool = True) -> None:
        self.size_weights: Floats = dataset.n_sequences / (dataset.n_sequences + NOISE_SEQUENCES)
        self._kmers = _KmerColumns(np.asarray(compute_kmer_frequencies(dataset, range(K))), self.size_weights)
        self.genes = {field: tuple(list_genes(dataset, field)) for field in dataset.gene_fields}
        ratios = [
            compute_centred_log_ratios(count_named_genes(dataset, field, names))
            for field, names in self.genes.items()
            if names
        ]
        shares = np.zeros((len(dataset), len(TOP_FRACTIONS)))
        expansion = np.zeros((len(dataset), N_EXPANSION_KMERS), np.float32)
        gene_expansion = np.zeros((len(dataset), sum(map(len, self.genes.values()))))
        if with_counts:
            shares, expansion = compute_log_top_shares_table(dataset), compute_expansion_table(dataset)
            gene_expansion = compute_gene_expansion_table(dataset, self.genes)
        weights = self.size_weights
        known, ranked = (weights * ~np.isnan(rows).any(axis=1) for rows in (shares, expansion))
        self.known_weights: dict[Kind, Floats] = {"kmers": weights, "genes": weights, "abundances": known}
        self.known_weights |= {"expansion": ranked, "gene_expansion": ranked}
        self._rows = {
            "genes": np.hstack([np.zeros((len(dataset), 0)), *ratios]),
            "abundances": _fill_unknown(shares, weights),
            "gene_expansion": _fill_unknown(gene_expansion, weights),
        }
        self._columns = {
            kind: StandardisedColumns(rows, scale="common" if kind == "gene_expansion" else "standard", weights=weights)
            for kind, rows in self._rows.items()
        }
        scaled = {kind: _scale_to_unit_diagonal(columns.compute_gram()) for kind, columns in self._columns.items()}
        self._scales = {kind: scale for kind, (scale, _) in scaled.items()}
        self._expansion = _KmerColumns(_fill_unknown(expansion, weights), weights)
        kmers = {"kmers": self._kmers, "expansion": self._expansion}
        self.centre = LinearFunction(**{kind: columns.centre for kind, columns in (kmers | self._columns).items()})
        products = {kind: kmer.products for kind, kmer in kmers.items()}
        products |= {kind: kind_products for kind, (_, kind_products) in scaled.items()}
        self.products: dict[Kind, Floats] = {
            kind: kind_products for kind in get_args(Kind) if (kind_products := products[kind]) is not None
        }

    def make_linear_function(self, dual: Floats, shares: Mapping[Kind, float]) -> LinearFunction:
        """Return the linear function that belongs to weights of the repertoires: the weighted sum of their features.

        Parameters
        ----------
        dual
            Weights of the repertoires, (B,).
        shares
            Shares of the kinds of features in the inner products to which the weights belong.
        """
        weights = {"kmers": self._kmers.combine(dual), "expansion": self._expansion.combine(dual)}
        for kind, columns in self._columns.items():
            weights[kind] = self._scales[kind] * columns.factor * columns.compute_products(dual)
        return LinearFunction(**{kind: shares.get(kind, 0) * weights[kind] for kind in get_args(Kind)})

    def get_rows(self, kind: SparseKind) -> NDArray[Any]:
        """Return the features of one kind, unscaled: of the genes, (B, G), or of 3-mers, (B, E)."""
        return self._kmers.shorter if kind == "kmers" else self._rows[kind]

    def make_sparse_function(self, kind: SparseKind, weights: Floats) -> LinearFunction:
        """Return the linear function of weights of the features of `get_rows`, (G,) or (E,)."""
        zeros = {other: np.zeros_like(getattr(self.centre, other)) for other in get_args(Kind)}
        return LinearFunction(**zeros | {kind: np.repeat(weights, _N_LETTERS) if kind == "kmers" else weights})

    def mix_inner_products(self, shares: Mapping[Kind, float]) -> Floats:
        """Return the inner products, (B, B), of a mixture of kinds of features, which must vary."""
        return np.asarray(sum(share * self.products[kind] for kind, share in shares.items()))


def _sum_last_residue(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the features of the k-mers without their last residue, (B, 20 ** (k - 1)), of (B, 20 ** k)."""
    return np.asarray(rows.reshape(len(rows), -1, _N_LETTERS).sum(axis=2))


def _fill_unknown(rows: NDArray[Any], weights: Floats) -> NDArray[Any]:
    """Return the features, (B, F), where the mean of the other rows, weighted by (B,), replaces each row of NaN."""
    known = np.asarray(~np.isnan(rows).any(axis=1))
    total = weights[known].sum()
    mean = weights[known] @ rows[known] / total if total > 0 else np.zeros(rows.shape[1])
    return np.where(known[:, None], rows, mean).astype(rows.dtype)


def _scale_to_unit_diagonal(gram: Floats) -> tuple[float, Floats | None]:
    """Return a factor and the inner products times it, so that their mean diagonal is 1; 0 and None if all are 0."""
    mean = float(np.trace(gram)) / max(len(gram), 1)
    return (1 / mean, gram / mean) if mean > 0 else (0.0, None)
