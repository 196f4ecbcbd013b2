"""The compiled loops of `elastic_net`: they solve for the columns of one working set, standardised and dense.

Loops over numbers are written out, because numba takes seconds to compile numpy's operations on whole arrays.

Letters: B rows (repertoires), n columns of the working set.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from deeprc.arrays import Floats, Integers
from deeprc.compilation import njit

__all__ = ["Objective", "compute_relative_gap", "minimise_objective", "refit_intercept"]

_MAX_STEPS = 200  # largest number of Newton steps on one working set
_MAX_SWEEPS = 500  # largest number of sweeps of coordinate descent in one Newton step
_JOINT_STEP_EVERY = 20  # sweeps between two joint steps of all weights, see `_minimise_jointly`
_MAX_QUARTERINGS = 8  # largest number of times that a joint step is shortened to a quarter
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


class _NewtonStep(NamedTuple):
    """A step of the weights, (n,), and of the intercept."""

    weights: Floats
    intercept: float


class _QuadraticModel(NamedTuple):
    """The losses as a quadratic function of the log-odds, near some weights.

    Attributes
    ----------
    gradient
        Derivative by each row's log-odds, (B,); changed in place when the weights of the model change.
    curvature, total_curvature
        Second derivative by each row's log-odds, (B,), and the sum over rows.
    hessian_diagonal
        Second derivative of losses and l2 penalty by each weight, (n,).
    """

    gradient: Floats
    curvature: Floats
    total_curvature: float
    hessian_diagonal: Floats


@njit(nogil=True)
def minimise_objective(
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
    gradient, abs_gradient = np.empty(n), np.empty(n)
    for _ in range(_MAX_STEPS):
        residual, primal = refit_intercept(z, labels, weights, intercept, objective)
        violation = 0.0
        for j in range(n):
            gradient[j] = C * np.dot(z[j], residual)
            abs_gradient[j] = abs(gradient[j])
            violation = max(violation, abs(_compute_step(gradient[j] + l2 * weights[j], weights[j], 1.0, l1)))
        if compute_relative_gap(primal, residual, abs_gradient, objective) <= tolerance:
            return
        step = _compute_newton_step(z, residual, weights, objective, 0.1 * violation)
        if not _take_shortened_step(z, labels, weights, intercept, objective, primal, gradient, step):
            return


@njit(nogil=True)
def _take_shortened_step(
    z: Floats,
    labels: Floats,
    weights: Floats,
    intercept: Floats,
    objective: Objective,
    primal: float,
    gradient: Floats,
    step: _NewtonStep,
) -> bool:
    """Halve the step until it lowers the objective enough, take it in place, and return True.

    The result is False, and nothing is changed, if no step lowers the objective in double precision. `primal` is the
    objective before the step, and `gradient` the derivative of the losses by each weight, (n,).
    """
    C, l1, l2 = objective
    n, new_weights, predicted_change = len(weights), np.empty(len(weights)), 0.0
    for j in range(n):
        predicted_change += gradient[j] * step.weights[j]
        new_weights[j] = weights[j] + step.weights[j]
    predicted_change = predicted_change + _compute_penalty(new_weights, l1, l2) - _compute_penalty(weights, l1, l2)
    log_odds = _compute_log_odds(z, weights, intercept[0])
    log_odds_change = _compute_log_odds(z, step.weights, step.intercept)
    new_log_odds = np.empty(len(log_odds))
    length = 1.0
    for _ in range(_MAX_HALVINGS):
        for row in range(len(log_odds)):
            new_log_odds[row] = log_odds[row] + length * log_odds_change[row]
        for j in range(n):
            new_weights[j] = weights[j] + length * step.weights[j]
        new_objective = C * _compute_loss(new_log_odds, labels) + _compute_penalty(new_weights, l1, l2)
        if new_objective <= primal + _ARMIJO_SHARE * length * predicted_change:
            for j in range(n):
                weights[j] = new_weights[j]
            intercept[0] += length * step.intercept
            return True
        length *= 0.5
    return False


@njit(nogil=True)
def refit_intercept(
    z: Floats, labels: Floats, weights: Floats, intercept: Floats, objective: Objective
) -> tuple[Floats, float]:
    """Move the intercept to its best value for these weights; return the residuals there, (B,), and the objective.

    Residuals are probabilities minus labels. The parameters are those of `minimise_objective`; only `intercept` is
    changed.
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
    """Return the probability of the second class, without overflow."""
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
    """Return l1 * |w|_1 + l2 / 2 * |w|_2^2."""
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
def _compute_newton_step(
    z: Floats, residual: Floats, weights: Floats, objective: Objective, tolerance: float
) -> _NewtonStep:
    """Return the step to the minimum of the objective's quadratic model.

    A sweep minimises the model by one weight after the other, and then by the intercept. The first sweep reads all
    weights. The next ones read those that are not 0, until these have settled; then one more sweep reads all.
    """
    model = _make_quadratic_model(z, residual, objective)
    new_weights, intercept_step = weights.copy(), 0.0
    reads_all = True
    for sweep in range(1, _MAX_SWEEPS + 1):
        largest = _sweep_weights(z, model, new_weights, objective, reads_all)
        intercept_step += _shift_intercept(model)
        if largest <= tolerance:
            if reads_all:
                break
            reads_all = True
        else:
            reads_all = False
            if sweep % _JOINT_STEP_EVERY == 0:
                intercept_step += _minimise_jointly(z, model, new_weights, objective)
    for j in range(len(weights)):
        new_weights[j] -= weights[j]
    return _NewtonStep(new_weights, intercept_step)


