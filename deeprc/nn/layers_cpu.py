"""Layers of a few units for functions that numba compiles: TILE units at a time, in a vector; numbers are float32."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import FAST, njit
from deeprc.nn.motif_convolution.cpu import TILE
from deeprc.vectors import bits_to_float, fill, load, multiply_add, select, store, to_float, to_int

__all__ = [
    "add_outer_products",
    "add_row",
    "apply_selu",
    "backpropagate_selu",
    "write_linear_layer",
    "write_selu_layer",
]

_ALPHA, _SCALE = 1.6732632423543772, 1.0507009873554805  # constants of SELU
_LOG2_E, _LN_2_HIGH, _LN_2_LOW = 1.4426950408889634, 0.693359375, -2.12194440e-4
_LOWEST = -87.0  # its exponential is about the smallest float32 of full precision

_ZERO, _ONE, _TWO = np.uint64(0), np.uint64(1), np.uint64(2)  # numba omits the code for negative indices
_Array = NDArray[Any]
_Vector = Any  # TILE numbers


@njit(**FAST, forceinline=True)
def _selu(x: _Vector) -> _Vector:
    """Return SELU of a vector, to the last bit or two.

    exp(x) - 1 = 2^n q + (2^n - 1), where n is x / ln 2 rounded and q = exp(r) - 1 a polynomial of the small rest r.
    """
    low = select(x < 0.0, x, 0.0)
    low = select(low > _LOWEST, low, _LOWEST)
    n = to_int(low * _LOG2_E - 0.5)  # `low` is not positive: subtracting one half and cutting off rounds it
    n_float = to_float(n)
    rest = multiply_add(n_float, -_LN_2_HIGH, low)
    rest = multiply_add(n_float, -_LN_2_LOW, rest)
    q = multiply_add(rest, 1 / 5040, 1 / 720)
    q = multiply_add(q, rest, 1 / 120)
    q = multiply_add(q, rest, 1 / 24)
    q = multiply_add(q, rest, 1 / 6)
    q = multiply_add(q, rest, 1 / 2)
    q = multiply_add(q, rest, 1.0) * rest
    power = bits_to_float((n + 127) << 23)
    below = multiply_add(power, q, power - 1.0)
    return select(x < 0.0, below * (_SCALE * _ALPHA), x * _SCALE)  # NaN stays NaN


@njit(**FAST, forceinline=True)
def _add_weighted_rows(start: _Vector, inputs: _Array, n_in: int, weight: _Array) -> _Vector:
    """Return start + the sum of inputs[i] weight[i] over i < n_in.

    Even and odd i have separate sums, so that an addition need not wait for the one before.
    """
    even, odd = start, fill(np.float32(0), TILE)
    for i in range(_ZERO, uint64(n_in) & ~_ONE, _TWO):
        even = multiply_add(inputs[i], load(weight, i, TILE), even)
        odd = multiply_add(inputs[i + _ONE], load(weight, i + _ONE, TILE), odd)
    if n_in % 2:
        even = multiply_add(inputs[n_in - 1], load(weight, n_in - 1, TILE), even)
    return even + odd


@njit(**FAST, inline="always")
def apply_selu(row: _Array, bias: _Array) -> None:
    """Replace a row by SELU(row + bias), (TILE,) each."""
    store(_selu(load(row, 0, TILE) + load(bias, 0, TILE)), row, 0)


@njit(**FAST, inline="always")
def write_selu_layer(inputs: _Array, n_in: int, weight: _Array, bias: _Array, output: _Array) -> None:
    """Write SELU(inputs weight + bias): inputs (n_in,), weight (n_in, TILE), bias and output (TILE,)."""
    store(_selu(_add_weighted_rows(load(bias, 0, TILE), inputs, n_in, weight)), output, 0)


@njit(**FAST, inline="always")
def write_linear_layer(inputs: _Array, n_in: int, weight: _Array, output: _Array) -> None:
    """Write inputs weight: inputs (n_in,), weight (n_in, TILE), output (TILE,)."""
    store(_add_weighted_rows(fill(np.float32(0), TILE), inputs, n_in, weight), output, 0)


@njit(**FAST, forceinline=True)
def backpropagate_selu(gradient: _Array, activation: _Array, total: _Array) -> None:
    """Replace the gradient of SELU's result by that of its argument, and add this to a total, (TILE,) each."""
    result = load(activation, 0, TILE)
    slope = select(result <= 0.0, result + _SCALE * _ALPHA, _SCALE)
    argument_gradient = load(gradient, 0, TILE) * slope
    store(argument_gradient, gradient, 0)
    store(load(total, 0, TILE) + argument_gradient, total, 0)


@njit(**FAST, forceinline=True)
def add_row(total: _Array, row: _Array) -> None:
    """Add a row to a total, (TILE,) each."""
    store(load(total, 0, TILE) + load(row, 0, TILE), total, 0)


@njit(**FAST)
def add_outer_products(inputs: _Array, n_in: int, rows: _Array, tile: int, total: _Array) -> None:
    """Add the sum over n of inputs[n, i] rows[n] to total[i] for i < n_in, for one tile of the columns of the rows.

    Shapes: inputs (n, n_in or more), rows (n, tiles * TILE), total (n_in, TILE). Two rows of the total are summed at a
    time, so that an addition need not wait for the one before.
    """
    tiles, tile = uint64(rows.shape[1] // TILE), uint64(tile)
    for i in range(_ZERO, uint64(n_in) & ~_ONE, _TWO):
        first, second = load(total, i, TILE), load(total, i + _ONE, TILE)
        for n in range(uint64(len(inputs))):
            row = load(rows, n * tiles + tile, TILE)
            first, second = multiply_add(inputs[n, i], row, first), multiply_add(inputs[n, i + _ONE], row, second)
        store(first, total, i)
        store(second, total, i + _ONE)
    if n_in % 2:
        last = load(total, n_in - 1, TILE)
        for n in range(uint64(len(inputs))):
            last = multiply_add(inputs[n, n_in - 1], load(rows, n * tiles + tile, TILE), last)
        store(last, total, n_in - 1)
