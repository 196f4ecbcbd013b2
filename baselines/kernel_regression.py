"""Regression by a kernel: support vectors and nearest neighbours.

Letters: A new repertoires, B repertoires, n training repertoires, S support vectors, V values of a parameter.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVR

from deeprc.baselines.kernels import KernelRegressor, similarity
from deeprc.baselines.knn import checked_neighbors, mean_of_nearest
from deeprc.baselines.svm import checked_cost
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError

__all__ = ["KNNRegressor", "SVMRegressor"]

_TOLERANCE = 1e-8
_MOST_ITERATIONS = 1_000_000

Floats = NDArray[np.float64]

logger = logging.getLogger(__name__)


class SVMRegressor(KernelRegressor):
    """Support vector regression (Drucker et al., NeurIPS 1996) on a kernel between k-mer representations.

    Parameters
    ----------
    kernel, places, weighted
        As in `deeprc.baselines.svm.SVM`.
    C
        The price of an error beyond `epsilon`; both in standard deviations of the training labels.
    epsilon
        Errors up to it cost nothing.

    Attributes
    ----------
    support_
        Representations of the support vectors, (S, M).
    dual_coef_, intercept_
        Their coefficients, (S,), and what is added to the sum, (1,).
    """

    path_parameter = "C"

    def __init__(
        self,
        *,
        kernel: str = "minmax",
        C: float = 1.0,
        epsilon: float = 0.1,
        places: Sequence[int] | None = None,
        weighted: bool = False,
    ) -> None:
        self.kernel = kernel
        self.C = C
        self.epsilon = epsilon
        self.places = places
        self.weighted = weighted

    def _fit(self, X: RepertoireDataset, numbers: Floats) -> None:
        machine = self._solved(self._gram(X), numbers, self.C)
        self._keep(X[machine.support_])
        self.dual_coef_, self.intercept_ = machine.dual_coef_[0].copy(), np.array([float(machine.intercept_[0])])

    def _predict(self, X: RepertoireDataset) -> Floats:
        return np.asarray(self._similarity(X) @ self.dual_coef_ + self.intercept_)

    def _path(self, X: RepertoireDataset, numbers: Floats, X_new: RepertoireDataset, values: Sequence[Any]) -> Floats:
        kernel, new = self._gram(X), similarity(X_new, X, self.kernel, **self._settings)
        machines = (self._solved(kernel, numbers, value) for value in values)
        return np.array([new[:, each.support_] @ each.dual_coef_[0] + each.intercept_[0] for each in machines])

    def _solved(self, kernel: Floats, numbers: Floats, cost: Any) -> SVR:
        width = self.epsilon
        if isinstance(width, bool) or not isinstance(width, int | float | np.number) or not 0 <= width < np.inf:
            raise InputError(f"epsilon: expected a number of at least 0, found {width!r}")
        machine = SVR(
            kernel="precomputed", C=checked_cost(cost), epsilon=width, tol=_TOLERANCE, max_iter=_MOST_ITERATIONS
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            machine.fit(kernel, numbers)
        if np.max(machine.n_iter_) >= _MOST_ITERATIONS:
            logger.warning("SVM: C=%g: stopped after %d iterations", cost, _MOST_ITERATIONS)
        return machine


class KNNRegressor(KernelRegressor):
    """The mean of the nearest neighbours' numbers; the distance is 1 - kernel. Ties are shared as in `KNN`.

    Parameters
    ----------
    kernel, n_neighbors, places, weighted
        As in `deeprc.baselines.knn.KNN`.

    Attributes
    ----------
    support_
        Representations of the training repertoires, (n, M).
    numbers_
        What was known of each, (n,), in units of `scale_` from `mean_`.
    """

    path_parameter = "n_neighbors"

    def __init__(
        self,
        *,
        kernel: str = "minmax",
        n_neighbors: int = 5,
        places: Sequence[int] | None = None,
        weighted: bool = False,
    ) -> None:
        self.kernel = kernel
        self.n_neighbors = n_neighbors
        self.places = places
        self.weighted = weighted

    def _fit(self, X: RepertoireDataset, numbers: Floats) -> None:
        checked_neighbors(self.n_neighbors)
        self._keep(X)
        self.numbers_ = numbers

    def _predict(self, X: RepertoireDataset) -> Floats:
        kernel = self._similarity(X)
        nearest = np.array([min(self.n_neighbors, len(self.numbers_))])
        return np.asarray(mean_of_nearest(kernel, np.broadcast_to(self.numbers_, kernel.shape), nearest)[0])

    def _path(self, X: RepertoireDataset, numbers: Floats, X_new: RepertoireDataset, values: Sequence[Any]) -> Floats:
        kernel = similarity(X_new, X, self.kernel, **self._settings)
        nearest = np.array([min(checked_neighbors(value), len(X)) for value in values], np.int64)
        return mean_of_nearest(kernel, np.broadcast_to(numbers, kernel.shape), nearest)
