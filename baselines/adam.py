"""Logistic regression by Adam in one compiled loop, for few rows of many columns.

An update reads the columns of its batch once, block by block. It needs a sixth of the time of a loop with torch's fused
Adam (docs/experiments.md, 2026-11-23).

Letters: B rows (repertoires), M columns, n rows of a batch.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.standardised_columns import add_four_rows, add_row
from deeprc.compilation import njit

__all__ = ["AdamSettings", "AdamState", "draw_batches", "make_updates"]

_BLOCK = 16_384  # columns that are read, changed and read again while they are in the cache


class AdamSettings(NamedTuple):
    """Step size, penalties of the loss, decay of the running means (betas) and epsilon (Kingma and Ba 2015).

    The loss is the batch's mean cross-entropy + l1 * |w|_1 + l2 / 2 * |w|_2^2, so l2 is what torch.optim.Adam calls
    `weight_decay`. The intercept has no penalty.
    """

    learning_rate: float
    l1: float
    l2: float
    beta_1: float = 0.9
    beta_2: float = 0.999
    epsilon: float = 1e-8


class _UpdateConstants(NamedTuple):
    """The constants of one update, in the type of the weights, as mixed types would be computed in double precision.

    Attributes
    ----------
    l1, l2, beta_1, beta_2, epsilon
        As in `AdamSettings`.
    rest_1, rest_2
        1 minus `beta_1`, and 1 minus `beta_2`.
    step
        Step size divided by 1 minus beta_1 to the power of the number of updates.
    correction
        1 divided by the root of 1 minus beta_2 to the power of the number of updates.
    """

    l1: Any
    l2: Any
    beta_1: Any
    rest_1: Any
    beta_2: Any
    rest_2: Any
    step: Any
    correction: Any
    epsilon: Any


class AdamState:
    """Weights and Adam's running means, which start at 0.

    Attributes
    ----------
    values
        Weights, running means of the gradients and of their squares, (3, M + 1) of one float type. The last column, M,
        is the intercept's.
    n_updates
        Number of updates that were made.
    """

    def __init__(self, n_columns: int, dtype: Any = np.float32) -> None:
        self.values: NDArray[Any] = np.zeros((3, n_columns + 1), dtype)
        self.n_updates = 0


def draw_batches(n_rows: int, batch_size: int, n_batches: int, seed: int) -> NDArray[np.int64]:
    """Return the indices of the rows of each batch, (n_batches, batch_size).

    The batches are cut from random permutations of all rows, whose random numbers depend on `seed`. A larger
    `n_batches` only appends batches.
    """
    rng = np.random.default_rng(seed)
    n_permutations = -(-n_batches * batch_size // n_rows)
    permutations = [rng.permutation(n_rows) for _ in range(n_permutations)] or [np.zeros(0, np.int64)]
    return np.concatenate(permutations)[: n_batches * batch_size].reshape(n_batches, batch_size).astype(np.int64)


def make_updates(
    state: AdamState,
    matrix: NDArray[Any],
    positive: NDArray[np.bool_],
    batches: NDArray[np.int64],
    settings: AdamSettings,
) -> None:
    """Make one update with each batch; the state is changed in place.

    Parameters
    ----------
    state
        The weights and running means to start from.
    matrix, positive
        Features, (B, M), and whether each row is of the second class, (B,).
    batches
        Indices of the rows of each batch, (number of updates, n).
    settings
        The loss's penalties and Adam's parameters.
    """
    matrix = np.ascontiguousarray(matrix, state.values.dtype)
    _train_weights(matrix, positive.astype(np.float64), batches, state.n_updates, np.array(settings), state.values)
    state.n_updates += len(batches)


@njit(nogil=True, error_model="numpy")
def _train_weights(
    matrix: NDArray[Any],
    labels: NDArray[np.float64],
    batches: NDArray[np.int64],
    n_updates: int,
    settings: NDArray[np.float64],
    state: NDArray[Any],
) -> None:
    """Read all columns once per update: change their weights, then add their products to the next batch's log-odds.

    `n_updates` is the number of updates made before.
    """
    n_columns, n_batches, n = matrix.shape[1], len(batches), batches.shape[1]
    weight, mean, square = state[0], state[1], state[2]
    gradient, residual = np.empty(_BLOCK, state.dtype), np.zeros(n, state.dtype)
    log_odds, intercept = np.zeros(n), state[:, n_columns]
    for update in range(-1, n_batches):  # the first round only computes the log-odds of the first batch
        if update >= 0:
            rows, index = batches[update], n_updates + update
            constants = _begin_update(log_odds, labels, rows, index, settings, intercept, residual)
        log_odds[:] = intercept[0]
        for start in range(0, n_columns, _BLOCK):
            columns = slice(start, min(start + _BLOCK, n_columns))
            if update >= 0:
                block_gradient = gradient[: columns.stop - start]
                block_gradient[:] = 0
                _add_rows(matrix, batches[update], columns, residual, block_gradient)
                _update_weights(block_gradient, weight[columns], mean[columns], square[columns], constants)
            if update + 1 < n_batches:
                _dot_rows(matrix, batches[update + 1], columns, weight[columns], log_odds)


@njit(nogil=True, error_model="numpy")
def _begin_update(
    log_odds: NDArray[np.float64],
    labels: NDArray[np.float64],
    rows: NDArray[np.int64],
    update: int,
    settings: NDArray[np.float64],
    intercept: NDArray[Any],
    residual: NDArray[Any],
) -> _UpdateConstants:
    """Compute a batch's residuals, (n,), change the intercept, and return the constants of the update."""
    rate, l1, l2, beta_1, beta_2, epsilon = settings
    intercept_gradient = 0.0
    for i in range(len(rows)):
        error = (1 / (1 + np.exp(-log_odds[i])) - labels[rows[i]]) / len(rows)
        residual[i] = error
        intercept_gradient += error
    step, correction = rate / (1 - beta_1 ** (update + 1)), 1 / np.sqrt(1 - beta_2 ** (update + 1))
    intercept[1] = beta_1 * intercept[1] + (1 - beta_1) * intercept_gradient
    intercept[2] = beta_2 * intercept[2] + (1 - beta_2) * intercept_gradient * intercept_gradient
    intercept[0] -= step * intercept[1] / (np.sqrt(intercept[2]) * correction + epsilon)
    cast = intercept.dtype.type
    return _UpdateConstants(
        cast(l1),
        cast(l2),
        cast(beta_1),
        cast(1 - beta_1),
        cast(beta_2),
        cast(1 - beta_2),
        cast(step),
        cast(correction),
        cast(epsilon),
    )


