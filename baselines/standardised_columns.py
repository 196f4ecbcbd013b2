"""The columns of a matrix, centred and scaled on the fly: a sparse matrix stays sparse, a large one is not copied.

Letters: B rows (repertoires), M columns, n chosen columns, V values that a sparse matrix stores.
"""

from __future__ import annotations

from functools import partial
from itertools import combinations_with_replacement
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_matrix, issparse

from deeprc.arrays import Floats
from deeprc.compilation import njit, open_threads, run_in_blocks
from deeprc.threads import limit_blas_threads

__all__ = ["ColumnScaling", "StandardisedColumns", "add_four_rows", "add_row"]

ColumnScaling = Literal["standard", "common"]

_BLOCK = 16_384  # number of columns that one thread reads at a time: long runs are read fastest
_GRAM_BLOCK, _GRAM_ROWS = 4096, 256  # columns, and rows, whose inner products are computed at once
_MIN_WEIGHT = 1e-300  # smallest sum of weights that is divided by
_CONSTANT = {np.dtype(np.float32): 1e-6, np.dtype(np.float64): 1e-10}  # standard deviation / mean of a constant column


class _SparseColumns(NamedTuple):
    """The values that a sparse matrix stores, their rows, (V,) each, and where each column begins in them, (M + 1,)."""

    values: NDArray[Any]
    rows: NDArray[Any]
    starts: NDArray[Any]


class StandardisedColumns:
    """The columns z = weight * (x - centre) * factor of a matrix x; a constant column becomes 0.

    All sums are in double precision and run over the rows in their order, whatever the number of threads.

    Parameters
    ----------
    matrix
        Dense array or SciPy sparse matrix, (B, M).
    scale
        `standard` divides each column by its standard deviation. `common` divides all columns by the same number, the
        root mean square of the standard deviations, so that columns that vary more have more weight.
    weights
        Weights of the rows, (B,), not negative; None: all are 1.

    Attributes
    ----------
    shape
        Numbers of rows and columns, (B, M).
    weights
        Weights of the rows, (B,).
    centre, factor
        Weighted mean of each column and the factor that scales it, (M,) float64 each. The standard deviations are those
        of weight * (x - centre). The factor of a constant column is 0.
    """

    def __init__(self, matrix: Any, *, scale: ColumnScaling = "standard", weights: Floats | None = None) -> None:
        dtype = np.float32 if matrix.dtype == np.float32 else np.float64
        self._dense = np.zeros((0, 0), dtype)
        self._sparse = csc_matrix((0, 0), dtype=dtype)
        self._is_sparse = bool(issparse(matrix))
        if self._is_sparse:
            self._sparse = csc_matrix(matrix, dtype=dtype)
        else:
            self._dense = np.ascontiguousarray(matrix, dtype)
        self.shape: tuple[int, int] = matrix.shape
        self.weights: Floats = np.ones(self.shape[0]) if weights is None else weights
        self.centre: Floats = self._compute_products(self.weights) / max(float(self.weights.sum()), _MIN_WEIGHT)
        sd = np.sqrt(self._compute_squares() / max(self.shape[0], 1))
        varies = sd > _CONSTANT[np.dtype(dtype)] * np.abs(self.centre)
        if scale == "common" and varies.any():
            sd = np.full(len(sd), np.sqrt(np.mean(sd[varies] ** 2)))
        self.factor: Floats = np.where(varies, 1 / np.where(varies, sd, 1), 0)

    def compute_products(self, vector: Floats) -> Floats:
        """Return the inner product of each column z with a vector, (B,): (M,)."""
        weighted = self.weights * vector
        products: Floats = self.factor * (self._compute_products(weighted) - self.centre * weighted.sum())
        return products

    def take(self, chosen: NDArray[np.int64]) -> Floats:
        """Return chosen columns z as the rows of a dense array, (n, B)."""
        if self._is_sparse:
            x = self._sparse[:, chosen].toarray().T.astype(np.float64)
        else:
            x = self._dense[:, chosen].T.astype(np.float64)
        return np.ascontiguousarray((x - self.centre[chosen, None]) * self.factor[chosen, None] * self.weights)

    def compute_gram(self) -> Floats:
        """Return the Gram matrix of the rows, the sum of z z^T over all columns, (B, B).

        Parts of the matrix are computed in threads; its digits do not depend on their number. It must not be called in
        several threads, because the limit of BLAS to one thread is that of the process.
        """
        n_rows, n_columns = self.shape
        total = np.zeros((n_rows, n_rows))
        memory = np.empty((n_rows, min(_GRAM_BLOCK, n_columns)))
        tiles = _list_tiles(n_rows)
        with limit_blas_threads(), open_threads() as threads:
            for start in range(0, n_columns, _GRAM_BLOCK):
                stop = min(start + _GRAM_BLOCK, n_columns)
                x = self._sparse[:, start:stop].toarray() if self._is_sparse else self._dense[:, start:stop]
                z = np.subtract(x, self.centre[start:stop], out=memory[:, : stop - start])
                z *= self.factor[start:stop]
                list(threads.map(partial(_add_products, z, total), tiles))
        for rows, others in tiles:
            total[others, rows] = total[rows, others].T
        return total * np.outer(self.weights, self.weights)

    def _compute_products(self, vector: Floats) -> Floats:
        """Return the product of each column x, neither centred nor scaled, with a vector, (M,)."""
        total = np.zeros(self.shape[1])
        if self._is_sparse:
            run_in_blocks(_compute_sparse_products, len(total), _BLOCK, self._arrays(), vector, total)
        else:
            run_in_blocks(_compute_dense_products, len(total), _BLOCK, self._dense, vector, total)
        return total

    def _arrays(self) -> _SparseColumns:
        return _SparseColumns(self._sparse.data, self._sparse.indices, self._sparse.indptr)

    def _compute_squares(self) -> Floats:
        """Return the sum of (weight * (x - centre))^2 over the rows, for each column, (M,)."""
        total = np.zeros(self.shape[1])
        if self._is_sparse:
            squared = self.weights**2
            weights = squared, squared.sum()
            run_in_blocks(_compute_sparse_squares, len(total), _BLOCK, self._arrays(), self.centre, *weights, total)
        else:
            run_in_blocks(_compute_dense_squares, len(total), _BLOCK, self._dense, self.centre, self.weights, total)
        return total


