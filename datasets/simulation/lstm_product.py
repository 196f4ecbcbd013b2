"""The product of states and weights, which is most of an LSTM's work, with explicit vectors.

LLVM makes vectors of a plain loop too, but keeps its sums in memory, which halves the speed. Here the sums of 4
sequences times 16 columns stay in registers. Each sum adds the products of the units in their order, and each product
is rounded, as in a plain loop. So the bits are the same on every processor, whatever its vectors are.

Letters: S lanes, H units, G columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.vectors import load, store

__all__ = ["COLUMNS", "TILE_LANES", "add_product", "split_into_blocks"]

COLUMNS = 16
"""Number of columns of a block of weights; the columns of a matrix of weights are a multiple of it."""

TILE_LANES = 4
"""Number of sequences for which weights are loaded once; the rows of an array of lanes are a multiple of it."""

_Array = NDArray[Any]


def split_into_blocks(weights: _Array) -> _Array:
    """Return weights, (H, G), in blocks of columns, (G / 16, H, 16)."""
    H, G = weights.shape
    return np.ascontiguousarray(weights.reshape(H, G // COLUMNS, COLUMNS).transpose(1, 0, 2))


@njit(nogil=True)
def add_product(sums: _Array, states: _Array, weights: _Array, n: int) -> None:
    """Add states, (S, H), times weights, (G / 16, H, 16), to the first n rows of sums, (S, G); all float32.

    The rows up to the next multiple of `TILE_LANES` are computed, too. Products and sums are not contracted.
    """
    n_blocks, H, _ = weights.shape
    for block in range(n_blocks):
        block_weights = weights[block]
        for s in range(0, n, TILE_LANES):
            row = s * n_blocks + block  # of rows of 16 sums
            first, second = load(sums, row, COLUMNS), load(sums, row + n_blocks, COLUMNS)
            third, fourth = load(sums, row + 2 * n_blocks, COLUMNS), load(sums, row + 3 * n_blocks, COLUMNS)
            for k in range(uint64(H)):
                factors = load(block_weights, k, COLUMNS)
                first += states[uint64(s), k] * factors
                second += states[uint64(s + 1), k] * factors
                third += states[uint64(s + 2), k] * factors
                fourth += states[uint64(s + 3), k] * factors
            store(first, sums, row)
            store(second, sums, row + n_blocks)
            store(third, sums, row + 2 * n_blocks)
            store(fourth, sums, row + 3 * n_blocks)
