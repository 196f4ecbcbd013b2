"""Features of one kind of the branch `composition`, centred and scaled, as inner products between repertoires.

Linear models are learned from the inner products of the features of each two repertoires (the Gram matrix, B x B), see
`deeprc.branches.composition_features`. Each class here also turns the dual weights of such a model, one for each
repertoire, into weights of the features (`compute_weights`).

Letters: B repertoires, M 4-mers, E 3-mers, G V genes, F residues at positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats, Integers
from deeprc.baselines.standardised_columns import ColumnScaling, StandardisedColumns
from deeprc.branches.frequency_precision import FrequencyPrecision
from deeprc.branches.linear_function import ModelKind
from deeprc.branches.residues import N_PLACED_RESIDUES
from deeprc.datasets.alphabet import AMINO_ACIDS

__all__ = ["ScaledFeatures", "ScaledKmers", "ScaledOverdispersedKmers", "ScaledResidues"]

_N_LETTERS = len(AMINO_ACIDS)
_MIN_Z_SCORE = 3.0  # smallest z-score of the variance of an overdispersed k-mer; chosen in docs/experiments.md
_MAX_OVERDISPERSED = 2000  # in large repertoires nearly all k-mers are, and a lasso of all would take a minute
_MIN_LENGTH_RANGE = 1e-6  # of mean lengths; counts of families have 32 bits, so equal lengths differ by rounding
_MIN_SPREAD = 0.01  # smallest standard deviation of a residue at a position, relative to their root mean square


class ScaledFeatures:
    """Features of one kind, in the form of inner products between repertoires.

    Parameters
    ----------
    table
        Features, (B, F).
    weights
        Weights of the repertoires, (B,).
    scale
        Scale of the features, see `StandardisedColumns`.

    Attributes
    ----------
    table, centre
        Features, (B, F), and their means, (F,).
    products
        Inner products between repertoires, (B, B), divided by the mean of their diagonal; None if no feature varies.
    """

    def __init__(self, table: NDArray[Any], weights: Floats, *, scale: ColumnScaling) -> None:
        self.table = table
        self._columns = StandardisedColumns(table, scale=scale, weights=weights)
        self.centre = self._columns.centre
        gram = self._columns.compute_gram()
        mean_of_diagonal = float(np.trace(gram)) / max(len(gram), 1)
        self._factor = 1 / mean_of_diagonal if mean_of_diagonal > 0 else 0.0
        self.products: Floats | None = gram / mean_of_diagonal if mean_of_diagonal > 0 else None

    def compute_weights(self, dual: Floats, *, divisor: int = 1) -> Floats:
        """Return the weights of the unscaled features, (F,), from dual weights, (B,), divided by a number."""
        return np.asarray(self._factor / divisor * self._columns.factor * self._columns.compute_products(dual))


class ScaledKmers:
    """The frequencies of k-mers of 1 to k residues, in the form of inner products between repertoires.

    Parameters
    ----------
    table
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
        Means over the lengths of the inner products between repertoires, (B, B); None if no feature varies.
    """

    def __init__(self, table: NDArray[np.float32], weights: Floats) -> None:
        self._by_length: list[ScaledFeatures] = []  # longest first
        while table.shape[1] >= _N_LETTERS:
            self._by_length.append(ScaledFeatures(table, weights, scale="common"))
            table = _sum_last_residue(table)
        self.centre, self.shorter = self._by_length[0].centre, self._by_length[1].table
        varying = [features.products for features in self._by_length if features.products is not None]
        self.products = np.asarray(sum(varying) / len(self._by_length)) if varying else None

    def compute_weights(self, dual: Floats) -> Floats:
        """Return the weights of the longest k-mers, (20 ** k,), from dual weights, (B,).

        Each has its own weight, plus those of the shorter k-mers that begin it.
        """
        total = np.zeros(len(self.centre))
        for features in self._by_length:
            weights = features.compute_weights(dual, divisor=len(self._by_length))
            total += np.repeat(weights, len(total) // len(weights))
        return total


def _drop_constant(lengths: Floats) -> Floats:
    """Return mean lengths of junctions, (B, G), where those that differ by rounding alone are 0."""
    return np.asarray(np.where(np.ptp(lengths, axis=0) > _MIN_LENGTH_RANGE, lengths, 0.0))


def _drop_rare(table: Floats) -> Floats:
    """Return features, (B, F), where those that hardly vary, compared with the others, are 0.

    They are residues that are hardly seen in training. Divided by their own standard deviation, they could have huge
    values in new repertoires.
    """
    spread = table.std(axis=0)
    return np.asarray(np.where(spread >= _MIN_SPREAD * np.sqrt(np.mean(spread**2)), table, 0.0))


class ScaledOverdispersedKmers:
    """The frequencies of F overdispersed 3-mers, in the form of inner products between repertoires.

    Parameters
    ----------
    table
        Frequencies of all 3-mers, (B, E) float32.
    weights, sizes
        Weight and number of sequences of each repertoire, (B,) each.

    Attributes
    ----------
    table
        Frequencies of the overdispersed 3-mers, (B, F) float32.
    products
        Inner products between repertoires, (B, B), divided by the mean of their diagonal; None without such 3-mers.
    """

    def __init__(self, table: NDArray[np.float32], weights: Floats, sizes: Integers) -> None:
        self._n_3mers = table.shape[1]
        z_scores = _measure_overdispersion(table, weights, sizes)
        highest = np.argsort(-z_scores, kind="stable")[:_MAX_OVERDISPERSED]
        self._codes = np.sort(highest[z_scores[highest] > _MIN_Z_SCORE])  # indices among all 3-mers, (F,)
        self._features = ScaledFeatures(table[:, self._codes], weights, scale="standard")
        self.table, self.products = self._features.table, self._features.products

    def compute_weights(self, dual: Floats) -> Floats:
        """Return the weights of the 4-mers, (M,), from dual weights, (B,)."""
        return self.expand(self._features.compute_weights(dual))

    def expand(self, weights: Floats) -> Floats:
        """Return the weights of the 4-mers, (M,), from those of the overdispersed 3-mers, (F,), that begin them."""
        of_3mers = np.zeros(self._n_3mers)
        of_3mers[self._codes] = weights
        return np.repeat(of_3mers, _N_LETTERS)


def _measure_overdispersion(table: NDArray[np.float32], weights: Floats, sizes: Integers) -> Floats:
    """Return the z-score of the variance of each k-mer's frequencies, (E,), see `FrequencyPrecision`.

    The arguments are those of `ScaledOverdispersedKmers`. Repertoires without sequences are left out. Each repertoire
    counts as a donor: if donors have several repertoires, more k-mers that vary between donors have a high z-score.
    """
    known = np.flatnonzero(sizes)
    mean, variance = np.zeros((2, table.shape[1]))
    if len(known) == 0:
        return np.zeros(table.shape[1])
    shares = weights[known] / weights[known].sum()
    for repertoire, share in zip(known, shares, strict=True):  # one by one: a copy in 64 bits would be large
        mean += share * table[repertoire].astype(np.float64)
    for repertoire, share in zip(known, shares, strict=True):
        variance += share * (table[repertoire] - mean) ** 2
    precision = FrequencyPrecision.from_repertoires(shares, sizes[known], np.arange(len(shares)))
    return precision.compute_z_scores(mean, variance, np.zeros(len(mean)))


class ScaledResidues:
    """The features of residues at positions, in the form of inner products between repertoires.

    Parameters
    ----------
    by_gene
        Features by V gene, (B, G, F) float32.
    sums, lengths
        Their sums over the V genes, (B, F), and over the residues, (B, G).
    weights
        Weights of the repertoires, (B,).

    Attributes
    ----------
    centre
        Mean features, (G * F,).
    products
        Inner products between repertoires, (B, B), of each kind of features that vary.
    """

    def __init__(self, by_gene: NDArray[np.float32], sums: Floats, lengths: Floats, weights: Floats) -> None:
        self._by_kind: dict[ModelKind, ScaledFeatures] = {
            "length": ScaledFeatures(_drop_constant(sums.sum(axis=1, keepdims=True)), weights, scale="standard"),
            "gene_lengths": ScaledFeatures(_drop_constant(lengths), weights, scale="common"),
            "residues": ScaledFeatures(_drop_rare(sums), weights, scale="standard"),
            "gene_residues": ScaledFeatures(by_gene.reshape(len(by_gene), -1), weights, scale="common"),
        }
        self.centre = self._by_kind["gene_residues"].centre
        self.products = {kind: part.products for kind, part in self._by_kind.items() if part.products is not None}
        if by_gene.shape[1] == 1:  # no V gene is known, so they repeat the others
            self.products.pop("gene_lengths", None)
            self.products.pop("gene_residues", None)

    def compute_weights(self, dual: Floats, shares: Mapping[ModelKind, float]) -> Floats:
        """Return the weights of the features by V gene, (G * F,), from dual weights, (B,).

        Each has its own weight, plus that of the residue at the position, that of the length with the V gene, and that
        of the length. See `CompositionFeatures.make_linear_function` for `shares`.
        """
        total = np.zeros((len(self.centre) // N_PLACED_RESIDUES, N_PLACED_RESIDUES))
        for kind, features in self._by_kind.items():
            if shares.get(kind, 0):
                weights = shares[kind] * features.compute_weights(dual)
                shape = {"gene_lengths": (-1, 1), "gene_residues": total.shape}.get(kind, (1, -1))
                total += weights.reshape(shape)
        return total.ravel()


def _sum_last_residue(table: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the features of the k-mers without their last residue, (B, 20 ** (k - 1)), from those of k-mers."""
    return np.asarray(table.reshape(len(table), -1, _N_LETTERS).sum(axis=2))  # (B, 20 ** k) -> (B, 20 ** (k - 1), 20)
