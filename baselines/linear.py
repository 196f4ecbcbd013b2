"""Models whose score is linear in the features of a repertoire: the base of classifiers and regressors.

Letters: B repertoires (rows), M features (columns), n features with a coefficient, V values of a parameter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from deeprc.arrays import Floats
from deeprc.baselines.dual import fit_dual_ridge_path
from deeprc.baselines.elastic_net import Solution, fit_elastic_net_path
from deeprc.baselines.parameters import check_choice, check_positive
from deeprc.baselines.restored import check_coefficients
from deeprc.baselines.standardised_columns import ColumnScaling, StandardisedColumns
from deeprc.compilation import njit
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.documents import to_plain, validate
from deeprc.errors import InputError
from deeprc.estimators import BinaryClassifier, RepertoireEstimator, RepertoireRegressor
from deeprc.threads import limit_blas_threads

__all__ = ["LinearClassifier", "PenalisedClassifier", "RidgeRegressor", "fit_ridge_path"]

FeatureMatrix: TypeAlias = "NDArray[np.float32] | NDArray[np.float64] | csr_matrix"


class LinearModel(RepertoireEstimator):
    """A model whose score is an intercept plus the sum of features times coefficients.

    A subclass defines `_compute_features`, which returns the features of repertoires, and `_fit_path`, which computes
    the coefficients for each of several values of one parameter. `path_parameter` names this parameter; it is `C`,
    unless the subclass sets another name.

    Attributes
    ----------
    features_
        Indices of the features with a coefficient, (n,) int64, in rising order.
    coef_
        Their coefficients, (n,) float64, for features that are neither centred nor scaled.
    intercept_
        Score of a repertoire whose features are all 0.
    """

    path_parameter: ClassVar[str] = "C"

    features_: NDArray[np.int64]
    coef_: Floats
    intercept_: float

    def _learn_columns(self, X: RepertoireDataset) -> None:
        """Learn which features there are, if they depend on the training repertoires, such as the names of genes.

        It is called before `_fit_path` and `_compute_features`, and sets fitted attributes.
        """

    def _compute_features(self, X: RepertoireDataset) -> FeatureMatrix:
        """Return the features, (B, M); each row depends on its own repertoire only."""
        raise NotImplementedError

    def _fit_path(self, X: RepertoireDataset, labels: NDArray[Any], values: Sequence[Any]) -> Iterator[Solution]:
        """Yield the solution for each value of `path_parameter`.

        X and the labels, (B,), are the training repertoires in canonical order: `bool` for two classes (whether the
        repertoire is of the second class), standardised numbers for a regressor.
        """
        raise NotImplementedError

    def _fit(self, X: RepertoireDataset, labels: NDArray[Any]) -> None:
        """Compute and keep the solution for the model's own value of `path_parameter`."""
        self._learn_columns(X)
        (solution,) = self._fit_path(X, labels, [getattr(self, self.path_parameter)])
        self.features_, self.coef_ = solution.columns, solution.coefficients
        self.intercept_ = solution.intercept

    def _compute_scores(self, X: RepertoireDataset) -> Floats:
        return _score_rows(self._compute_features(X), self.features_, self.coef_, self.intercept_)

    def _restore(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Mapping[str, Any]]) -> None:
        super()._restore(arrays, values)
        check_coefficients(self.features_, self.coef_)
        self.intercept_ = float(validate(to_plain(self.intercept_), float, "intercept"))

    def _path(
        self, X: RepertoireDataset, labels: NDArray[Any], X_new: RepertoireDataset, values: Sequence[Any]
    ) -> Floats:
        """Return the score of each new repertoire, (V, B), for each value of `path_parameter`."""
        self._learn_columns(X)
        solutions = self._fit_path(X, labels, values)
        rows = self._compute_features(X_new)
        return np.array(
            [_score_rows(rows, solution.columns, solution.coefficients, solution.intercept) for solution in solutions]
        )


class LinearClassifier(LinearModel, BinaryClassifier):
    """A classifier with a linear score."""

    def _score_repertoires(self, X: RepertoireDataset) -> Floats:
        return self._compute_scores(X)


class PenalisedClassifier(LinearClassifier):
    """Logistic regression with an l1 or l2 penalty, solved to convergence; see `fit_elastic_net_path`.

    A subclass has the parameter `C`, and `penalty` and `scale` if its user may choose them.
    """

    C: float
    penalty: str = "l2"
    scale: ColumnScaling = "standard"

    def check_parameters(self) -> None:
        """Raise InputError if a parameter is wrong for any cohort."""
        super().check_parameters()
        check_positive("C", self.C)
        self._check_choices()

    def _check_choices(self) -> None:
        check_choice("penalty", self.penalty, ("l1", "l2"))
        check_choice("scale", self.scale, ("standard", "common"))

    def _fit_path(self, X: RepertoireDataset, labels: NDArray[Any], values: Sequence[Any]) -> Iterator[Solution]:
        self._check_choices()
        l1_ratio = 1.0 if self.penalty == "l1" else 0.0
        return fit_elastic_net_path(self._compute_features(X), labels, values, l1_ratio=l1_ratio, scale=self.scale)


