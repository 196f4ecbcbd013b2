"""`SVM`: a support vector machine on the MinMax or the Jaccard kernel (paper lines 8933-8958).

Letters: B repertoires, n training repertoires, S support vectors, V values of C.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC

from deeprc.baselines.kernels import KernelClassifier, similarity
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.estimators import canonical_order, encode_two_classes, fit_platt_scaling

__all__ = ["SVM", "checked_cost", "path_scores"]

_TOLERANCE = 1e-8  # of the optimality conditions: the order of repertoires decides nothing
_MOST_ITERATIONS = 1_000_000  # hundreds of repertoires need thousands; only contradictory ones come here
_FOLDS = 5

logger = logging.getLogger(__name__)


class SVM(KernelClassifier):
    """A C-SVM (Cortes and Vapnik 1995) on a kernel between k-mer representations.

    The order of the training repertoires does not matter. Probabilities are Platt's, from the scores of 5 folds each of
    which is scored by an SVM of the others.

    Parameters
    ----------
    kernel
        `minmax` or `jaccard`; see `deeprc.baselines.kernels.cross_kernel`.
    C
        The price of a repertoire on the wrong side of the margin.
    places
        The residues of a k-mer, counted from its first; None: those of 4-mers, 0 to 3.
    weighted
        Count each sequence as often as its `duplicate_count` says.

    Attributes
    ----------
    support_
        Representations of the support vectors, (S, M).
    dual_coef_
        Their coefficients, (S,): positive for the second class.
    intercept_
        What is added to the sum, (1,).
    """

    path_parameter = "C"

    def __init__(
        self,
        *,
        kernel: str = "minmax",
        C: float = 1.0,
        places: Sequence[int] | None = None,
        weighted: bool = False,
    ) -> None:
        self.kernel = kernel
        self.C = C
        self.places = places
        self.weighted = weighted

    def _fit(self, X: RepertoireDataset, positive: NDArray[np.bool_]) -> None:
        cost = checked_cost(self.C)
        order = canonical_order(X, positive.astype(np.int64))
        kernel, positive = self._gram(X[order]), positive[order]
        solution = _solve(kernel, positive, cost)
        self._keep(X[order[solution.rows]])
        self.dual_coef_ = solution.coefficients
        self.intercept_ = np.array([solution.intercept])
        self.calibration_ = fit_platt_scaling(_cross_fitted(kernel, positive, cost), positive)

    def _decide(self, X: RepertoireDataset) -> NDArray[np.float64]:
        return np.asarray(self._similarity(X) @ self.dual_coef_ + self.intercept_)

    def decision_path(
        self, X: RepertoireDataset, y: ArrayLike, X_new: RepertoireDataset, values: Sequence[Any]
    ) -> NDArray[np.float64]:
        """Return the scores, (V, B), that each C gives new repertoires; see `BinaryClassifier.decision_path`."""
        _, positive = encode_two_classes(X, y)
        costs = np.array([checked_cost(value) for value in values], np.float64)
        order = canonical_order(X, positive.astype(np.int64))
        X, positive = X[order], positive[order]
        new = similarity(X_new, X, self.kernel, **self._settings)
        return path_scores(self._gram(X), positive, new, costs)


def path_scores(
    kernel: NDArray[np.float64], positive: NDArray[np.bool_], new: NDArray[np.float64], costs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the scores of new repertoires, (V, B), by SVMs with these C, (V,).

    Small C, and those above all coefficients, have one solver's run together; see `_optimum`.

    Parameters
    ----------
    kernel, positive
        Of the training repertoires, (n, n), and whether each is of the second class, (n,).
    new
        The kernel of the new repertoires with those, (B, n).
    costs
        Above 0.
    """
    scores = np.empty((len(costs), len(new)))
    solution: _Solution | None = None
    for at in np.argsort(costs, kind="stable"):
        if solution is None or not solution.holds_for(float(costs[at])):
            solution = _optimum(kernel, positive, float(costs[at]))
        scores[at] = solution.at(float(costs[at])).decide(new)
    return scores