def _list_tiles(n_rows: int) -> list[tuple[slice, slice]]:
    """Return the rows and columns of the parts of a symmetric matrix, of those on its diagonal and above."""
    n_blocks = -(-n_rows // _GRAM_ROWS)
    blocks = [slice(n_rows * i // n_blocks, n_rows * (i + 1) // n_blocks) for i in range(n_blocks)]
    return list(combinations_with_replacement(blocks, 2))


def _add_products(z: Floats, total: Floats, tile: tuple[slice, slice]) -> None:
    """Add the inner products of some rows with others, which are rows of z, to their place in the total, (B, B)."""
    rows, others = tile
    total[rows, others] += z[rows] @ z[others].T


@njit(nogil=True)
def _compute_dense_products(start: int, stop: int, matrix: NDArray[Any], vector: Floats, total: Floats) -> None:
    """Add matrix.T @ vector to `total`, for the columns from `start` to `stop`."""
    n_rows, columns, row = len(matrix), slice(start, stop), 0
    while row + 4 <= n_rows:  # four streams at once keep the memory busy
        rows = matrix[row, columns], matrix[row + 1, columns], matrix[row + 2, columns], matrix[row + 3, columns]
        add_four_rows(rows, vector[row : row + 4], total[columns])
        row += 4
    while row < n_rows:
        add_row(matrix[row, columns], vector[row], total[columns])
        row += 1


@njit(nogil=True)
def add_four_rows(rows: tuple[NDArray[Any], ...], factors: NDArray[Any], total: NDArray[Any]) -> None:
    """Add four rows times their factors to the total."""
    p, q, r, s = rows
    a, b, c, d = factors[0], factors[1], factors[2], factors[3]
    for j in range(len(total)):
        total[j] += (a * p[j] + b * q[j]) + (c * r[j] + d * s[j])


@njit(nogil=True)
def add_row(row: NDArray[Any], factor: float, total: NDArray[Any]) -> None:
    """Add a row times a factor to the total."""
    for j in range(len(total)):
        total[j] += factor * row[j]


@njit(nogil=True)
def _compute_dense_squares(
    start: int, stop: int, matrix: NDArray[Any], centre: Floats, weights: Floats, total: Floats
) -> None:
    """Add the weighted squares of the centred values to `total`, for the columns from `start` to `stop`."""
    columns = slice(start, stop)
    for row in range(len(matrix)):
        _add_squares(matrix[row, columns], centre[columns], weights[row], total[columns])


@njit(nogil=True)
def _add_squares(row: NDArray[Any], centre: Floats, weight: float, total: Floats) -> None:
    for j in range(len(total)):
        total[j] += (weight * (row[j] - centre[j])) ** 2


@njit(nogil=True)
def _compute_sparse_products(start: int, stop: int, columns: _SparseColumns, vector: Floats, total: Floats) -> None:
    """Add the products of sparse columns (CSC) with a vector to `total`, for the columns from `start` to `stop`."""
    for column in range(start, stop):
        for at in range(columns.starts[column], columns.starts[column + 1]):
            total[column] += columns.values[at] * vector[columns.rows[at]]


@njit(nogil=True)
def _compute_sparse_squares(
    start: int,
    stop: int,
    columns: _SparseColumns,
    centre: Floats,
    squared_weights: Floats,
    sum_of_squared_weights: float,
    total: Floats,
) -> None:
    """Write the sum over the rows of squared weight * (x - centre)^2, (M,)."""
    for column in range(start, stop):
        weight_of_zeros = sum_of_squared_weights
        for at in range(columns.starts[column], columns.starts[column + 1]):
            weight_of_zeros -= squared_weights[columns.rows[at]]
        total[column] = weight_of_zeros * centre[column] ** 2
        for at in range(columns.starts[column], columns.starts[column + 1]):
            total[column] += squared_weights[columns.rows[at]] * (columns.values[at] - centre[column]) ** 2
