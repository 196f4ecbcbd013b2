"""The compiled loops of `elastic_net`: they solve for the columns of one working set, standardised and dense.

Loops over numbers are written out, because numba takes seconds to compile numpy's operations on whole arrays.

Letters: B rows (repertoires), n columns of the working set.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deeprc.arrays import Floats
from deeprc.compilation import njit

__all__ = ["Objective", "compute_relative_gap", "compute_residual", "descend"]

_MAX_STEPS = 200  # largest number of Newton steps on one working set
_MAX_SWEEPS = 500  # largest number of sweeps of coordinate descent in one Newton step
_JOINT_STEP_EVERY = 20  # sweeps between two joint steps of all weights, see `_minimise_jointly`
_MAX_SHORTENINGS = 8  # how often the length of a joint step is divided by 4
_DIAGONAL_SHARE = 1e-10  # share that is added to a diagonal, so that equal columns can be solved for
_MAX_HALVINGS = 40  # largest number of halvings of a Newton step
_MIN_CURVATURE = 1e-10  # smallest curvature of a row's loss
_MIN_HESSIAN = 1e-12  # smallest curvature of the objective along one weight
_ARMIJO_SHARE = 0.01  # smallest share of the predicted change of the objective that a step must reach
_MAX_INTERCEPT_STEPS = 50  # largest number of Newton steps of the intercept alone


class Objective(NamedTuple):
    """Weights of the terms of the objective: C * sum of losses + l1 * |w|_1 + l2 / 2 * |w|_2^2."""

    C: float
    l1: float
    l2: float


@njit(nogil=True)
def descend(
    z: Floats, labels: Floats, weights: Floats, intercept: Floats, objective: Objective, tolerance: float
) -> None:
    """Minimise the objective over the columns of a working set until the relative duality gap is at the tolerance.

    Parameters
    ----------
    z
        Columns of the working set, as rows, (n, B).
    labels
        Label of each row, (B,): 1 for the second class, 0 for the first.
    weights, intercept
        Weights and intercept to start from, (n,) and (1,); they are changed in place to the solution.
    """
    C, l1, l2 = objective
    n = len(weights)
    gradient, abs_gradient, new_weights = np.empty(n), np.empty(n), np.empty(n)
    for _ in range(_MAX_STEPS):
        residual, primal = compute_residual(z, labels, weights, intercept, objective)
        violation = 0.0
        for j in range(n):
            gradient[j] = C * np.dot(z[j], residual)
            abs_gradient[j] = abs(gradient[j])
            violation = max(violation, abs(_compute_step(gradient[j] + l2 * weights[j], weights[j], 1.0, l1)))
        if compute_relative_gap(primal, residual, abs_gradient, objective) <= tolerance:
            return
        step, intercept_step = _make_newton_step(z, residual, weights, objective, 0.1 * violation)
        predicted_change = 0.0
        for j in range(n):
            predicted_change += gradient[j] * step[j]
            new_weights[j] = weights[j] + step[j]
        predicted_change = predicted_change + _compute_penalty(new_weights, l1, l2) - _compute_penalty(weights, l1, l2)
        log_odds = _compute_log_odds(z, weights, intercept[0])
        log_odds_change = _compute_log_odds(z, step, intercept_step)
        new_log_odds = np.empty(len(log_odds))
        length = 1.0
        for _ in range(_MAX_HALVINGS):
            for row in range(len(log_odds)):
                new_log_odds[row] = log_odds[row] + length * log_odds_change[row]
            for j in range(n):
                new_weights[j] = weights[j] + length * step[j]
            if (
                C * _compute_loss(new_log_odds, labels) + _compute_penalty(new_weights, l1, l2)
                <= primal + _ARMIJO_SHARE * length * predicted_change
            ):
                break
            length *= 0.5
        else:
            return  # no step lowers the objective in double precision
        for j in range(n):
            weights[j] = new_weights[j]
        intercept[0] += length * intercept_step


@njit(nogil=True)
def compute_residual(
    z: Floats, labels: Floats, weights: Floats, intercept: Floats, objective: Objective
) -> tuple[Floats, float]:
    """Return the residuals (probabilities minus labels), (B,), at the best intercept, and the objective there.

    The best intercept for these weights, (M,), is searched from `intercept`, (1,), and written there. `labels` are
    0 or 1, (B,).
    """
    log_odds = _compute_log_odds(z, weights, intercept[0])
    _fit_intercept(log_odds, labels, intercept)
    residual = np.empty(len(log_odds))
    for row in range(len(log_odds)):
        residual[row] = _compute_probability(log_odds[row]) - labels[row]
    penalty = _compute_penalty(weights, objective.l1, objective.l2)
    return residual, objective.C * _compute_loss(log_odds, labels) + penalty


@njit(nogil=True)
def compute_relative_gap(primal: float, residual: Floats, abs_gradient: Floats, objective: Objective) -> float:
    """Return the relative duality gap, (primal - dual) / primal.

    The dual point is `residual`, (B,). Without l2, it is shrunk until no column's `abs_gradient`, (n,), the absolute
    derivative of the loss by the column's weight, is above l1.
    """
    C, l1, l2 = objective
    largest = 0.0
    for j in range(len(abs_gradient)):
        largest = max(largest, abs_gradient[j])
    shrink = l1 / largest if l2 == 0 and largest > l1 else 1.0
    dual = 0.0
    for row in range(len(residual)):
        share = min(abs(residual[row]) * shrink, 1.0)
        if 0 < share < 1:
            dual -= C * (share * np.log(share) + (1 - share) * np.log1p(-share))
    if l2 > 0:
        total = 0.0
        for j in range(len(abs_gradient)):
            total += max(abs_gradient[j] - l1, 0.0) ** 2
        dual -= total / (2 * l2)
    return (primal - dual) / primal


@njit(nogil=True)
def _compute_log_odds(z: Floats, weights: Floats, intercept: float) -> Floats:
    """Return intercept + weights @ z, (B,); `z` has one row per feature."""
    log_odds = np.empty(z.shape[1])
    for row in range(len(log_odds)):
        log_odds[row] = intercept
    for j in range(len(weights)):
        if weights[j] != 0:
            for row in range(len(log_odds)):
                log_odds[row] += weights[j] * z[j, row]
    return log_odds


@njit(nogil=True)
def _compute_probability(log_odds: float) -> float:
    tail = np.exp(-abs(log_odds))
    return float(1 / (1 + tail) if log_odds >= 0 else tail / (1 + tail))


@njit(nogil=True)
def _compute_loss(log_odds: Floats, labels: Floats) -> float:
    """Return the sum of the cross-entropies of labels 0 and 1, given log-odds, without overflow."""
    total = 0.0
    for row in range(len(log_odds)):
        margin = log_odds[row] if labels[row] > 0 else -log_odds[row]
        total += max(-margin, 0.0) + np.log1p(np.exp(-abs(margin)))
    return total


@njit(nogil=True)
def _compute_penalty(weights: Floats, l1: float, l2: float) -> float:
    absolute = squared = 0.0
    for j in range(len(weights)):
        absolute += abs(weights[j])
        squared += weights[j] * weights[j]
    return l1 * absolute + 0.5 * l2 * squared


@njit(nogil=True)
def _fit_intercept(log_odds: Floats, labels: Floats, intercept: Floats) -> None:
    """Change the intercept and the log-odds, in place, until the residuals sum to 0, as a dual point requires."""
    for _ in range(_MAX_INTERCEPT_STEPS):
        error = curvature = 0.0
        for row in range(len(log_odds)):
            probability = _compute_probability(log_odds[row])
            curvature += probability * (1 - probability)
            error += labels[row] - probability
        step = min(max(error / (curvature + _MIN_CURVATURE), -1.0), 1.0)
        intercept[0] += step
        for row in range(len(log_odds)):
            log_odds[row] += step
        if abs(step) < 1e-13:
            return


@njit(nogil=True)
def _compute_step(gradient: float, weight: float, curvature: float, l1: float) -> float:
    """Return the step d that minimises gradient * d + curvature / 2 * d^2 + l1 * |weight + d|."""
    unpenalised = weight - gradient / curvature
    shrunk = max(abs(unpenalised) - l1 / curvature, 0.0)
    return (shrunk if unpenalised > 0 else -shrunk) - weight


@njit(nogil=True)
def _make_newton_step(
    z: Floats, residual: Floats, weights: Floats, objective: Objective, tolerance: float
) -> tuple[Floats, float]:
    """Minimise the quadratic model of the objective; return the steps of the weights, (n,), and of the intercept.

    A sweep minimises the model by one weight after the other, and then by the intercept. The first sweep reads all
    weights. The next ones read those that are not 0, until these have settled; then one more sweep reads all.
    """
    C, l1, l2 = objective
    n, n_rows = z.shape
    curvature, model_gradient, total = np.empty(n_rows), np.empty(n_rows), 0.0
    for row in range(n_rows):
        share = abs(residual[row])
        curvature[row] = C * max(share * (1 - share), _MIN_CURVATURE)
        total += curvature[row]
        model_gradient[row] = C * residual[row]  # by each row's log-odds
    current, hessian_diagonal, intercept_step = weights.copy(), np.empty(n), 0.0
    for j in range(n):
        hessian_diagonal[j] = _MIN_HESSIAN + l2
        for row in range(n_rows):
            hessian_diagonal[j] += curvature[row] * z[j, row] * z[j, row]
    reads_all = True
    for sweep in range(1, _MAX_SWEEPS + 1):
        largest = 0.0
        for j in range(n):
            if current[j] == 0 and not reads_all:
                continue
            d = _compute_step(np.dot(z[j], model_gradient) + l2 * current[j], current[j], hessian_diagonal[j], l1)
            if d != 0:
                current[j] += d
                largest = max(largest, abs(d) * hessian_diagonal[j])
                for row in range(n_rows):
                    model_gradient[row] += d * z[j, row] * curvature[row]
        shift = 0.0
        for row in range(n_rows):
            shift += model_gradient[row]
        shift = -shift / total
        intercept_step += shift
        for row in range(n_rows):
            model_gradient[row] += shift * curvature[row]
        if largest <= tolerance:
            if reads_all:
                break
            reads_all = True
        else:
            reads_all = False
            if sweep % _JOINT_STEP_EVERY == 0:
                intercept_step += _minimise_jointly(z, model_gradient, current, curvature, l1, l2)
    for j in range(n):
        current[j] -= weights[j]
    return current, intercept_step


@njit(nogil=True)
def _minimise_jointly(
    z: Floats, model_gradient: Floats, weights: Floats, curvature: Floats, l1: float, l2: float
) -> float:
    """Move the weights in use to their joint minimum, without changes of sign; return the step of the intercept.

    If columns are nearly alike, single steps are small. So all weights in use are solved for at once, and the step is
    shortened until it lowers the objective. A weight that would change its sign becomes 0. `model_gradient`, (B,), and
    `weights`, (n,), are changed in place.
    """
    n_rows, n = len(model_gradient), 0
    used = np.empty(len(weights), np.int64)
    for j in range(len(weights)):
        if weights[j] != 0:
            used[n] = j
            n += 1
    rows, scaled = np.ones((n + 1, n_rows)), np.empty((n + 1, n_rows))
    for i in range(n + 1):
        for row in range(n_rows):
            if i < n:
                rows[i, row] = z[used[i], row]
            scaled[i, row] = rows[i, row] * np.sqrt(curvature[row])
    gradient = np.dot(rows, model_gradient)
    hessian = np.dot(scaled, scaled.T)
    for i in range(n):
        gradient[i] += l2 * weights[used[i]] + (l1 if weights[used[i]] > 0 else -l1)
        hessian[i, i] = hessian[i, i] * (1 + _DIAGONAL_SHARE) + l2
    hessian[n, n] *= 1 + _DIAGONAL_SHARE
    negative_step = np.linalg.solve(hessian, gradient)
    old_penalty, length = _compute_penalty(weights, l1, l2), 1.0
    new, step = np.empty(n), np.empty(n + 1)
    for _ in range(_MAX_SHORTENINGS):
        step[n] = length * -negative_step[n]
        for i in range(n):
            weight = weights[used[i]]
            new[i] = weight + length * -negative_step[i]
            if not new[i] * weight > 0:
                new[i] = 0.0
            step[i] = new[i] - weight
        log_odds_change = np.dot(step, rows)
        gradient_change = np.empty(n_rows)
        for row in range(n_rows):
            gradient_change[row] = curvature[row] * log_odds_change[row]
        objective_change = (
            np.dot(model_gradient, log_odds_change)
            + 0.5 * np.dot(gradient_change, log_odds_change)
            + _compute_penalty(new, l1, l2)
            - old_penalty
        )
        if objective_change < 0:
            for i in range(n):
                weights[used[i]] = new[i]
            for row in range(n_rows):
                model_gradient[row] += gradient_change[row]
            return float(step[n])
        length *= 0.25
    return 0.0
