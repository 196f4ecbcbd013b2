"""The kinds of models that the branch `composition` chooses from: a penalised linear function of some features.

- `RidgeModels` have an l2 penalty: many features may each differ a little. They have one kind of features, such as
  k-mers, or several kinds in equal parts.
- `LassoModels` have an l1 penalty: a few features differ, the others do not. The features are the usage of the
  genes, their expansion, or the frequencies of overdispersed k-mers.

The objective of both is C * sum of losses + penalty; the intercept has no penalty. The loss of a class is that of
logistic regression, the loss of a number is half of the squared error. But lasso models learn classes, too, as the
numbers 0 and 1: an l1 logistic regression was no better (docs/experiments.md, 2026-11-28), and compiles for seconds.

Letters: B repertoires, l training and m left-out ones among them; F features; V values of C.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import lasso_path

from deeprc.arrays import Floats
from deeprc.baselines.dual import DualSolution, fit_dual_logistic, fit_dual_ridge_path
from deeprc.baselines.standardised_columns import StandardisedColumns
from deeprc.branches.composition_features import CompositionFeatures
from deeprc.branches.linear_function import LassoKind, LinearFunction, ModelKind

__all__ = ["FittedFunction", "LassoModels", "Models", "RidgeModels", "list_models"]

_MIXTURES: Sequence[tuple[ModelKind, ...]] = (
    ("kmers",),
    ("overdispersed_kmers",),
    ("genes",),
    ("abundances",),
    ("expansion",),
    ("gene_expansion",),
    ("length",),
    ("gene_lengths",),
    ("residues",),
    ("gene_residues",),
    ("gene_pairs",),
    ("overdispersed_kmers", "genes"),
    ("kmers", "genes"),
    ("kmers", "genes", "abundances"),
)
"""Kinds of features that have equal shares of the inner products. Among equal settings, the first is chosen.

With more mixtures, the best one is more often the best by chance (docs/experiments.md, 2026-11-30)."""

_MIN_SPREAD = 1e-9  # smallest standard deviation of a feature that is not constant but for rounding
_MIN_SCALE = 0.1  # smallest scale of a feature in the lasso, relative to the root mean square of standard deviations


class FittedFunction(NamedTuple):
    """A linear function, and its values for all repertoires, (B,), without an intercept."""

    function: LinearFunction
    scores: Floats


class Models(ABC):
    """Models of one kind, which differ in C.

    Attributes
    ----------
    features
        Features of the B repertoires.
    Cs
        Values of C, ascending, (V,).
    kinds
        Kinds of the features.
    """

    features: CompositionFeatures
    Cs: ClassVar[Sequence[float]]
    kinds: tuple[ModelKind, ...]

    @abstractmethod
    def score_left_out(self, target: Floats, training: NDArray[np.int64], left_out: NDArray[np.int64]) -> Floats:
        """Return the scores of left-out repertoires by the model for each C, (V, m), without an intercept.

        Parameters
        ----------
        target
            Class (0 or 1) or number of each training repertoire, (l,).
        training, left_out
            Indices of the repertoires, (l,) and (m,).
        """

    @abstractmethod
    def fit(self, target: Floats, training: NDArray[np.int64], C: float, *, slope: float) -> FittedFunction:
        """Fit the model with one C; its function is multiplied by a slope."""


def list_models(features: CompositionFeatures, *, is_number: bool) -> list[Models]:
    """Return all kinds of models whose features vary between the repertoires.

    Parameters
    ----------
    features
        Features of the B repertoires.
    is_number
        Whether a number is predicted, not a class.
    """
    varying = features.products.keys()
    models: list[Models] = [RidgeModels(features, kinds, is_number) for kinds in _MIXTURES if varying >= set(kinds)]
    return [*models, *(LassoModels(features, (kind,)) for kind in get_args(LassoKind) if kind in varying)]


@dataclass(frozen=True)
class RidgeModels(Models):
    """Models with an l2 penalty on the weights of features of some kinds.

    Attributes
    ----------
    features
        Features of the B repertoires.
    kinds
        Kinds of features, which have equal shares of the inner products.
    is_number
        Whether a number is predicted.
    """

    features: CompositionFeatures
    kinds: tuple[ModelKind, ...]
    is_number: bool
    Cs: ClassVar[Sequence[float]] = tuple(10.0**exponent for exponent in range(-2, 5))

    @property
    def _shares(self) -> dict[ModelKind, float]:
        return dict.fromkeys(self.kinds, 1 / len(self.kinds))

    def score_left_out(self, target: Floats, training: NDArray[np.int64], left_out: NDArray[np.int64]) -> Floats:
        """Return the scores of left-out repertoires, see `Models`."""
        kept = _mark_kept(len(self.features.size_weights), left_out)
        products = np.asarray(
            sum(
                share * _centre_products(self.features.products[kind], self.features.known_weights[kind], kept)
                for kind, share in self._shares.items()
            )
        )
        gram, across = products[np.ix_(training, training)], products[np.ix_(left_out, training)]
        return np.stack([across @ solution.weights for solution in self._fit_path(gram, target, self.Cs)])

    def fit(self, target: Floats, training: NDArray[np.int64], C: float, *, slope: float) -> FittedFunction:
        """Fit the model with one C, see `Models`."""
        products = self.features.mix_inner_products(self._shares)
        (solution,) = self._fit_path(products[np.ix_(training, training)], target, [C])
        dual = np.zeros(len(products))
        dual[training] = slope * solution.weights
        return FittedFunction(self.features.make_linear_function(dual, self._shares), products @ dual)

    def _fit_path(self, gram: Floats, target: Floats, Cs: Sequence[float]) -> Iterator[DualSolution]:
        """Yield the model for each C, from the inner products between the training repertoires, (l, l)."""
        return (_fit_ridge_path if self.is_number else _fit_logistic_path)(gram, target, Cs)


@dataclass(frozen=True)
class LassoModels(Models):
    """Models with an l1 penalty on the weights of features of one kind, whose scale is their standard deviation.

    Attributes
    ----------
    features
        Features of the B repertoires.
    kinds
        The kind of features.
    """

    features: CompositionFeatures
    kinds: tuple[LassoKind]
    Cs: ClassVar[Sequence[float]] = tuple(10.0**exponent for exponent in (-2, -1.5, -1, -0.5, 0))

    def score_left_out(self, target: Floats, training: NDArray[np.int64], left_out: NDArray[np.int64]) -> Floats:
        """Return the scores of left-out repertoires, see `Models`."""
        centred = self._centre(_mark_kept(len(self.features.size_weights), left_out))
        weights = _fit_lasso_path(centred[training], target, self.Cs)  # (V, F)
        return np.asarray(weights @ centred[left_out].T)

    def fit(self, target: Floats, training: NDArray[np.int64], C: float, *, slope: float) -> FittedFunction:
        """Fit the model with one C, see `Models`."""
        centred = self._centre(np.ones(len(self.features.size_weights), bool))
        (weights,) = slope * _fit_lasso_path(centred[training], target, [C])
        return FittedFunction(self.features.make_lasso_function(self.kinds[0], weights), centred @ weights)

    def _centre(self, kept: NDArray[np.bool_]) -> Floats:
        """Return known_weights * (x - mean) of all repertoires, (B, F), for the features x of the kind.

        `kept` says whether each repertoire counts for the mean, which has the same weights, (B,).
        """
        table, weights = self.features.get_table(self.kinds[0]), self.features.known_weights[self.kinds[0]]
        centre = StandardisedColumns(table, weights=weights * kept).centre
        return np.asarray(weights[:, None] * (table - centre))


def _mark_kept(n: int, left_out: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return whether each of n repertoires is not left out."""
    kept = np.ones(n, bool)
    kept[left_out] = False
    return kept


