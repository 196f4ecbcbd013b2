"""`SVM` and `SVMRegressor`: support vector machines on the MinMax or the Jaccard kernel (paper lines 8933-8958).

Letters: B repertoires, n training repertoires, S support vectors, V values of C.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, SVR

from deeprc.arrays import Floats
from deeprc.baselines.kernel_methods import KernelClassifier, KernelRegressor
from deeprc.baselines.kernels import compute_dataset_kernel
from deeprc.baselines.parameters import check_not_negative, check_positive
from deeprc.baselines.restored import check_numbers
from deeprc.datasets.dataset import RepertoireDataset

__all__ = ["SVM", "SVMRegressor", "score_path"]

_TOLERANCE = 1e-8  # tolerance of the optimality conditions, so small that the order of repertoires has no effect
_MAX_ITERATIONS = 1_000_000  # hundreds of repertoires need thousands; only contradictory labels need so many


_logger = logging.getLogger(__name__)


class SVM(KernelClassifier):
    """A C-SVM (Cortes and Vapnik 1995) on a kernel between k-mer representations.

    The order of the training repertoires does not matter.

    Parameters
    ----------
    kernel
        `minmax` or `jaccard`; see `deeprc.baselines.kernels.compute_cross_kernel`.
    C
        Weight of the errors (repertoires on the wrong side of the margin) against the width of the margin.
    kmer_offsets
        Positions of a k-mer's residues, counted from its first. None means 4-mers without a gap, (0, 1, 2, 3).
    weighted
        Whether each sequence counts as often as its `duplicate_count` says.

    Attributes
    ----------
    support_
        k-mer representations of the support vectors, (S, M).
    dual_coef_
        Coefficients of the support vectors, (S,): positive for the second class.
    intercept_
        Intercept of the score, (1,).
    """

    path_parameter = "C"
    _row_attribute = "dual_coef_"

    def __init__(
        self,
        *,
        kernel: str = "minmax",
        C: float = 1.0,
        kmer_offsets: Sequence[int] | None = None,
        weighted: bool = False,
    ) -> None:
        self.kernel = kernel
        self.C = C
        self.kmer_offsets = kmer_offsets
        self.weighted = weighted

    def check_parameters(self) -> None:
        """Raise InputError if a parameter is wrong for any cohort."""
        super().check_parameters()
        check_positive("C", self.C)

    def _fit(self, X: RepertoireDataset, positive: NDArray[np.bool_]) -> None:
        cost = check_positive("C", self.C)
        solution = _solve_for_cost(self._compute_gram(X), positive, cost)
        self._keep(X[solution.rows])
        self.dual_coef_ = solution.coefficients
        self.intercept_ = np.array([solution.intercept])

    def _score_repertoires(self, X: RepertoireDataset) -> Floats:
        return np.asarray(self._compute_kernel_to_kept(X) @ self.dual_coef_ + self.intercept_)

    def _path(
        self, X: RepertoireDataset, positive: NDArray[np.bool_], X_new: RepertoireDataset, values: Sequence[Any]
    ) -> Floats:
        costs = np.array([check_positive("C", value) for value in values], np.float64)
        new = compute_dataset_kernel(X_new, X, self.kernel, **self._settings)
        return score_path(self._compute_gram(X), positive, new, costs)

    def _restore(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Mapping[str, Any]]) -> None:
        super()._restore(arrays, values)
        check_numbers("intercept_", getattr(self, "intercept_", None), 1)


class SVMRegressor(KernelRegressor):
    """Support vector regression (Drucker et al., NeurIPS 1996) on a kernel between k-mer representations.

    Parameters
    ----------
    kernel, kmer_offsets, weighted
        As in `SVM`.
    C
        Weight of the errors beyond `epsilon` against the penalty.
    epsilon
        Largest error that is ignored, in standard deviations of the training labels.

    Attributes
    ----------
    support_
        k-mer representations of the support vectors, (S, M).
    dual_coef_, intercept_
        Coefficients of the support vectors, (S,), and the intercept, (1,).
    """

    path_parameter = "C"
    _row_attribute = "dual_coef_"

    def __init__(
        self,
        *,
        kernel: str = "minmax",
        C: float = 1.0,
        epsilon: float = 0.1,
        kmer_offsets: Sequence[int] | None = None,
        weighted: bool = False,
    ) -> None:
        self.kernel = kernel
        self.C = C
        self.epsilon = epsilon
        self.kmer_offsets = kmer_offsets
        self.weighted = weighted

    def check_parameters(self) -> None:
        """Raise InputError if a parameter is wrong for any cohort."""
        super().check_parameters()
        check_positive("C", self.C)
        check_not_negative("epsilon", self.epsilon)

    def _fit(self, X: RepertoireDataset, numbers: Floats) -> None:
        machine = self._fit_machine(self._compute_gram(X), numbers, self.C)
        self._keep(X[machine.support_])
        self.dual_coef_, self.intercept_ = machine.dual_coef_[0].copy(), np.array([float(machine.intercept_[0])])

    def _predict(self, X: RepertoireDataset) -> Floats:
        return np.asarray(self._compute_kernel_to_kept(X) @ self.dual_coef_ + self.intercept_)

    def _path(self, X: RepertoireDataset, numbers: Floats, X_new: RepertoireDataset, values: Sequence[Any]) -> Floats:
        kernel, new = self._compute_gram(X), compute_dataset_kernel(X_new, X, self.kernel, **self._settings)
        machines = (self._fit_machine(kernel, numbers, value) for value in values)
        return np.array(
            [new[:, machine.support_] @ machine.dual_coef_[0] + machine.intercept_[0] for machine in machines]
        )

    def _fit_machine(self, kernel: Floats, numbers: Floats, C: Any) -> SVR:
        cost, width = check_positive("C", C), check_not_negative("epsilon", self.epsilon)
        machine = SVR(kernel="precomputed", C=cost, epsilon=width, tol=_TOLERANCE, max_iter=_MAX_ITERATIONS)
        _fit_and_log(machine, kernel, numbers, cost)
        return machine

    def _restore(self, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Mapping[str, Any]]) -> None:
        super()._restore(arrays, values)
        check_numbers("intercept_", getattr(self, "intercept_", None), 1)


def score_path(kernel: Floats, positive: NDArray[np.bool_], new: Floats, costs: Floats) -> Floats:
    """Return the scores of new repertoires by the SVM of each C, (V, B).

    One run of the solver serves all small C, and one all C that are larger than every coefficient; see `_find_optimum`.

    Parameters
    ----------
    kernel, positive
        Kernel between the training repertoires, (n, n), and whether each is of the second class, (n,).
    new
        Kernel of the new repertoires with the training repertoires, (B, n).
    costs
        Values of C, (V,), above 0.
    """
    scores = np.empty((len(costs), len(new)))
    solution: _Optimum | None = None
    for index in np.argsort(costs, kind="stable"):
        cost = float(costs[index])
        if solution is None or not solution.holds_for(cost):
            solution = _find_optimum(kernel, positive, cost)
        scores[index] = solution.derive_for_cost(cost).compute_scores(new)
    return scores


@dataclass(frozen=True)
class _Optimum:
    """The optimum of an SVM.

    Attributes
    ----------
    rows, coefficients
        Indices and coefficients of the support vectors, (S,) each.
    intercept
        Intercept of the score.
    cost
        Value of C for which it was computed.
    is_proportional_below
        Whether the coefficients for all smaller C are proportional to C.
    intercept_at_zero
        Intercept in the limit of C = 0, if they are proportional.
    """

    rows: NDArray[np.int64]
    coefficients: Floats
    intercept: float
    cost: float
    is_proportional_below: bool
    intercept_at_zero: float

    def holds_for(self, cost: float) -> bool:
        """Return whether `derive_for_cost` gives the optimum for this C.

        A larger C allows larger coefficients, so it changes nothing if none has reached the bound, which is C.
        """
        if cost <= self.cost:
            return self.is_proportional_below or cost == self.cost
        return bool(np.all(np.abs(self.coefficients) < self.cost))

    def derive_for_cost(self, cost: float) -> _Optimum:
        """Return the optimum for a C for which `holds_for` is true."""
        if not (self.is_proportional_below and cost < self.cost):
            return self
        share = cost / self.cost
        intercept = self.intercept_at_zero + share * (self.intercept - self.intercept_at_zero)
        return replace(self, coefficients=share * self.coefficients, intercept=intercept, cost=cost)

    def compute_scores(self, kernel: Floats) -> Floats:
        """Return the scores, (B,), of repertoires with this kernel with the training repertoires, (B, n)."""
        return np.asarray(kernel[:, self.rows] @ self.coefficients + self.intercept)


def _solve_for_cost(kernel: Floats, positive: NDArray[np.bool_], cost: float) -> _Optimum:
    """Return the optimum for this C; see `_find_optimum`."""
    return _find_optimum(kernel, positive, cost).derive_for_cost(cost)


def _find_optimum(kernel: Floats, positive: NDArray[np.bool_], cost: float) -> _Optimum:
    """Return the optimum for this C or, if C is small, an optimum from which that of this C follows.

    If the rarer class has m repertoires and the kernel is between 0 and 1, scores without the intercept differ by at
    most 2 m C. So for C up to 1 / m, the whole rarer class is on the wrong side of its margin. Then all coefficients
    and differences of scores are proportional to C. They are computed for C = 1 / (2 m), because for C = 1e-6 they
    would be smaller than the solver's tolerance.
    """
    n_positive, n_negative = int(positive.sum()), int((~positive).sum())
    smallest_cost = 0.5 / min(n_positive, n_negative)  # of the solver
    machine = SVC(
        kernel="precomputed", C=max(cost, smallest_cost), tol=_TOLERANCE, max_iter=_MAX_ITERATIONS, cache_size=500
    )
    _fit_and_log(machine, kernel, positive, cost)
    return _Optimum(
        rows=machine.support_.astype(np.int64),
        coefficients=machine.dual_coef_[0].copy(),
        intercept=float(machine.intercept_[0]),
        cost=max(cost, smallest_cost),
        is_proportional_below=cost <= smallest_cost,
        intercept_at_zero=float(np.sign(n_positive - n_negative)),  # the margin of the more frequent class
    )


def _fit_and_log(machine: SVC | SVR, kernel: Floats, labels: NDArray[Any], cost: float) -> None:
    """Fit scikit-learn's machine to a kernel, (n, n); a solver that did not converge is logged."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        machine.fit(kernel, labels)
    if np.max(machine.n_iter_) >= _MAX_ITERATIONS:
        _logger.warning("SVM: C=%g: stopped after %d iterations", cost, _MAX_ITERATIONS)
