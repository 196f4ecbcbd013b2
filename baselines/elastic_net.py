"""Logistic regression with an l1 or l2 penalty, or both, to convergence: few rows, many columns, many penalties.

Minimised are, as in scikit-learn, C * sum of losses + l1_ratio * |w|_1 + (1 - l1_ratio) / 2 * |w|_2^2 over the
coefficients w of centred and scaled columns z, and an intercept without penalty.

- With an l1 part: proximal Newton steps by coordinate descent (Friedman, Hastie and Tibshirani 2010, J. Stat. Softw.
  33(1); Yuan, Ho and Lin 2012, JMLR 13:1999) on a working set of columns, to which those that violate the optimality
  conditions are added until the duality gap over all columns is small (Johnson and Guestrin 2015, ICML). So the whole
  matrix is read a few times per penalty, once per check.
- l2 alone: the solution is in the span of the rows, so Newton's method runs in at most B dimensions, those of the
  B x B Gram matrix.

Letters: B rows (repertoires), M columns, n columns of the working set, V values of C.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve, eigh
from scipy.special import expit
from threadpoolctl import threadpool_limits

from deeprc.baselines.columns import Columns, Scale
from deeprc.errors import InputError

__all__ = ["Solution", "elastic_net_path"]

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]

_GRID = 10**0.25  # between the penalties from which others start
_GRID_TOLERANCE = 1e-2
_SMALLEST_SET = 64  # columns
_NEAR = 0.8  # slope of a column that may come into use, by the slope at which it does
_MOST_CHECKS = 100
_MOST_STEPS = 200  # Newton steps on one working set
_MOST_SWEEPS = 500  # of coordinate descent in one Newton step
_MOST_HALVINGS = 40  # of the length of a Newton step
_FLAT = 1e-10  # least curvature of a row's loss


@dataclass(frozen=True)
class Solution:
    """A linear function of the columns as they were given: score = x[columns] @ coefficients + intercept.

    Attributes
    ----------
    columns
        Those whose coefficient is not 0, (n,), rising.
    coefficients
        (n,) float64.
    intercept
        Of the columns as they were given: neither centred nor scaled.
    gap
        Relative duality gap: at most this share of the objective could be gained.
    """

    columns: NDArray[np.int64]
    coefficients: Floats
    intercept: float
    gap: float


def elastic_net_path(
    matrix: Any,
    positive: NDArray[np.bool_],
    Cs: Sequence[float],
    *,
    l1_ratio: float = 1.0,
    scale: Scale = "standard",
    tolerance: float = 1e-6,
) -> Iterator[Solution]:
    """Solve for each C in turn.

    A solution does not depend on the other values asked for: each starts from the nearest smaller one of a grid
    that depends on the data alone.

    Parameters
    ----------
    matrix
        (B, M): a dense array or a SciPy sparse matrix; neither is changed, nor is a sparse one made dense.
    positive
        Which rows are of the second class, (B,).
    Cs
        Weights of the loss, (V,), above 0; see the module's head.
    l1_ratio
        Share of the l1 penalty, 0 to 1.
    scale
        The penalty is of the coefficients of columns that are centred and scaled so; see `Columns`. Constant columns
        have no coefficient.
    tolerance
        Relative duality gap at which a solution is good enough.

    Raises
    ------
    InputError
        If a value is out of range or all rows are of one class.
    """
    positive = np.asarray(positive, bool)
    if len(positive) != matrix.shape[0] or positive.all() or not positive.any():
        raise InputError(
            f"expected two classes among {matrix.shape[0]} rows, found {len(positive)} labels of "
            f"{len(np.unique(positive))}"
        )
    if not 0 <= l1_ratio <= 1:
        raise InputError(f"l1_ratio: expected a share between 0 and 1, found {l1_ratio}")
    for C in Cs:
        if not isinstance(C, int | float | np.number) or not 0 < C < np.inf:
            raise InputError(f"C: expected a number above 0, found {C!r}")
    columns = Columns(matrix, scale=scale)
    target = positive.astype(np.float64)
    if l1_ratio == 0:
        return _ridge_path(columns, target, Cs, tolerance)
    return _sparse_path(columns, target, Cs, l1_ratio, tolerance)


def _sparse_path(
    columns: Columns, target: Floats, Cs: Sequence[float], l1_ratio: float, tolerance: float
) -> Iterator[Solution]:
    """Go up the grid once, and from it to each C."""
    share = float(target.mean())
    products = columns.products(share - target)
    steepest = float(np.abs(products).max(initial=0))
    first = l1_ratio / steepest if steepest > 0 else np.inf  # up to this C all coefficients are 0
    null = _State(np.zeros(0, np.int64), np.zeros(0), float(np.log(share / (1 - share))), products, 0.0)
    start, n_steps, found = null, 0, {}
    for C in sorted(set(Cs)):
        if first >= C:
            found[C] = _solution(columns, null)
            continue
        while first * _GRID ** (n_steps + 1) <= C:
            n_steps += 1
            start = _solve(columns, target, start, first * _GRID**n_steps, l1_ratio, max(tolerance, _GRID_TOLERANCE))
        found[C] = _solution(columns, _solve(columns, target, start, float(C), l1_ratio, tolerance))
    return iter([found[C] for C in Cs])


@dataclass(frozen=True)
class _State:
    """Weights, (n,), of chosen standardised columns, (n,), and an intercept; each column's product with what is missed.

    What is missed are the probabilities minus the labels, (B,); the products, (M,), do not contain C.
    """

    chosen: NDArray[np.int64]
    weights: Floats
    intercept: float
    products: Floats
    gap: float


def _solution(columns: Columns, state: _State) -> Solution:
    order = np.argsort(state.chosen)
    order = order[state.weights[order] != 0]
    chosen = state.chosen[order]
    coefficients = state.weights[order] * columns.factor[chosen]
    return Solution(chosen, coefficients, float(state.intercept - coefficients @ columns.centre[chosen]), state.gap)


def _solve(columns: Columns, target: Floats, start: _State, C: float, l1: float, tolerance: float) -> _State:
    """Solve on working sets that grow, and check all columns after each."""
    l2 = 1 - l1
    chosen, weights, intercept, products = start.chosen, start.weights, np.array([start.intercept]), start.products
    z = columns.take(chosen)
    missed, primal = _missed(z, target, weights, intercept, C, l1, l2)
    gap = float(_relative_gap(primal, missed, C * np.abs(products), C, l1, l2))
    for _ in range(_MOST_CHECKS):
        if gap <= tolerance:
            break
        carried = weights != 0
        chosen, weights = _enlarged(chosen[carried], weights[carried], C * np.abs(products), l1)
        z = columns.take(chosen)
        _descend(z, target, weights, intercept, C, l1, l2, max(0.3 * tolerance, 0.1 * gap))
        missed, primal = _missed(z, target, weights, intercept, C, l1, l2)
        products = columns.products(missed)
        gap = float(_relative_gap(primal, missed, C * np.abs(products), C, l1, l2))
    else:
        logger.warning("logistic regression, C = %g: not converged, the relative duality gap is %.1e", C, gap)
    return _State(chosen, weights, float(intercept[0]), products, gap)


def _enlarged(chosen: NDArray[np.int64], weights: Floats, slope: Floats, l1: float) -> tuple[NDArray[np.int64], Floats]:
    """Return the working set: the columns in use and the steepest, (M,), of those that could come into use."""
    size = max(_SMALLEST_SET, 2 * len(chosen))
    steepest = np.flatnonzero(slope > _NEAR * l1)
    if len(steepest) > size:
        steepest = steepest[np.argpartition(slope[steepest], len(steepest) - size)[len(steepest) - size :]]
    every = np.concatenate([chosen, np.setdiff1d(steepest, chosen)])
    return every, np.concatenate([weights, np.zeros(len(every) - len(weights))])


@numba.njit(cache=True, nogil=True)
def _loss(odds: Floats, target: Floats) -> float:
    total = 0.0
    for row in range(len(odds)):
        margin = odds[row] if target[row] > 0 else -odds[row]
        total += max(-margin, 0.0) + np.log1p(np.exp(-abs(margin)))
    return total


@numba.njit(cache=True, nogil=True)
def _odds(z: Floats, weights: Floats, intercept: Floats) -> Floats:
    odds = np.full(z.shape[1], intercept[0])
    for j in range(len(weights)):
        if weights[j] != 0:
            odds += weights[j] * z[j]
    return odds


@numba.njit(cache=True, nogil=True)
def _penalty(weights: Floats, l1: float, l2: float) -> float:
    return float(l1 * np.abs(weights).sum() + 0.5 * l2 * (weights * weights).sum())


@numba.njit(cache=True, nogil=True)
def _probability(odds: Floats) -> Floats:
    tail = np.exp(-np.abs(odds))
    return np.where(odds >= 0, 1 / (1 + tail), tail / (1 + tail))


@numba.njit(cache=True, nogil=True)
def _balance(odds: Floats, target: Floats, intercept: Floats) -> None:
    """Move the intercept, in place, to where the residuals sum to 0; a dual point must have it so."""
    for _ in range(50):
        probability = _probability(odds)
        curvature = (probability * (1 - probability)).sum() + _FLAT
        step = min(max((target - probability).sum() / curvature, -1.0), 1.0)
        intercept[0] += step
        odds += step
        if abs(step) < 1e-13:
            return


@numba.njit(cache=True, nogil=True)
def _missed(
    z: Floats, target: Floats, weights: Floats, intercept: Floats, C: float, l1: float, l2: float
) -> tuple[Floats, float]:
    """Return the probabilities minus the labels, (B,), at the best intercept, and the objective."""
    odds = _odds(z, weights, intercept)
    _balance(odds, target, intercept)
    return _probability(odds) - target, C * _loss(odds, target) + _penalty(weights, l1, l2)


@numba.njit(cache=True, nogil=True)
def _relative_gap(primal: float, missed: Floats, slope: Floats, C: float, l1: float, l2: float) -> float:
    """Return (primal - dual) / primal; the dual point is `missed`, shrunk where l1 alone bounds the slopes, (n,)."""
    steepest = slope.max() if len(slope) else 0.0
    shrink = l1 / steepest if l2 == 0 and steepest > l1 else 1.0
    dual = 0.0
    for row in range(len(missed)):
        share = min(abs(missed[row]) * shrink, 1.0)
        if 0 < share < 1:
            dual -= C * (share * np.log(share) + (1 - share) * np.log1p(-share))
    if l2 > 0:
        dual -= (np.maximum(slope - l1, 0.0) ** 2).sum() / (2 * l2)
    return (primal - dual) / primal


@numba.njit(cache=True, nogil=True)
def _descend(
    z: Floats, target: Floats, weights: Floats, intercept: Floats, C: float, l1: float, l2: float, tolerance: float
) -> None:
    """Solve for the columns of a working set, z (n, B); changes weights, (n,), and intercept, (1,)."""
    for _ in range(_MOST_STEPS):
        missed, primal = _missed(z, target, weights, intercept, C, l1, l2)
        slope = np.empty(len(weights))
        violation = 0.0
        for j in range(len(weights)):
            slope[j] = C * np.dot(z[j], missed)
            violation = max(violation, abs(_step(slope[j] + l2 * weights[j], weights[j], 1.0, l1)))
        if _relative_gap(primal, missed, np.abs(slope), C, l1, l2) <= tolerance:
            return
        step, lift, moved = _newton_step(z, missed, weights, C, l1, l2, 0.1 * violation)
        promised = (slope * step).sum() + _penalty(weights + step, l1, l2) - _penalty(weights, l1, l2)
        odds = _odds(z, weights, intercept)
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


@numba.njit(cache=True, nogil=True)
def _step(slope: float, weight: float, curvature: float, l1: float) -> float:
    """Return the way to the minimum of slope * d + curvature / 2 * d^2 + l1 * |weight + d|."""
    goal = weight - slope / curvature
    shrunk = max(abs(goal) - l1 / curvature, 0.0)
    return (shrunk if goal > 0 else -shrunk) - weight


@numba.njit(cache=True, nogil=True)
def _newton_step(
    z: Floats, missed: Floats, weights: Floats, C: float, l1: float, l2: float, tolerance: float
) -> tuple[Floats, float, Floats]:
    """Minimise the quadratic model by coordinate descent; return steps of the weights, intercept and log-odds."""
    n, n_rows = z.shape
    share = np.abs(missed)
    curvature = C * np.maximum(share * (1 - share), _FLAT)
    model = C * missed  # the model's derivative by each row's log-odds
    moved, step, lift, total = np.zeros(n_rows), np.zeros(n), 0.0, curvature.sum()
    bend = np.empty(n)
    for j in range(n):
        bend[j] = 1e-12 + l2
        for row in range(n_rows):
            bend[j] += curvature[row] * z[j, row] * z[j, row]
    every = True
    for _ in range(_MOST_SWEEPS):
        largest = 0.0
        for j in range(n):
            at = weights[j] + step[j]
            if at == 0 and not every:
                continue
            d = _step(np.dot(z[j], model) + l2 * at, at, bend[j], l1)
            if d != 0:
                step[j] += d
                largest = max(largest, abs(d) * bend[j])
                for row in range(n_rows):
                    moved[row] += d * z[j, row]
                    model[row] += d * z[j, row] * curvature[row]
        shift = -model.sum() / total
        lift += shift
        moved += shift
        model += shift * curvature
        if largest <= tolerance:
            if every:
                break
            every = True  # those in use have settled: look at all others once more
        else:
            every = False
    return step, lift, moved


def _ridge_path(columns: Columns, target: Floats, Cs: Sequence[float], tolerance: float) -> Iterator[Solution]:
    """Solve in coordinates, (B, r), whose inner products are those of the rows; r is at most B."""
    direct = columns.shape[1] <= columns.shape[0]
    with _one_thread():
        coordinates = columns.take(np.arange(columns.shape[1])).T if direct else _coordinates(columns.gram())
    varies = np.flatnonzero(columns.factor)
    for C in map(float, Cs):
        with _one_thread():
            weights, intercept = _ridge(coordinates, target, C, tolerance)
        transposed = np.ascontiguousarray(coordinates.T)
        missed, primal = _missed(transposed, target, weights, intercept, C, 0.0, 1.0)
        products = columns.products(missed)
        gap = float(_relative_gap(primal, missed, C * np.abs(products), C, 0.0, 1.0))
        every = weights if direct else -C * products
        yield _solution(columns, _State(varies, every[varies], float(intercept[0]), products, gap))


def _one_thread() -> threadpool_limits:
    """Let the linear algebra run on one thread: its matrices are small, and threads that wait for others cost more."""
    return threadpool_limits(1, user_api="blas")


def _coordinates(gram: Floats) -> Floats:
    values, vectors = eigh(gram)
    kept = values > len(gram) * np.finfo(float).eps * max(float(values[-1]), 0.0)
    return np.asarray(vectors[:, kept] * np.sqrt(values[kept]))


def _ridge(coordinates: Floats, target: Floats, C: float, tolerance: float) -> tuple[Floats, Floats]:
    """Newton's method with step halving; returns weights, (r,), and the intercept, (1,)."""
    design = np.column_stack([coordinates, np.ones(len(target))])
    ridge = np.append(np.ones(coordinates.shape[1]), 0.0)
    solution = np.zeros(design.shape[1])
    solution[-1] = np.log(target.mean() / (1 - target.mean()))

    def objective(at: Floats) -> float:
        odds = design @ at
        return C * float(np.sum(np.logaddexp(0, odds) - target * odds)) + 0.5 * float(ridge @ at**2)

    now = objective(solution)
    for _ in range(_MOST_STEPS):
        probability = expit(design @ solution)
        slope = C * (design.T @ (probability - target)) + ridge * solution
        root = np.sqrt(C * np.maximum(probability * (1 - probability), _FLAT))[:, None] * design
        step = -cho_solve(cho_factor(root.T @ root + np.diag(ridge)), slope)
        length, decrement = 1.0, float(slope @ step)
        if -decrement <= 1e-3 * tolerance * now:  # near the end a step squares the error
            return (solution + step)[:-1], (solution + step)[-1:]
        while objective(solution + length * step) > now + 0.01 * length * decrement and length > 1e-10:
            length *= 0.5
        solution = solution + length * step
        now = objective(solution)
    return solution[:-1], solution[-1:]
