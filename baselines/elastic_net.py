"""Logistic regression with an l1 or l2 penalty, or both, to convergence: few rows, many columns, many penalties.

The objective is that of scikit-learn: C * sum of losses + l1_ratio * |w|_1 + (1 - l1_ratio) / 2 * |w|_2^2. The
coefficients w are those of centred and scaled columns z; the intercept has no penalty.

- With an l1 part, proximal Newton steps are computed by coordinate descent (Friedman, Hastie and Tibshirani 2010, J.
  Stat. Softw. 33(1); Yuan, Ho and Lin 2012, JMLR 13:1999) on a working set of columns. Columns that violate the
  optimality conditions are added to it until the duality gap over all columns is small (Johnson and Guestrin 2015,
  ICML). So the whole matrix is read a few times per penalty, once per check.
- With l2 alone, the solution is in the span of the rows. So Newton's method runs in at most B dimensions; see
  `deeprc.baselines.dual`.

skglm solves the l1 problem to the same objective, but needs a dense copy of the scaled columns, and compiles for 8 to
13 seconds in every process (docs/experiments.md, 2026-11-23).

Letters: B rows (repertoires), M columns, n columns of the working set, V values of C.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from deeprc.arrays import Floats
from deeprc.baselines.dual import fit_dual_logistic
from deeprc.baselines.elastic_net_loops import Objective, compute_relative_gap, minimise_objective, refit_intercept
from deeprc.baselines.parameters import check_positive
from deeprc.baselines.standardised_columns import ColumnScaling, StandardisedColumns
from deeprc.errors import InputError
from deeprc.threads import limit_blas_threads

__all__ = ["Solution", "fit_elastic_net_path"]

_logger = logging.getLogger(__name__)

_GRID_RATIO = 10**0.25  # ratio of two neighbouring values of C on the grid, from which other values start
_GRID_TOLERANCE = 1e-2  # relative duality gap of the solutions on the grid
_MIN_WORKING_SET = 64  # smallest number of columns
_MIN_SLOPE_SHARE = 0.8  # of the slope at which a coefficient leaves 0; from here on, a column joins the working set
_MAX_CHECKS = 100
_MAX_STEPS = 200  # largest number of Newton steps
_MIN_CURVATURE = 1e-10  # smallest curvature of a row's loss


@dataclass(frozen=True)
class Solution:
    """A linear function of columns that are neither centred nor scaled: x[columns] @ coefficients + intercept.

    Attributes
    ----------
    columns
        Indices of the columns whose coefficient is not 0, (n,), in rising order.
    coefficients
        Their coefficients, (n,) float64.
    intercept
        Score of a row of zeros.
    gap
        Relative duality gap: the objective exceeds the optimum by at most this share of itself. It is 0 for a solution
        in closed form.
    """

    columns: NDArray[np.int64]
    coefficients: Floats
    intercept: float
    gap: float = 0.0


def fit_elastic_net_path(
    matrix: Any,
    positive: NDArray[np.bool_],
    Cs: Sequence[float],
    *,
    l1_ratio: float = 1.0,
    scale: ColumnScaling = "standard",
    tolerance: float = 1e-6,
) -> Iterator[Solution]:
    """Return the solution for each C in turn.

    A solution does not depend on the other values of C: its solver starts from the next smaller value of a grid that
    depends on the data alone.

    Parameters
    ----------
    matrix
        Features, (B, M): a dense array or a SciPy sparse matrix. It is not changed, and a sparse one is not made dense.
    positive
        Whether each row is of the second class, (B,).
    Cs
        Weights of the loss, (V,), above 0; see the top of this module.
    l1_ratio
        Share of the l1 penalty, 0 to 1.
    scale
        Scaling of the columns before the penalty applies; see `StandardisedColumns`. Constant columns have no
        coefficient.
    tolerance
        Relative duality gap at which the solver stops.

    Raises
    ------
    InputError
        If a value is out of range or all rows are of one class.
    """
    positive = np.asarray(positive, bool)
    if len(positive) != matrix.shape[0] or positive.all() or not positive.any():
        raise InputError(
            f"expected two classes among {matrix.shape[0]} rows, found {len(positive)} labels with "
            f"{len(np.unique(positive))} different values"
        )
    if not 0 <= l1_ratio <= 1:
        raise InputError(f"l1_ratio: expected a share between 0 and 1, found {l1_ratio}")
    Cs = [check_positive("C", C) for C in Cs]
    standardised = StandardisedColumns(matrix, scale=scale)
    labels = positive.astype(np.float64)
    if l1_ratio == 0:
        return _fit_l2_path(standardised, labels, Cs, tolerance)
    with limit_blas_threads():
        return _fit_l1_path(standardised, labels, Cs, l1_ratio, tolerance)


def _fit_l1_path(
    standardised: StandardisedColumns, labels: Floats, Cs: Sequence[float], l1_ratio: float, tolerance: float
) -> Iterator[Solution]:
    """Solve with an l1 penalty: on a grid of C in rising order, and for each C from the next smaller one of the grid.

    The grid begins at the largest C with which all coefficients are 0.
    """
    positive_share = float(labels.mean())
    null_products = standardised.compute_products(positive_share - labels)
    steepest = float(np.abs(null_products).max(initial=0))
    null_C = l1_ratio / steepest if steepest > 0 else np.inf  # with this C or less, all coefficients are 0
    null_intercept = float(np.log(positive_share / (1 - positive_share)))
    null = _SolverState(np.zeros(0, np.int64), np.zeros(0), null_intercept, null_products, 0.0)
    on_grid, n_grid_steps = null, 0  # the last solution on the grid
    solution_of: dict[float, Solution] = {}
    for C in sorted(set(Cs)):
        if null_C >= C:
            solution_of[C] = _make_solution(standardised, null, C, tolerance)
            continue
        while (next_grid_C := null_C * _GRID_RATIO ** (n_grid_steps + 1)) <= C:
            grid_tolerance = max(tolerance, _GRID_TOLERANCE)
            on_grid = _solve_on_working_sets(standardised, labels, on_grid, next_grid_C, l1_ratio, grid_tolerance)
            n_grid_steps += 1
        solved = _solve_on_working_sets(standardised, labels, on_grid, C, l1_ratio, tolerance)
        solution_of[C] = _make_solution(standardised, solved, C, tolerance)
    return iter([solution_of[C] for C in Cs])


@dataclass(frozen=True)
class _SolverState:
    """The state of the solver, a solution for the standardised columns.

    Attributes
    ----------
    chosen, weights
        Indices of the columns of the working set and their weights, (n,) each.
    intercept
        Intercept of the centred and scaled columns.
    products
        Product of each column with the residuals (probabilities minus labels), (M,); it does not contain C.
    gap
        Relative duality gap.
    """

    chosen: NDArray[np.int64]
    weights: Floats
    intercept: float
    products: Floats
    gap: float


def _make_solution(standardised: StandardisedColumns, state: _SolverState, C: float, tolerance: float) -> Solution:
    """Return a solution for the columns as they were before they were centred and scaled; log if it is not exact."""
    if state.gap > tolerance:
        _logger.warning("logistic regression, C = %g: not converged, the relative duality gap is %.1e", C, state.gap)
    order = np.argsort(state.chosen)
    order = order[state.weights[order] != 0]
    chosen = state.chosen[order]
    coefficients = state.weights[order] * standardised.factor[chosen]
    intercept = float(state.intercept - coefficients @ standardised.centre[chosen])
    return Solution(chosen, coefficients, intercept, state.gap)


def _solve_on_working_sets(
    standardised: StandardisedColumns, labels: Floats, start: _SolverState, C: float, l1: float, tolerance: float
) -> _SolverState:
    """Return the solution on growing working sets; all columns are checked after each set."""
    objective = Objective(C, l1, 1 - l1)
    chosen, weights, intercept, products = start.chosen, start.weights, np.array([start.intercept]), start.products
    z = standardised.take(chosen)
    residual, primal = refit_intercept(z, labels, weights, intercept, objective)
    gap = float(compute_relative_gap(primal, residual, C * np.abs(products), objective))
    for _ in range(_MAX_CHECKS):
        if gap <= tolerance:
            break
        used = weights != 0
        chosen, weights = _enlarge_working_set(chosen[used], weights[used], C * np.abs(products), l1)
        z = standardised.take(chosen)
        minimise_objective(z, labels, weights, intercept, objective, max(0.3 * tolerance, 0.1 * gap))
        residual, primal = refit_intercept(z, labels, weights, intercept, objective)
        products = standardised.compute_products(residual)
        gap = float(compute_relative_gap(primal, residual, C * np.abs(products), objective))
    return _SolverState(chosen, weights, float(intercept[0]), products, gap)


def _enlarge_working_set(
    chosen: NDArray[np.int64], weights: Floats, abs_gradient: Floats, l1: float
) -> tuple[NDArray[np.int64], Floats]:
    """Return the next working set and its weights: the columns in use and the steepest of the others.

    `abs_gradient` is the absolute derivative of the loss by each column's weight, (M,).
    """
    size = max(_MIN_WORKING_SET, 2 * len(chosen))
    steepest = np.flatnonzero(abs_gradient > _MIN_SLOPE_SHARE * l1)
    if len(steepest) > size:
        steepest = steepest[np.argpartition(abs_gradient[steepest], len(steepest) - size)[len(steepest) - size :]]
    enlarged = np.concatenate([chosen, np.setdiff1d(steepest, chosen)])
    return enlarged, np.concatenate([weights, np.zeros(len(enlarged) - len(weights))])


def _fit_l2_path(
    standardised: StandardisedColumns, labels: Floats, Cs: Sequence[float], tolerance: float
) -> Iterator[Solution]:
    """Solve with the l2 penalty alone: by the columns if there are no more of them than rows, else by the rows."""
    n_rows, n_columns = standardised.shape
    with limit_blas_threads():
        if n_columns <= n_rows:
            solve = partial(_solve_by_columns, standardised, standardised.take(np.arange(n_columns)))
        else:
            solve = partial(_solve_by_rows, standardised, standardised.compute_gram())
    for C in Cs:
        yield _make_solution(standardised, solve(labels, C, tolerance), C, tolerance)


def _solve_by_columns(
    standardised: StandardisedColumns, z: Floats, labels: Floats, C: float, tolerance: float
) -> _SolverState:
    """Return the solution with the l2 penalty alone, from all columns as the rows of a dense array, z (M, B)."""
    objective = Objective(C, 0.0, 1.0)
    with limit_blas_threads():
        weights, intercept = _fit_l2_by_columns(z.T, labels, C, tolerance)
    residual, primal = refit_intercept(z, labels, weights, intercept, objective)
    products = standardised.compute_products(residual)
    gap = float(compute_relative_gap(primal, residual, C * np.abs(products), objective))
    varying = np.flatnonzero(standardised.factor)
    return _SolverState(varying, weights[varying], float(intercept[0]), products, gap)


def _solve_by_rows(
    standardised: StandardisedColumns, gram: Floats, labels: Floats, C: float, tolerance: float
) -> _SolverState:
    """Return the solution with the l2 penalty alone, from the inner products of the rows, (B, B)."""
    with limit_blas_threads():
        dual = fit_dual_logistic(gram, labels, C, tolerance=tolerance)
        primal = dual.compute_objective(gram, labels, C)
    residual = -dual.weights / C
    products = standardised.compute_products(residual)
    gap = float(compute_relative_gap(primal, residual, C * np.abs(products), Objective(C, 0.0, 1.0)))
    varying = np.flatnonzero(standardised.factor)
    weights = -C * products  # the sum of the rows, weighted by `dual.weights`
    return _SolverState(varying, weights[varying], dual.intercept, products, gap)


def _fit_l2_by_columns(rows: Floats, labels: Floats, C: float, tolerance: float) -> tuple[Floats, Floats]:
    """Return the weights of few columns, (M,), and the intercept, (1,), by Newton's method with step halving."""
    design = np.column_stack([rows, np.ones(len(labels))])
    ridge = np.append(np.ones(rows.shape[1]), 0.0)
    solution = np.zeros(design.shape[1])
    solution[-1] = np.log(labels.mean() / (1 - labels.mean()))  # the intercept

    def compute_objective(candidate: Floats) -> float:
        log_odds = design @ candidate
        return C * float(np.sum(np.logaddexp(0, log_odds) - labels * log_odds)) + 0.5 * float(ridge @ candidate**2)

    objective = compute_objective(solution)
    for _ in range(_MAX_STEPS):
        probability = expit(design @ solution)
        gradient = C * (design.T @ (probability - labels)) + ridge * solution
        root = np.sqrt(C * np.maximum(probability * (1 - probability), _MIN_CURVATURE))[:, None] * design
        step = -cho_solve(cho_factor(root.T @ root + np.diag(ridge)), gradient)
        length, decrement = 1.0, float(gradient @ step)
        if -decrement <= 1e-3 * tolerance * objective:  # near the end a step squares the error
            return (solution + step)[:-1], (solution + step)[-1:]
        while compute_objective(solution + length * step) > objective + 0.01 * length * decrement and length > 1e-10:
            length *= 0.5
        solution = solution + length * step
        objective = compute_objective(solution)
    return solution[:-1], solution[-1:]