@njit(nogil=True)
def _take_four_rows(matrix: NDArray[Any], rows: NDArray[np.int64], columns: slice) -> tuple[NDArray[Any], ...]:
    return matrix[rows[0], columns], matrix[rows[1], columns], matrix[rows[2], columns], matrix[rows[3], columns]


@njit(nogil=True)
def _add_rows(
    matrix: NDArray[Any], rows: NDArray[np.int64], columns: slice, factors: NDArray[Any], total: NDArray[Any]
) -> None:
    """Add rows times factors to the total, four rows at a time: four streams keep the memory busy."""
    i = 0
    while i + 4 <= len(rows):
        add_four_rows(_take_four_rows(matrix, rows[i : i + 4], columns), factors[i : i + 4], total)
        i += 4
    while i < len(rows):
        add_row(matrix[rows[i], columns], factors[i], total)
        i += 1


@njit(nogil=True, error_model="numpy")
def _update_weights(
    gradient: NDArray[Any],
    weight: NDArray[Any],
    mean: NDArray[Any],
    square: NDArray[Any],
    constants: _UpdateConstants,
) -> None:
    """Change the weights and their running means in place by the gradient of the loss."""
    l1, l2, beta_1, rest_1, beta_2, rest_2, step, correction, epsilon = constants
    zero = gradient.dtype.type(0)
    for column in range(len(weight)):
        w = weight[column]
        decay = l1 if w > zero else (-l1 if w < zero else zero)
        g = gradient[column] + decay + l2 * w
        mean[column] = beta_1 * mean[column] + rest_1 * g
        square[column] = beta_2 * square[column] + rest_2 * g * g
        weight[column] = w - step * mean[column] / (np.sqrt(square[column]) * correction + epsilon)


@njit(nogil=True)
def _dot_rows(
    matrix: NDArray[Any], rows: NDArray[np.int64], columns: slice, weight: NDArray[Any], total: NDArray[np.float64]
) -> None:
    """Add the product of each row with the weights to the total, (n,)."""
    i = 0
    while i + 4 <= len(rows):
        p, q, r, s = _take_four_rows(matrix, rows[i : i + 4], columns)
        a, b, c, d = _dot_four(p, q, r, s, weight)
        total[i] += a
        total[i + 1] += b
        total[i + 2] += c
        total[i + 3] += d
        i += 4
    while i < len(rows):
        total[i] += _dot_one(matrix[rows[i], columns], weight)
        i += 1


@njit(nogil=True, fastmath={"reassoc", "nsz", "contract"})  # a sum in several parts at once
def _dot_four(
    p: NDArray[Any], q: NDArray[Any], r: NDArray[Any], s: NDArray[Any], weight: NDArray[Any]
) -> tuple[Any, Any, Any, Any]:
    """Return the products of four rows with the weights; four at a time read the weights once."""
    a = b = c = d = weight.dtype.type(0)
    for j in range(len(weight)):
        w = weight[j]
        a += w * p[j]
        b += w * q[j]
        c += w * r[j]
        d += w * s[j]
    return a, b, c, d


@njit(nogil=True, fastmath={"reassoc", "nsz", "contract"})
def _dot_one(row: NDArray[Any], weight: NDArray[Any]) -> Any:
    total = weight.dtype.type(0)
    for j in range(len(weight)):
        total += weight[j] * row[j]
    return total
