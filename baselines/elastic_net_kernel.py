"""The compiled inner solver of `elastic_net`: the columns of one working set, standardised and dense.

The objective is C * sum of losses + l1 * |w|_1 + l2 / 2 * |w|_2^2; the intercept is an array of one number, changed in
place.

Letters: B rows (repertoires), n columns of the working set.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deeprc.compilation import njit

__all__ = ["descend", "relative_gap", "residual_at"]

Floats = NDArray[np.float64]

_MOST_STEPS = 200  # Newton steps on one working set
_MOST_SWEEPS = 500  # of coordinate descent in one Newton step
_LEAP, _MOST_LEAPS = 20, 8  # sweeps before all weights in use move at once; how often that is shortened
_RIDGE = 1e-10  # share by which a diagonal grows, so that equal columns can be solved for
_MOST_HALVINGS = 40  # of the length of a Newton step
_FLAT = 1e-10  # least curvature of a row's loss


@njit(nogil=True)
def _loss(odds: Floats, target: Floats) -> float:
    total = 0.0
    for row in range(len(odds)):
        margin = odds[row] if target[row] > 0 else -odds[row]
        total += max(-margin, 0.0) + np.log1p(np.exp(-abs(margin)))
    return total


@njit(nogil=True)
def _odds(z: Floats, weights: Floats, intercept: Floats) -> Floats:
    odds = np.full(z.shape[1], intercept[0])
    for j in range(len(weights)):
        if weights[j] != 0:
            odds += weights[j] * z[j]
    return odds


@njit(nogil=True)
def _penalty(weights: Floats, l1: float, l2: float) -> float:
    return float(l1 * np.abs(weights).sum() + 0.5 * l2 * (weights * weights).sum())


@njit(nogil=True)
def _probability(odds: Floats) -> Floats:
    tail = np.exp(-np.abs(odds))
    return np.where(odds >= 0, 1 / (1 + tail), tail / (1 + tail))


@njit(nogil=True)
def _fit_intercept(odds: Floats, target: Floats, intercept: Floats) -> None:
    """Move the intercept, in place, to where the residuals sum to 0; a dual point must have it so."""
    for _ in range(50):
        probability = _probability(odds)
        curvature = (probability * (1 - probability)).sum() + _FLAT
        step = min(max((target - probability).sum() / curvature, -1.0), 1.0)
        intercept[0] += step
        odds += step
        if abs(step) < 1e-13:
            return


@njit(nogil=True)
def residual_at(
    z: Floats, target: Floats, weights: Floats, intercept: Floats, C: float, l1: float, l2: float
) -> tuple[Floats, float]:
    """Return the probabilities minus the labels, (B,), at the best intercept, and the objective."""
    odds = _odds(z, weights, intercept)
    _fit_intercept(odds, target, intercept)
    return _probability(odds) - target, C * _loss(odds, target) + _penalty(weights, l1, l2)


@njit(nogil=True)
def relative_gap(primal: float, residual: Floats, slope: Floats, C: float, l1: float, l2: float) -> float:
    """Return (primal - dual) / primal; the dual point is `residual`, shrunk where l1 alone bounds the slopes, (n,)."""
    steepest = slope.max() if len(slope) else 0.0
    shrink = l1 / steepest if l2 == 0 and steepest > l1 else 1.0
    dual = 0.0
    for row in range(len(residual)):
        share = min(abs(residual[row]) * shrink, 1.0)
        if 0 < share < 1:
            dual -= C * (share * np.log(share) + (1 - share) * np.log1p(-share))
    if l2 > 0:
        dual -= (np.maximum(slope - l1, 0.0) ** 2).sum() / (2 * l2)
    return (primal - dual) / primal


@njit(nogil=True)
def descend(
    z: Floats, target: Floats, weights: Floats, intercept: Floats, C: float, l1: float, l2: float, tolerance: float
) -> None:
    """Solve for the columns of a working set, z (n, B); changes weights, (n,), and intercept, (1,)."""
    for _ in range(_MOST_STEPS):
        residual, primal = residual_at(z, target, weights, intercept, C, l1, l2)
        slope = np.empty(len(weights))
        violation = 0.0
        for j in range(len(weights)):
            slope[j] = C * np.dot(z[j], residual)
            violation = max(violation, abs(_step(slope[j] + l2 * weights[j], weights[j], 1.0, l1)))
        if relative_gap(primal, residual, np.abs(slope), C, l1, l2) <= tolerance:
            return
        step, lift = _newton_step(z, residual, weights, C, l1, l2, 0.1 * violation)
        promised = (slope * step).sum() + _penalty(weights + step, l1, l2) - _penalty(weights, l1, l2)
        odds, moved = _odds(z, weights, intercept), _odds(z, step, np.array([lift]))
        length = 1.0
        for _ in range(_MOST_HALVINGS):
            found = C * _loss(odds + length * moved, target) + _penalty(weights + length * step, l1, l2)
            if found <= primal + 0.01 * length * promised:
                break
            length *= 0.5
        else:
            return  # no way down that double precision can see
        weights += length * step
        intercept[0] += length * lift


@njit(nogil=True)
def _step(slope: float, weight: float, curvature: float, l1: float) -> float:
    """Return the way to the minimum of slope * d + curvature / 2 * d^2 + l1 * |weight + d|."""
    goal = weight - slope / curvature
    shrunk = max(abs(goal) - l1 / curvature, 0.0)
    return (shrunk if goal > 0 else -shrunk) - weight


@njit(nogil=True)
def _newton_step(
    z: Floats, residual: Floats, weights: Floats, C: float, l1: float, l2: float, tolerance: float
) -> tuple[Floats, float]:
    """Minimise the quadratic model; return steps of the weights, (n,), and the intercept."""
    n, n_rows = z.shape
    share = np.abs(residual)
    curvature = C * np.maximum(share * (1 - share), _FLAT)
    model = C * residual  # the model's derivative by each row's log-odds
    at, lift, total = weights.copy(), 0.0, curvature.sum()
    bend = np.empty(n)
    for j in range(n):
        bend[j] = 1e-12 + l2
        for row in range(n_rows):
            bend[j] += curvature[row] * z[j, row] * z[j, row]
    every = True
    for sweep in range(1, _MOST_SWEEPS + 1):
        largest = 0.0
        for j in range(n):
            if at[j] == 0 and not every:
                continue
            d = _step(np.dot(z[j], model) + l2 * at[j], at[j], bend[j], l1)
            if d != 0:
                at[j] += d
                largest = max(largest, abs(d) * bend[j])
                for row in range(n_rows):
                    model[row] += d * z[j, row] * curvature[row]
        shift = -model.sum() / total
        lift += shift
        model += shift * curvature
        if largest <= tolerance:
            if every:
                break
            every = True  # those in use have settled: look at all others once more
        else:
            every = False
            if sweep % _LEAP == 0:
                lift += _leap(z, model, at, curvature, l1, l2)
    return at - weights, lift


@njit(nogil=True)
def _leap(z: Floats, model: Floats, at: Floats, curvature: Floats, l1: float, l2: float) -> float:
    """Go to the minimum for the weights in use and their signs, as far as it helps; return the intercept's step.

    Columns that are nearly alike make single steps small; all at once are solved for here. A weight that would change
    its sign becomes 0. Changes `model`, (B,), and `at`, (n,).
    """
    used = np.flatnonzero(at)
    n = len(used)
    rows = np.empty((n + 1, z.shape[1]))
    for i in range(n):
        rows[i] = z[used[i]]
    rows[n] = 1.0
    slope = np.dot(rows, model)
    slope[:n] += l2 * at[used] + l1 * np.sign(at[used])
    scaled = rows * np.sqrt(curvature)
    bend = np.dot(scaled, scaled.T)
    for i in range(n):
        bend[i, i] = bend[i, i] * (1 + _RIDGE) + l2
    bend[n, n] *= 1 + _RIDGE
    goal = -np.linalg.solve(bend, slope)
    before = _penalty(at, l1, l2)
    length = 1.0
    for _ in range(_MOST_LEAPS):
        new = at[used] + length * goal[:n]
        new = np.where(new * at[used] > 0, new, 0.0)
        moved = np.dot(np.append(new - at[used], length * goal[n]), rows)
        gain = np.dot(model, moved) + 0.5 * np.dot(curvature * moved, moved) + _penalty(new, l1, l2) - before
        if gain < 0:
            at[used] = new
            model += curvature * moved
            return float(length * goal[n])
        length *= 0.25
    return 0.0