@dataclass(frozen=True)
class _Solution:
    """An SVM's optimum.

    Attributes
    ----------
    rows, coefficients
        Of the support vectors, (S,).
    intercept
        What the scores have in common.
    cost
        The C.
    linear_below, limit
        Whether all smaller C give the same but for a factor, and the intercept where they come to 0.
    """

    rows: NDArray[np.int64]
    coefficients: NDArray[np.float64]
    intercept: float
    cost: float
    linear_below: bool
    limit: float

    def holds_for(self, cost: float) -> bool:
        """Say whether `at` knows this C's optimum too. Where no coefficient is at its bound, the bound may rise."""
        if cost <= self.cost:
            return self.linear_below or cost == self.cost
        return bool(np.all(np.abs(self.coefficients) < self.cost))

    def at(self, cost: float) -> _Solution:
        """Return the optimum for a C that it holds for."""
        if not (self.linear_below and cost < self.cost):
            return self
        share = cost / self.cost
        intercept = self.limit + share * (self.intercept - self.limit)
        return replace(self, coefficients=share * self.coefficients, intercept=intercept, cost=cost)

    def decide(self, kernel: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the scores, (B,), from the kernel with the training repertoires, (B, n)."""
        return np.asarray(kernel[:, self.rows] @ self.coefficients + self.intercept)


def _solve(kernel: NDArray[np.float64], positive: NDArray[np.bool_], cost: float) -> _Solution:
    """Return the optimum for training repertoires with this kernel, (n, n), and class, (n,)."""
    return _optimum(kernel, positive, cost).at(cost)


def _optimum(kernel: NDArray[np.float64], positive: NDArray[np.bool_], cost: float) -> _Solution:
    """Return the optimum for this C, or, for all small C, the one from which it follows.

    With m repertoires in the rarer class and a kernel between 0 and 1, scores without intercept differ by at most
    2 m C. So for C up to 1 / m the whole rarer class is on the wrong side of its margin, and all coefficients and
    differences of scores grow in proportion to C. They are computed for the C of 1 / (2 m), because for one of 1e-6
    the solver's tolerance would hide them.
    """
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    smallest = 0.5 / min(n_positive, n_negative)
    machine = SVC(
        kernel="precomputed", C=max(cost, smallest), tol=_TOLERANCE, max_iter=_MOST_ITERATIONS, cache_size=500
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(kernel, positive)
    if machine.n_iter_[0] >= _MOST_ITERATIONS:
        logger.warning("SVM: C=%g: stopped after %d iterations", cost, _MOST_ITERATIONS)
    return _Solution(
        rows=machine.support_.astype(np.int64),
        coefficients=machine.dual_coef_[0].copy(),
        intercept=float(machine.intercept_[0]),
        cost=max(cost, smallest),
        linear_below=cost <= smallest,
        limit=float(np.sign(n_positive - n_negative)),  # the commoner class's margin
    )


def _cross_fitted(kernel: NDArray[np.float64], positive: NDArray[np.bool_], cost: float) -> NDArray[np.float64]:
    """Return the score of each training repertoire, (n,), by an SVM without its fold; folds are stratified."""
    n_folds = min(_FOLDS, int(positive.sum()), int((~positive).sum()))
    if n_folds < 2:
        return _solve(kernel, positive, cost).decide(kernel)
    fold = np.empty(len(positive), np.int64)
    for one in (positive, ~positive):
        fold[one] = np.arange(one.sum()) % n_folds
    scores = np.empty(len(positive))
    for number in range(n_folds):
        inside, outside = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        solution = _solve(kernel[np.ix_(inside, inside)], positive[inside], cost)
        scores[outside] = solution.decide(kernel[np.ix_(outside, inside)])
    return scores


def checked_cost(value: Any) -> float:
    """Return C as a number; raise InputError if it is none, or not above 0."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < float("inf"):
        raise InputError(f"C: expected a number above 0, found {value!r}")
    return float(value)
