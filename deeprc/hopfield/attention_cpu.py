"""Attention over ragged sets, compiled for the CPU: one pass forward and one backward.

No temporary array has the size of the values, (N, d_v). Every set is divided into pieces of at most `_PIECE_ROWS` rows,
and sums over pieces have a fixed order, so results do not depend on the number of threads.
Letters: N patterns of all sets end to end, B sets, H heads, d_v dimensions of the values, P pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from deeprc.compilation import FAST, njit

__all__ = ["SegmentAttention"]

_PIECE_ROWS = 1024
_MIN_SIZE_FOR_THREADS = 1 << 18  # size of the values: below it, starting threads takes longer than the work
_Array = NDArray[Any]


class SegmentAttention(torch.autograd.Function):
    """Forward and backward pass of `segment_attention`, which describes the parameters."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
        """Return the averages, (B, H, d_v), and save the weights, (N, H), for the backward pass."""
        sets, bounds = _split_into_pieces(offsets.numpy())
        arrays = [t.detach().contiguous().numpy() for t in (logits, values)]
        weights = torch.zeros_like(logits, memory_format=torch.contiguous_format)
        pooled = values.new_zeros((len(offsets) - 1, logits.shape[1], values.shape[1]))
        _run_with_threads(
            _forward_serial, _forward_parallel, arrays[1].size, *arrays, sets, bounds, weights.numpy(), pooled.numpy()
        )
        ctx.save_for_backward(weights, values, pooled, offsets)
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        """Return the gradients of the logits, and of the values if they are needed."""
        weights, values, pooled, offsets = ctx.saved_tensors
        sets, bounds = _split_into_pieces(offsets.numpy())
        arrays = [t.detach().contiguous().numpy() for t in (weights, values, pooled, gradient)]
        needs_values = ctx.needs_input_grad[1]
        logits_gradient, values_gradient = (
            torch.zeros_like(weights),
            torch.zeros_like(values if needs_values else values[:0]),
        )
        _run_with_threads(
            _backward_serial,
            _backward_parallel,
            arrays[1].size,
            *arrays,
            sets,
            bounds,
            logits_gradient.numpy(),
            values_gradient.numpy(),
        )
        return logits_gradient, values_gradient if needs_values else None, None