@njit(nogil=True)
def _make_quadratic_model(z: Floats, residual: Floats, objective: Objective) -> _QuadraticModel:
    """Return the quadratic model of the losses at the weights that have these residuals, (B,)."""
    n, n_rows = z.shape
    gradient, curvature, total_curvature = np.empty(n_rows), np.empty(n_rows), 0.0
    for row in range(n_rows):
        share = abs(residual[row])
        curvature[row] = objective.C * max(share * (1 - share), _MIN_CURVATURE)
        total_curvature += curvature[row]
        gradient[row] = objective.C * residual[row]
    hessian_diagonal = np.empty(n)
    for j in range(n):
        hessian_diagonal[j] = _MIN_HESSIAN + objective.l2
        for row in range(n_rows):
            hessian_diagonal[j] += curvature[row] * z[j, row] * z[j, row]
    return _QuadraticModel(gradient, curvature, total_curvature, hessian_diagonal)


@njit(nogil=True)
def _sweep_weights(z: Floats, model: _QuadraticModel, weights: Floats, objective: Objective, reads_all: bool) -> float:
    """Minimise the model by one weight after the other, in place; return the largest step times its curvature.

    Unless `reads_all`, weights of 0 stay 0.
    """
    largest = 0.0
    for j in range(len(weights)):
        if weights[j] == 0 and not reads_all:
            continue
        slope = np.dot(z[j], model.gradient) + objective.l2 * weights[j]
        step = _compute_step(slope, weights[j], model.hessian_diagonal[j], objective.l1)
        if step != 0:
            weights[j] += step
            largest = max(largest, abs(step) * model.hessian_diagonal[j])
            for row in range(z.shape[1]):
                model.gradient[row] += step * z[j, row] * model.curvature[row]
    return largest


@njit(nogil=True)
def _shift_intercept(model: _QuadraticModel) -> float:
    """Minimise the model by the intercept, and return its step."""
    shift = 0.0
    for row in range(len(model.gradient)):
        shift += model.gradient[row]
    shift = -shift / model.total_curvature
    for row in range(len(model.gradient)):
        model.gradient[row] += shift * model.curvature[row]
    return shift


@njit(nogil=True)
def _minimise_jointly(z: Floats, model: _QuadraticModel, weights: Floats, objective: Objective) -> float:
    """Move the weights in use to their joint minimum, without changes of sign; return the step of the intercept.

    If columns are nearly alike, single steps are small. So all weights in use are solved for at once, and the step is
    shortened until it lowers the objective. A weight that would change its sign becomes 0. The weights, (n,), and the
    gradient of the model are changed in place.
    """
    _, l1, l2 = objective
    used = _list_nonzero(weights)
    n, n_rows = len(used), z.shape[1]
    rows = np.ones((n + 1, n_rows))  # columns in use, then the intercept
    for i in range(n):
        for row in range(n_rows):
            rows[i, row] = z[used[i], row]
    full_step = _compute_joint_step(rows, model, weights, used, objective)
    old_penalty, length = _compute_penalty(weights, l1, l2), 1.0
    new, step, gradient_change = np.empty(n), np.empty(n + 1), np.empty(n_rows)
    for _ in range(_MAX_QUARTERINGS):
        step[n] = length * full_step[n]
        for i in range(n):
            weight = weights[used[i]]
            new[i] = weight + length * full_step[i]
            if not new[i] * weight > 0:
                new[i] = 0.0
            step[i] = new[i] - weight
        log_odds_change = np.dot(step, rows)
        for row in range(n_rows):
            gradient_change[row] = model.curvature[row] * log_odds_change[row]
        objective_change = (
            np.dot(model.gradient, log_odds_change)
            + 0.5 * np.dot(gradient_change, log_odds_change)
            + _compute_penalty(new, l1, l2)
            - old_penalty
        )
        if objective_change < 0:
            for i in range(n):
                weights[used[i]] = new[i]
            for row in range(n_rows):
                model.gradient[row] += gradient_change[row]
            return float(step[n])
        length *= 0.25
    return 0.0


@njit(nogil=True)
def _compute_joint_step(
    rows: Floats, model: _QuadraticModel, weights: Floats, used: Integers, objective: Objective
) -> Floats:
    """Return the Newton step of the k weights in use, as if they kept their signs, and of the intercept, (k + 1,).

    `rows` has the columns of these weights, and a last row of ones for the intercept, (k + 1, B).
    """
    n = len(used)
    scaled = np.empty(rows.shape)
    for i in range(n + 1):
        for row in range(rows.shape[1]):
            scaled[i, row] = rows[i, row] * np.sqrt(model.curvature[row])
    gradient = np.dot(rows, model.gradient)
    hessian = np.dot(scaled, scaled.T)
    for i in range(n):
        weight = weights[used[i]]
        gradient[i] += objective.l2 * weight + (objective.l1 if weight > 0 else -objective.l1)
        hessian[i, i] = hessian[i, i] * (1 + _DIAGONAL_SHARE) + objective.l2
    hessian[n, n] *= 1 + _DIAGONAL_SHARE
    return np.linalg.solve(hessian, -gradient)


@njit(nogil=True)
def _list_nonzero(weights: Floats) -> Integers:
    """Return the indices of the weights that are not 0, in rising order."""
    used, n = np.empty(len(weights), np.int64), 0
    for j in range(len(weights)):
        if weights[j] != 0:
            used[n], n = j, n + 1
    return used[:n]
