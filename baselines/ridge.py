"""Ridge regression: few rows, many columns, many penalties at the price of one.

Letters: B repertoires, M features, n of them with a coefficient, V values of C.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from threadpoolctl import threadpool_limits

from deeprc.baselines.columns import Columns, Scale
from deeprc.baselines.elastic_net import Solution
from deeprc.baselines.linear import Matrix, check_choice, linear_scores
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.estimators import RepertoireRegressor

__all__ = ["RidgeRegressor", "ridge_path"]

Floats = NDArray[np.float64]


def ridge_path(matrix: Any, numbers: Floats, Cs: Sequence[float], *, scale: Scale = "standard") -> Iterator[Solution]:
    """Solve for each C in turn.

    Minimised is C * sum of squared errors + |w|^2 over the coefficients w of centred and scaled columns, divided by the
    root of their number (so that one C means about the same for nine columns and for 160,000), and an intercept
    without penalty. The solution is in the span of the rows: one eigendecomposition of their B x B Gram matrix serves
    all C (Hoerl and Kennard, Technometrics 1970, 12:55-67, in the dual form of Saunders et al., ICML 1998).

    Parameters
    ----------
    matrix
        Features, (B, M), dense or sparse.
    numbers
        What is predicted, (B,).
    Cs
        Above 0.
    scale
        See `deeprc.baselines.columns.Columns`.
    """
    columns = Columns(matrix, scale=scale)
    n_columns = max(int((columns.factor > 0).sum()), 1)
    with threadpool_limits(1, user_api="blas"):  # so that the number of threads changes nothing
        values, vectors = eigh(columns.gram() / n_columns)
        centred = numbers - numbers.mean()
        projected = vectors.T @ centred
        for C in Cs:
            dual = vectors @ (projected / (np.maximum(values, 0) + 1 / C))
            coefficients = columns.factor * columns.products(dual) / n_columns
            used = np.flatnonzero(coefficients)
            intercept = numbers.mean() - coefficients[used] @ columns.centre[used]
            yield Solution(used, coefficients[used], float(intercept), 0.0)


class RidgeRegressor(RepertoireRegressor):
    """A regressor whose prediction is an intercept plus features times coefficients, under an l2 penalty.

    A subclass defines `_rows`, the features of repertoires, and has the parameter `C`: the weight of the squared errors
    against the penalty, see `ridge_path`.

    Attributes
    ----------
    features_
        Columns with a coefficient, (n,) int64, rising.
    coef_
        Their coefficients, (n,) float64, for the features as they are.
    intercept_
        The prediction for a repertoire whose features are all 0; like the coefficients in units of `scale_` from
        `mean_`.
    """

    path_parameter = "C"

    C: float
    scale: Scale = "standard"

    features_: NDArray[np.int64]
    coef_: Floats
    intercept_: float

    def _rows(self, X: RepertoireDataset) -> Matrix:
        """Return the features, (B, M), each row from its repertoire alone."""
        raise NotImplementedError

    def _learn_columns(self, X: RepertoireDataset) -> None:
        """Note what the columns are where the training repertoires decide it, as names of genes, before `_rows`."""

    def _solutions(self, X: RepertoireDataset, numbers: Floats, values: Sequence[Any]) -> Iterator[Solution]:
        check_choice("scale", self.scale, ("standard", "common"))
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < np.inf:
                raise InputError(f"C: expected a number above 0, found {value!r}")
        self._learn_columns(X)
        return ridge_path(self._rows(X), numbers, values, scale=self.scale)

    def _fit(self, X: RepertoireDataset, numbers: Floats) -> None:
        for solution in self._solutions(X, numbers, [self.C]):
            self.features_, self.coef_ = solution.columns, solution.coefficients
            self.intercept_ = solution.intercept

    def _predict(self, X: RepertoireDataset) -> Floats:
        return linear_scores(self._rows(X), self.features_, self.coef_, self.intercept_)

    def _path(self, X: RepertoireDataset, numbers: Floats, X_new: RepertoireDataset, values: Sequence[Any]) -> Floats:
        solutions = list(self._solutions(X, numbers, values))
        rows = self._rows(X_new)
        return np.array([linear_scores(rows, each.columns, each.coefficients, each.intercept) for each in solutions])