class RidgeRegressor(LinearModel, RepertoireRegressor):
    """Ridge regression; see `fit_ridge_path`.

    A subclass has the parameter `C`, the weight of the squared errors against the penalty, and `scale` if its user may
    choose it. Coefficients and intercept are in units of `scale_`, the standard deviation of the training labels, and
    the intercept is the difference from their mean, `mean_`.
    """

    C: float
    scale: ColumnScaling = "standard"

    def check_parameters(self) -> None:
        """Raise InputError if a parameter is wrong for any cohort."""
        super().check_parameters()
        check_positive("C", self.C)
        check_choice("scale", self.scale, ("standard", "common"))

    def _fit_path(self, X: RepertoireDataset, labels: NDArray[Any], values: Sequence[Any]) -> Iterator[Solution]:
        check_choice("scale", self.scale, ("standard", "common"))
        return fit_ridge_path(self._compute_features(X), labels, values, scale=self.scale)

    def _predict(self, X: RepertoireDataset) -> Floats:
        return self._compute_scores(X)


def _score_rows(rows: FeatureMatrix, features: NDArray[np.int64], coefficients: Floats, intercept: float) -> Floats:
    """Return intercept + rows[:, features] @ coefficients, (B,); each sum runs in the order of the columns.

    Raises
    ------
    InputError
        If there are fewer columns than the last of `features`, (n,), which rise: a saved model may be changed.
    """
    if len(features) and features[-1] >= rows.shape[1]:
        raise InputError(
            f"features: expected indices below {rows.shape[1]:,}, found {features[-1]:,}; was the file of the model "
            "changed, or a parameter after the fit?"
        )
    if isinstance(rows, np.ndarray):
        return np.asarray(_score_dense(rows, features, coefficients, intercept))
    all_coefficients = np.zeros(rows.shape[1])
    all_coefficients[features] = coefficients
    return np.asarray(_score_sparse(rows.data, rows.indices, rows.indptr, all_coefficients, intercept))


@njit(nogil=True)
def _score_dense(rows: NDArray[Any], features: NDArray[np.int64], coefficients: Floats, intercept: float) -> Floats:
    """Return intercept + rows @ coefficients, (B,), of the given features of dense rows."""
    scores = np.full(len(rows), intercept)
    for row in range(len(rows)):
        for i in range(len(features)):
            scores[row] += rows[row, features[i]] * coefficients[i]
    return scores


@njit(nogil=True)
def _score_sparse(
    data: NDArray[Any], columns: NDArray[Any], starts: NDArray[Any], coefficients: Floats, intercept: float
) -> Floats:
    """Return intercept + rows @ coefficients, (B,), of sparse rows (CSR)."""
    scores = np.full(len(starts) - 1, intercept)
    for row in range(len(scores)):
        for i in range(starts[row], starts[row + 1]):
            scores[row] += data[i] * coefficients[columns[i]]
    return scores


def fit_ridge_path(
    matrix: Any, values: Floats, Cs: Sequence[float], *, scale: ColumnScaling = "standard"
) -> Iterator[Solution]:
    """Yield the solution for each C.

    A solution minimises C * sum of squared errors + |w|^2. The coefficients w are those of columns that are centred,
    scaled and divided by the square root of their number. So one C means about the same for nine columns and for
    160,000. The intercept has no penalty. See `fit_dual_ridge_path`.

    Parameters
    ----------
    matrix
        Features, (B, M), dense or sparse.
    values
        Values of the numeric target, (B,).
    Cs
        Weights of the squared errors, (V,), above 0.
    scale
        Scaling of the columns; see `deeprc.baselines.standardised_columns.StandardisedColumns`.

    Raises
    ------
    InputError
        If a C is not above 0.
    """
    Cs = [check_positive("C", C) for C in Cs]
    return _fit_solutions(StandardisedColumns(matrix, scale=scale), values, Cs)


def _fit_solutions(columns: StandardisedColumns, values: Floats, Cs: Sequence[float]) -> Iterator[Solution]:
    """Yield the ridge regression on standardised columns for each C."""
    n_columns = max(int((columns.factor > 0).sum()), 1)
    with limit_blas_threads():  # so that the number of threads changes nothing
        for dual in fit_dual_ridge_path(columns.compute_gram() / n_columns, values, Cs):
            coefficients = columns.factor * columns.compute_products(dual.weights) / n_columns
            used = np.flatnonzero(coefficients)
            intercept = dual.intercept - coefficients[used] @ columns.centre[used]
            yield Solution(used, coefficients[used], float(intercept))
