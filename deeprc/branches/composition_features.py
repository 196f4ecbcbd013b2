"""Features of the branch `composition`, in the form of inner products between repertoires.

There are many more features than repertoires. So linear models are learned from the inner products of the features of
each two repertoires (the Gram matrix, B x B). Such a model has one weight for each repertoire, its dual weights a. The
weights of the features are then the sum of a_b x_b over the repertoires b, where x_b are the features of b, centred and
scaled (`compute_weights`).

There are eleven kinds of features: k-mers, overdispersed k-mers, genes, abundances, expansion, gene expansion, length,
gene lengths, residues, gene residues and gene pairs. The matrix of inner products of each kind is divided by the mean
of its diagonal. So the kinds can be mixed, and C has about the same meaning for each mixture.

- The k-mers have 1 to 4 residues; each length has a quarter of the inner products. All k-mers of one length have one
  common scale. Frequencies of shorter k-mers are sums over the 4-mers that begin with them. So a difference that many
  4-mers share has a smaller penalty than as many differences of single 4-mers.
- Overdispersed k-mers are the 3-mers whose frequencies vary more between repertoires than counting explains. Each is
  divided by its standard deviation. In small repertoires they are some 250 of 8,000, so the others cannot hide a
  difference of a few of them. No label is used to choose them; at most 2,000 have the highest z-scores.
- Each gene's centred log-ratio is divided by its standard deviation.
- So is each feature of the abundances. A repertoire without known counts has the mean of the others.
- Expansion: the k-mers of expanded clones. They have 1 to 3 residues, and scales as the k-mers have.
- Gene expansion: the genes of expanded clones, with one common scale. If each gene were divided by its own standard
  deviation, a gene that is hardly seen in training would have huge values in new repertoires. Unknown counts: as
  abundances.
- Gene residues are the features of `deeprc.branches.residues`, with one common scale. Residues are their sums over the
  V genes, each divided by its standard deviation. Gene lengths are their sums over the residues, with one common scale,
  and the length is the sum of all. So a difference that many features share has a smaller penalty.
- Gene pairs (`deeprc.branches.gene_pairs`) have one common scale.

Letters: B repertoires, M 4-mers, G genes, Q features of abundances, E 3-mers, F residues at positions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Flags, Floats
from deeprc.baselines.gene_usage import compute_centred_log_ratios
from deeprc.branches.abundances import choose_richness_depth, compute_abundance_table, name_abundance_features
from deeprc.branches.composition_description import NOISE_SEQUENCES
from deeprc.branches.expansion import N_EXPANSION_KMERS, compute_expansion_table, compute_gene_expansion_table
from deeprc.branches.frequencies import RepertoireFrequencies
from deeprc.branches.gene_pairs import compute_gene_pairs
from deeprc.branches.genes import list_frequent_genes
from deeprc.branches.linear_function import Kind, LassoKind, LinearFunction, ModelKind
from deeprc.branches.residues import ExpectedResidues
from deeprc.branches.scaled_features import ScaledFeatures, ScaledKmers, ScaledOverdispersedKmers, ScaledResidues
from deeprc.datasets.dataset import RepertoireDataset

__all__ = ["CompositionFeatures"]


class CompositionFeatures:
    """The features of the training repertoires.

    Parameters
    ----------
    dataset
        The B repertoires.
    of_families
        Whether each clonal family counts once in the frequencies of k-mers, genes and residues.
    with_counts
        Whether the counts are read; if not, their features are constant.

    Attributes
    ----------
    of_families
        See above.
    size_weights
        Weight of the features of each repertoire, n / (n + m), (B,), where n is its number of sequences, or of
        families, and m is `NOISE_SEQUENCES`.
    known_weights
        The same weights for each kind of features, where those of unknown features are 0.
    genes
        Names of the genes that occur, by field, see `list_frequent_genes`.
    richness_depth
        Number of counts at which numbers of clones are compared.
    expected_residues
        Which residues are expected from the genes of a sequence.
    products
        Inner products between repertoires, (B, B), of each kind of features that vary.
    centre
        Mean features, with the weights `size_weights`.
    """

    def __init__(self, dataset: RepertoireDataset, *, of_families: bool = False, with_counts: bool = True) -> None:
        self.of_families = of_families
        frequencies = RepertoireFrequencies(dataset, of_families=of_families)
        self.size_weights: Floats = frequencies.sizes / (frequencies.sizes + NOISE_SEQUENCES)
        self.genes = {field: tuple(list_frequent_genes(dataset, field)) for field in dataset.gene_fields}
        weights = self.size_weights
        self.richness_depth = choose_richness_depth(dataset) if with_counts else 1
        compute = _compute_count_tables if with_counts else _make_zeros
        counts = compute(dataset, self.genes, self.richness_depth)
        has_abundances, has_expansion = _find_known(counts.abundances), _find_known(counts.expansion)
        self.known_weights: dict[ModelKind, Floats] = {
            **dict.fromkeys(get_args(ModelKind), weights),
            "abundances": weights * has_abundances,
            "expansion": weights * has_expansion,
            "gene_expansion": weights * has_expansion,
        }
        kmers = ScaledKmers(frequencies.get_kmers(), weights)
        self._overdispersed = ScaledOverdispersedKmers(kmers.shorter, weights, frequencies.sizes)
        learned = _learn_residues(frequencies, self.genes, weights)
        self.expected_residues, self._residues, gene_pairs = learned
        self._by_kind: dict[ModelKind, ScaledKmers | ScaledFeatures] = {
            "kmers": kmers,
            "genes": ScaledFeatures(_compute_gene_ratios(frequencies, self.genes), weights, scale="standard"),
            "abundances": ScaledFeatures(_fill_unknown(counts.abundances, weights), weights, scale="standard"),
            "expansion": ScaledKmers(_fill_unknown(counts.expansion, weights), weights),
            "gene_pairs": ScaledFeatures(compute_gene_pairs(gene_pairs), weights, scale="common"),
            "gene_expansion": ScaledFeatures(_fill_unknown(counts.gene_expansion, weights), weights, scale="common"),
        }
        centres = {kind: features.centre for kind, features in self._by_kind.items()}
        self.centre = LinearFunction(**centres, residues=self._residues.centre)
        self.products: dict[ModelKind, Floats] = dict(self._residues.products)
        for kind, features in self._by_kind.items():
            if features.products is not None:
                self.products[kind] = features.products
        if self._overdispersed.products is not None:
            self.products["overdispersed_kmers"] = self._overdispersed.products

    def make_linear_function(self, dual: Floats, shares: Mapping[ModelKind, float]) -> LinearFunction:
        """Return the linear function of a model from its dual weights.

        Parameters
        ----------
        dual
            Dual weights: one for each repertoire, (B,).
        shares
            Shares of the kinds of features in the inner products from which the model was learned.
        """
        weights = {
            kind: shares.get(kind, 0) * features.compute_weights(dual) for kind, features in self._by_kind.items()
        }
        weights["kmers"] += shares.get("overdispersed_kmers", 0) * self._overdispersed.compute_weights(dual)
        return LinearFunction(**weights, residues=self._residues.compute_weights(dual, shares))

    def get_table(self, kind: LassoKind) -> NDArray[Any]:
        """Return the features of a kind, unscaled, (B, F)."""
        features = self._overdispersed if kind == "overdispersed_kmers" else self._by_kind[kind]
        assert not isinstance(features, ScaledKmers)
        return features.table

    def make_lasso_function(self, kind: LassoKind, weights: Floats) -> LinearFunction:
        """Return the linear function of weights of the features of `get_table`, (F,)."""
        zeros = {other: np.zeros_like(getattr(self.centre, other)) for other in get_args(Kind)}
        if kind == "overdispersed_kmers":
            return LinearFunction(**zeros | {"kmers": self._overdispersed.expand(weights)})
        return LinearFunction(**zeros | {kind: weights})

    def mix_inner_products(self, shares: Mapping[ModelKind, float]) -> Floats:
        """Return the inner products, (B, B), of a mixture of kinds of features, which must vary."""
        return np.asarray(sum(share * self.products[kind] for kind, share in shares.items()))


class _CountTables(NamedTuple):
    """Features of the repertoires that depend on the counts; rows of NaN where the counts are not known.

    Attributes
    ----------
    abundances
        Features of how diverse the counts are, (B, Q).
    expansion, gene_expansion
        Features of the 3-mers, (B, E), and of the genes, (B, G), of expanded clones.
    """

    abundances: Floats
    expansion: NDArray[np.float32]
    gene_expansion: Floats


def _compute_count_tables(
    dataset: RepertoireDataset, genes: Mapping[str, Sequence[str]], richness_depth: int
) -> _CountTables:
    return _CountTables(
        compute_abundance_table(dataset, richness_depth),
        compute_expansion_table(dataset),
        compute_gene_expansion_table(dataset, genes),
    )


def _make_zeros(dataset: RepertoireDataset, genes: Mapping[str, Sequence[str]], richness_depth: int) -> _CountTables:
    """Return tables of constant features, from which no model learns."""
    n_genes = sum(len(names) for names in genes.values())
    return _CountTables(
        np.zeros((len(dataset), len(name_abundance_features(richness_depth)))),
        np.zeros((len(dataset), N_EXPANSION_KMERS), np.float32),
        np.zeros((len(dataset), n_genes)),
    )


def _compute_gene_ratios(frequencies: RepertoireFrequencies, genes: Mapping[str, Sequence[str]]) -> Floats:
    """Return the centred log-ratios of the usage of the genes of all fields, (B, G); the fields are end to end."""
    by_field = [
        compute_centred_log_ratios(frequencies.count_genes(field, names)) for field, names in genes.items() if names
    ]
    return np.hstack([np.zeros((len(frequencies.sizes), 0)), *by_field])


def _learn_residues(
    frequencies: RepertoireFrequencies, genes: Mapping[str, Sequence[str]], weights: Floats
) -> tuple[ExpectedResidues, ScaledResidues, Floats]:
    """Return which residues are expected from the genes, the features, and the counts of gene pairs, (B, G, H).

    The other counts, which are large, are dropped.
    """
    counts = frequencies.count_placed_residues(genes)
    expected = ExpectedResidues.learn(counts)
    return expected, ScaledResidues(*expected.compute_features(counts), weights), counts.pairs


def _find_known(table: NDArray[Any]) -> Flags:
    """Return whether the features of each repertoire are known, (B,)."""
    return np.asarray(~np.isnan(table).any(axis=1))


def _fill_unknown(table: NDArray[Any], weights: Floats) -> NDArray[Any]:
    """Return the features, (B, F), where the mean of the known rows, weighted by (B,), replaces each unknown row."""
    known = _find_known(table)
    total = weights[known].sum()
    mean = weights[known] @ table[known] / total if total > 0 else np.zeros(table.shape[1])
    return np.where(known[:, None], table, mean).astype(table.dtype)