def _split_into_pieces(offsets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide every set into pieces; return the set of each piece, (P,), and its first row and end, (P, 2)."""
    sizes = np.diff(offsets)
    n_pieces = -(-sizes // _PIECE_ROWS)
    sets = np.repeat(np.arange(len(sizes)), n_pieces)
    index = np.arange(len(sets)) - np.repeat(np.cumsum(n_pieces) - n_pieces, n_pieces)
    first = offsets[sets] + index * _PIECE_ROWS
    return sets, np.stack([first, np.minimum(first + _PIECE_ROWS, offsets[sets + 1])], axis=1)


def _run_with_threads(
    serial_form: Callable[..., None], parallel_form: Callable[..., None], size: int, *arrays: _Array
) -> None:
    """Call the parallel form of a function with torch's number of threads, or the serial one if `size` is small."""
    threads = torch.get_num_threads()
    if threads == 1 or size < _MIN_SIZE_FOR_THREADS:
        serial_form(*arrays)
        return
    numba_threads = numba.get_num_threads()
    numba.set_num_threads(min(threads, numba_threads))
    try:
        parallel_form(*arrays)
    finally:
        numba.set_num_threads(numba_threads)
        torch.set_num_threads(threads)


@njit(**FAST)
def _forward_piece(
    piece: int,
    bounds: _Array,
    logits: _Array,
    values: _Array,
    weights: _Array,
    highest: _Array,
    total: _Array,
    part: _Array,
) -> None:
    """Write the softmax of one piece before it is divided by its sum, for all heads.

    `weights`, (N, H), become exp(logits - maximum) in the rows of the piece. `highest` and `total`, (P, H), become the
    maximum of the logits and the sum of these weights; `part`, (P, H, d_v), becomes the weighted sum of the values.
    """
    first, stop = bounds[piece, 0], bounds[piece, 1]
    for h in range(logits.shape[1]):
        maximum = logits[first, h]
        for n in range(first + 1, stop):
            if logits[n, h] > maximum or np.isnan(logits[n, h]):
                maximum = logits[n, h]  # NaN stays, because no number is larger
        shift = logits.dtype.type(0) if maximum == -np.inf else maximum  # -inf - -inf would be NaN instead of -inf
        sum_of_weights, average = 0.0, part[piece, h]
        for d in range(values.shape[1]):
            average[d] = 0
        for n in range(first, stop):
            weight = np.exp(logits[n, h] - shift)
            weights[n, h] = weight
            sum_of_weights += weight
            value = values[n]
            for d in range(values.shape[1]):
                average[d] += weight * value[d]
        highest[piece, h], total[piece, h] = maximum, sum_of_weights


@njit(**FAST)
def _scale_piece(piece: int, bounds: _Array, weights: _Array, shares: _Array) -> None:
    """Multiply the weights of a piece by its share of its set."""
    for n in range(bounds[piece, 0], bounds[piece, 1]):
        for h in range(weights.shape[1]):
            weights[n, h] *= shares[piece, h]


@njit(parallel=True, **FAST)
def _forward_parallel(
    logits: _Array, values: _Array, sets: _Array, bounds: _Array, weights: _Array, pooled: _Array
) -> None:
    """Write weights, (N, H), and averages, (B, H, d_v), in threads; the pieces of a set are combined at the end."""
    P, (_, H, d_v) = len(sets), pooled.shape
    highest, total, part = np.empty((P, H)), np.empty((P, H)), np.empty((P, H, d_v), values.dtype)
    for piece in numba.prange(P):  # its index is unsigned: numba would compile each function for this type, too
        _forward_piece(np.int64(piece), bounds, logits, values, weights, highest, total, part)
    shares = _combine_pieces(highest, total, part, sets, pooled)
    for piece in numba.prange(P):
        _scale_piece(np.int64(piece), bounds, weights, shares)


@njit(**FAST)
def _forward_serial(
    logits: _Array, values: _Array, sets: _Array, bounds: _Array, weights: _Array, pooled: _Array
) -> None:
    P, (_, H, d_v) = len(sets), pooled.shape
    highest, total, part = np.empty((P, H)), np.empty((P, H)), np.empty((P, H, d_v), values.dtype)
    for piece in range(P):
        _forward_piece(piece, bounds, logits, values, weights, highest, total, part)
    shares = _combine_pieces(highest, total, part, sets, pooled)
    for piece in range(P):
        _scale_piece(piece, bounds, weights, shares)


@njit(nogil=True)  # not parallel: numba would start threads for every small array
def _combine_pieces(highest: _Array, total: _Array, part: _Array, sets: _Array, pooled: _Array) -> _Array:
    """Sum the pieces of each set into `pooled`; return the factor of the weights of each piece, (P, H)."""
    B, H, _ = pooled.shape
    set_maximum, sums, shares = np.empty((B, H)), np.empty((B, H)), np.empty((len(sets), H))
    for b in range(B):
        for h in range(H):  # in loops: array operations take seconds to compile
            set_maximum[b, h], sums[b, h] = -np.inf, 0.0
    for piece, b in enumerate(sets):
        for h in range(H):
            if highest[piece, h] > set_maximum[b, h] or np.isnan(highest[piece, h]):
                set_maximum[b, h] = highest[piece, h]  # NaN stays, because no number is larger
    for piece, b in enumerate(sets):
        for h in range(H):
            shares[piece, h] = np.exp(highest[piece, h] - set_maximum[b, h])
            sums[b, h] += total[piece, h] * shares[piece, h]
    for piece, b in enumerate(sets):
        for h in range(H):
            shares[piece, h] /= sums[b, h]
            for d in range(pooled.shape[2]):
                pooled[b, h, d] += part[piece, h, d] * shares[piece, h]
    return shares


@njit(**FAST)
def _backward_piece(
    weights: _Array,
    values: _Array,
    pooled: _Array,
    gradient: _Array,
    bounds: _Array,
    logits_gradient: _Array,
    values_gradient: _Array,
) -> None:
    """Write the gradients of the logits and values from bounds[0] to bounds[1], whose set has these (H, d_v)."""
    d_v = values.shape[1]
    for h in range(weights.shape[1]):
        direction, mean = gradient[h], values.dtype.type(0)
        for d in range(d_v):
            mean += pooled[h, d] * direction[d]
        for n in range(bounds[0], bounds[1]):
            weight, value = weights[n, h], values[n]
            match = values.dtype.type(0)
            for d in range(d_v):
                match += value[d] * direction[d]
            logits_gradient[n, h] = weight * (match - mean)
            if len(values_gradient):  # empty if it is not needed
                value_gradient = values_gradient[n]
                for d in range(d_v):
                    value_gradient[d] += weight * direction[d]


@njit(parallel=True, **FAST)
def _backward_parallel(
    weights: _Array,
    values: _Array,
    pooled: _Array,
    gradient: _Array,
    sets: _Array,
    bounds: _Array,
    logits_gradient: _Array,
    values_gradient: _Array,
) -> None:
    """Write the gradients of the logits, (N, H), and of the values, (N, d_v), piece by piece in threads."""
    for piece in numba.prange(len(sets)):
        b = sets[piece]
        _backward_piece(weights, values, pooled[b], gradient[b], bounds[piece], logits_gradient, values_gradient)


@njit(**FAST)
def _backward_serial(
    weights: _Array,
    values: _Array,
    pooled: _Array,
    gradient: _Array,
    sets: _Array,
    bounds: _Array,
    logits_gradient: _Array,
    values_gradient: _Array,
) -> None:
    for piece in range(len(sets)):
        b = sets[piece]
        _backward_piece(weights, values, pooled[b], gradient[b], bounds[piece], logits_gradient, values_gradient)