def _centre_products(products: Floats, weights: Floats, kept: NDArray[np.bool_]) -> Floats:
    """Return the inner products, (B, B), for features that are centred at the mean of some of the repertoires.

    The features are weights * (x - mean), and the mean has the same weights; see `StandardisedColumns`. A repertoire
    without weight has the mean, whichever it is.
    """
    total = float(weights[kept].sum()) or 1.0  # if all are 0, so are the products of those that are kept
    products_with_mean = products[kept].sum(axis=0) / total
    shift = np.outer(weights, products_with_mean)
    squared_mean = products_with_mean[kept].sum() / total
    return np.asarray(products - shift - shift.T + squared_mean * np.outer(weights, weights))


def _fit_logistic_path(gram: Floats, target: Floats, Cs: Sequence[float]) -> Iterator[DualSolution]:
    """Yield the logistic regression for each C; each one starts from the solution before."""
    solution = None
    for C in Cs:
        solution = fit_dual_logistic(gram, target, C, start=solution)
        yield solution


def _fit_ridge_path(gram: Floats, numbers: Floats, Cs: Sequence[float]) -> Iterator[DualSolution]:
    """Yield the ridge regression for each C; the intercept has no penalty."""
    centred = gram - gram.mean(axis=0)
    return fit_dual_ridge_path(centred - centred.mean(axis=1, keepdims=True), numbers, Cs)


def _fit_lasso_path(columns: Floats, numbers: Floats, Cs: Sequence[float]) -> Floats:
    """Return the weights of F features by the lasso for each C, (V, F); scikit-learn's alpha is 1 / (C * l)."""
    spread = columns.std(axis=0)
    scales = np.maximum(spread, max(_MIN_SPREAD, _MIN_SCALE * float(np.sqrt(np.mean(spread**2)))))
    factor = np.where(spread > _MIN_SPREAD, 1 / scales, 0)
    alphas = [1 / (C * len(numbers)) for C in Cs]
    _, weights, _ = lasso_path((columns - columns.mean(axis=0)) * factor, numbers - numbers.mean(), alphas=alphas)
    return np.asarray(weights.T * factor)
