"""Fit linear models in the dual form: from the B x B inner products of the rows, whatever the number of columns.

The coefficients are a weighted sum of the rows, and these functions return its weights. So the score of any row is the
weighted sum of its inner products with the training rows, plus the intercept.

Letters: B rows (repertoires), V values of C.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.special import expit

from deeprc.arrays import Floats

__all__ = ["DualSolution", "fit_dual_logistic", "fit_dual_ridge_path"]

_MAX_STEPS = 200  # largest number of Newton steps
_MAX_HALVINGS = 40  # largest number of halvings of a Newton step
_MIN_CURVATURE = 1e-10  # smallest curvature of a row's loss


class DualSolution(NamedTuple):
    """A linear model: the weights of the rows, (B,), whose weighted sum gives the coefficients, and the intercept."""

    weights: Floats
    intercept: float

    def compute_objective(self, gram: Floats, labels: Floats, C: float) -> float:
        """Return C * sum of losses + |w|^2 / 2; see `fit_dual_logistic`."""
        log_odds = self.compute_scores(gram)
        losses = np.logaddexp(0, log_odds) - labels * log_odds
        return C * float(losses.sum()) + 0.5 * float(self.weights @ (log_odds - self.intercept))

    def compute_scores(self, gram: Floats) -> Floats:
        """Return the scores of the rows, (B,), from their inner products, (B, B); in a logistic model the log-odds."""
        return np.asarray(gram @ self.weights + self.intercept)

    def move_towards(self, other: DualSolution, share: float) -> DualSolution:
        """Return the point at this share of the way to another solution."""
        weights = self.weights + share * (other.weights - self.weights)
        return DualSolution(weights, self.intercept + share * (other.intercept - self.intercept))


def fit_dual_logistic(
    gram: Floats, labels: Floats, C: float, *, start: DualSolution | None = None, tolerance: float = 1e-6
) -> DualSolution:
    """Minimise C * sum of losses + |w|^2 / 2 by Newton's method with step halving; the intercept has no penalty.

    Each step is computed from a matrix whose eigenvalues are at least 1 (Rasmussen and Williams, Gaussian Processes
    for Machine Learning, 2006, algorithm 3.1).

    Parameters
    ----------
    gram
        Inner products of the rows, (B, B).
    labels
        Label of each row, (B,): 1 for the second class, 0 for the first; both occur.
    C
        Weight of the losses.
    start
        Solution to start from, such as that for another C; None: all coefficients are 0.
    tolerance
        The steps end if the next one promises to lower the objective by less than about this share of it.
    """
    positive_share = float(labels.mean())
    null_intercept = float(np.log(positive_share / (1 - positive_share)))  # with coefficients of 0
    solution = start or DualSolution(np.zeros(len(labels)), null_intercept)
    objective = solution.compute_objective(gram, labels, C)
    for _ in range(_MAX_STEPS):
        minimum = _minimise_quadratic_model(gram, solution.compute_scores(gram), labels, C)
        for halvings in range(_MAX_HALVINGS):
            shortened = solution.move_towards(minimum, 0.5**halvings)
            new_objective = shortened.compute_objective(gram, labels, C)
            if new_objective <= objective:
                break
        else:
            return solution  # no step lowers the objective in double precision
        decrease, solution, objective = objective - new_objective, shortened, new_objective
        if decrease <= 1e-3 * tolerance * objective:  # near the end a step squares the error
            break
    return solution


def _minimise_quadratic_model(gram: Floats, log_odds: Floats, labels: Floats, C: float) -> DualSolution:
    """Return the minimum of the quadratic function with the objective's slope and curvature at these log-odds, (B,)."""
    probability = expit(log_odds)
    curvature = C * np.maximum(probability * (1 - probability), _MIN_CURVATURE)
    root = np.sqrt(curvature)
    system = root[:, None] * gram * root
    system[np.diag_indices_from(system)] += 1
    linear = curvature * log_odds + C * (labels - probability)
    factor = cho_factor(system, lower=True, overwrite_a=True, check_finite=False)
    # the weights for an intercept of 0, and by how much they fall per unit of the intercept, which makes their sum 0
    at_zero, per_unit = (
        root[:, None] * cho_solve(factor, np.column_stack([linear / root, root]), check_finite=False)
    ).T
    intercept = float(at_zero.sum() / per_unit.sum())
    return DualSolution(at_zero - intercept * per_unit, intercept)


def fit_dual_ridge_path(gram: Floats, targets: Floats, Cs: Sequence[float]) -> Iterator[DualSolution]:
    """Yield the solution for each C, (V,): it minimises C * sum of squared errors + |w|^2, without intercept in |w|^2.

    One eigendecomposition serves all C (Hoerl and Kennard, Technometrics 1970, 12:55-67, in the dual form of Saunders
    et al., ICML 1998).

    Parameters
    ----------
    gram
        Inner products of the rows, (B, B), whose sum over the rows is 0.
    targets
        Values of the numeric target, (B,).
    Cs
        Weights of the squared errors.
    """
    eigenvalues, eigenvectors = eigh(gram)
    projected = eigenvectors.T @ (targets - targets.mean())
    for C in Cs:
        weights = eigenvectors @ (projected / (np.maximum(eigenvalues, 0) + 1 / C))
        yield DualSolution(weights, float(targets.mean()))
