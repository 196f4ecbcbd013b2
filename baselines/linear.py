"""Classifiers whose score is linear in the features of a repertoire: what they have in common.

Letters: B repertoires, M features, n of them with a coefficient, V values of a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_matrix
from sklearn.base import clone

from deeprc.baselines.columns import Scale
from deeprc.baselines.elastic_net import Solution, elastic_net_path
from deeprc.compilation import njit
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.estimators import BinaryClassifier, canonical_order, encode_two_classes

__all__ = ["LinearClassifier", "PenalisedClassifier", "check_choice", "linear_scores"]

Floats = NDArray[np.float64]
Matrix: TypeAlias = "NDArray[np.float32] | NDArray[np.float64] | csr_matrix"


class LinearClassifier(BinaryClassifier):
    """A score is an intercept plus features times coefficients.

    A subclass defines `_rows`, the features of repertoires, and `_solutions`, which learns.

    Attributes
    ----------
    features_
        Columns with a coefficient, (n,) int64, rising.
    coef_
        Their coefficients, (n,) float64, for the features as they are: what was done for scale is contained.
    intercept_
        The score of a repertoire whose features are all 0.
    """

    path_parameter: ClassVar[str]

    features_: NDArray[np.int64]
    coef_: Floats
    intercept_: float

    def _rows(self, X: RepertoireDataset) -> Matrix:
        """Return the features, (B, M), each row from its repertoire alone."""
        raise NotImplementedError

    def _solutions(
        self, X: RepertoireDataset, positive: NDArray[np.bool_], values: Sequence[Any]
    ) -> Iterator[Solution]:
        """Learn from repertoires in canonical order, (B,), with each value of the path's parameter."""
        raise NotImplementedError

    def _solved(self, X: RepertoireDataset, positive: NDArray[np.bool_], values: Sequence[Any]) -> Iterator[Solution]:
        order = canonical_order(X, positive.astype(np.int64))
        return self._solutions(X[order], positive[order], values)

    def _fit(self, X: RepertoireDataset, positive: NDArray[np.bool_]) -> None:
        for solution in self._solved(X, positive, [getattr(self, self.path_parameter)]):
            self.features_, self.coef_ = solution.columns, solution.coefficients
            self.intercept_ = solution.intercept

    def _decide(self, X: RepertoireDataset) -> Floats:
        return linear_scores(self._rows(X), self.features_, self.coef_, self.intercept_)

    def decision_path(
        self, X: RepertoireDataset, y: ArrayLike, X_new: RepertoireDataset, values: Sequence[Any]
    ) -> Floats:
        """Return the scores, (V, B), that each value of `path_parameter` gives new repertoires; see the base class."""
        _, positive = encode_two_classes(X, y)
        self.check_cohort(X)
        if len(X_new) == 0 or len(values) == 0:
            return np.zeros((len(values), len(X_new)))
        self.check_cohort(X_new)
        one = clone(self)
        solutions = one._solved(X, positive, list(values))
        rows = one._rows(X_new)
        return np.array([linear_scores(rows, each.columns, each.coefficients, each.intercept) for each in solutions])


class PenalisedClassifier(LinearClassifier):
    """A linear classifier that is solved to convergence under an l1 or l2 penalty; see `elastic_net_path`.

    A subclass has the parameter `C`, and where one may choose also `penalty` and `scale`.
    """

    path_parameter = "C"

    C: float
    penalty: str = "l2"
    scale: Scale = "standard"

    def _learn_columns(self, X: RepertoireDataset) -> None:
        """Note what the columns are where the training repertoires decide it, as names of genes, before `_rows`."""

    def _solutions(
        self, X: RepertoireDataset, positive: NDArray[np.bool_], values: Sequence[Any]
    ) -> Iterator[Solution]:
        check_choice("penalty", self.penalty, ("l1", "l2"))
        check_choice("scale", self.scale, ("standard", "common"))
        self._learn_columns(X)
        l1_ratio = 1.0 if self.penalty == "l1" else 0.0
        return elastic_net_path(self._rows(X), positive, values, l1_ratio=l1_ratio, scale=self.scale)


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raise InputError if a parameter is none of the choices."""
    if value not in choices:
        raise InputError(f"{name}: expected one of {', '.join(choices)}, found {value!r}")


def linear_scores(rows: Matrix, features: NDArray[np.int64], coefficients: Floats, intercept: float) -> Floats:
    """Return intercept + rows[:, features] @ coefficients, (B,); each sum in the order of the columns."""
    if isinstance(rows, np.ndarray):
        return np.asarray(_dense_scores(rows, features, coefficients, intercept))
    every = np.zeros(rows.shape[1])
    every[features] = coefficients
    return np.asarray(_sparse_scores(rows.data, rows.indices, rows.indptr, every, intercept))


@njit(nogil=True)
def _dense_scores(rows: NDArray[Any], features: NDArray[np.int64], coefficients: Floats, intercept: float) -> Floats:
    scores = np.full(len(rows), intercept)
    for row in range(len(rows)):
        for at in range(len(features)):
            scores[row] += rows[row, features[at]] * coefficients[at]
    return scores


@njit(nogil=True)
def _sparse_scores(
    data: NDArray[Any], columns: NDArray[Any], starts: NDArray[Any], coefficients: Floats, intercept: float
) -> Floats:
    scores = np.full(len(starts) - 1, intercept)
    for row in range(len(scores)):
        for at in range(starts[row], starts[row + 1]):
            scores[row] += data[at] * coefficients[columns[at]]
    return scores
