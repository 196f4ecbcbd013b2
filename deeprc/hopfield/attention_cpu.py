"""Attention over ragged sets, compiled for the CPU: one pass forward and one backward.

No temporary array has the size of the values, (N, d_v). Every set is divided into pieces of at most `_PIECE_ROWS` rows,
and sums over pieces have a fixed order, so results do not depend on the number of threads.
Letters: N patterns of all sets end to end, B sets, H heads, d_v dimensions of the values, P pieces.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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
        set_of_piece, piece_bounds = _split_into_pieces(offsets.numpy())
        arrays = [t.detach().contiguous().numpy() for t in (logits, values)]
        weights = torch.zeros_like(logits, memory_format=torch.contiguous_format)
        pooled = values.new_zeros((len(offsets) - 1, logits.shape[1], values.shape[1]))
        _run_with_threads(
            _FORWARD,
            arrays[1].size,
            *arrays,
            set_of_piece,
            piece_bounds,
            weights.numpy(),
            pooled.numpy(),
        )
        ctx.save_for_backward(weights, values, pooled, offsets)
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        """Return the gradients of the logits, and of the values if they are needed."""
        weights, values, pooled, offsets = ctx.saved_tensors
        set_of_piece, piece_bounds = _split_into_pieces(offsets.numpy())
        arrays = [t.detach().contiguous().numpy() for t in (weights, values, pooled, gradient)]
        needs_values = ctx.needs_input_grad[1]
        logits_gradient = torch.zeros_like(weights)
        values_gradient = torch.zeros_like(values if needs_values else values[:0])
        _run_with_threads(
            _BACKWARD,
            arrays[1].size,
            *arrays,
            set_of_piece,
            piece_bounds,
            logits_gradient.numpy(),
            values_gradient.numpy(),
        )
        return logits_gradient, values_gradient if needs_values else None, None


def _split_into_pieces(offsets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Divide every set into pieces; return the set of each piece, (P,), and its first row and end, (P, 2)."""
    sizes = np.diff(offsets)
    n_pieces = -(-sizes // _PIECE_ROWS)
    set_of_piece = np.repeat(np.arange(len(sizes)), n_pieces)
    index = np.arange(len(set_of_piece)) - np.repeat(np.cumsum(n_pieces) - n_pieces, n_pieces)
    first = offsets[set_of_piece] + index * _PIECE_ROWS
    return set_of_piece, np.stack([first, np.minimum(first + _PIECE_ROWS, offsets[set_of_piece + 1])], axis=1)


class _Forms(NamedTuple):
    """A function with a loop of `prange`, compiled twice: without threads and with threads."""

    serial: Callable[..., None]
    parallel: Callable[..., None]

    @classmethod
    def of(cls, function: Callable[..., None]) -> _Forms:
        return cls(njit(**FAST)(function), njit(parallel=True, **FAST)(function))


def _run_with_threads(forms: _Forms, size: int, *arrays: _Array) -> None:
    """Call the parallel form of a function with torch's number of threads, or the serial one if `size` is small."""
    threads = torch.get_num_threads()
    if threads == 1 or size < _MIN_SIZE_FOR_THREADS:
        forms.serial(*arrays)
        return
    numba_threads = numba.get_num_threads()
    numba.set_num_threads(min(threads, numba_threads))
    try:
        forms.parallel(*arrays)
    finally:
        numba.set_num_threads(numba_threads)
        torch.set_num_threads(threads)


@njit(**FAST)
def _forward_piece(
    piece: int,
    piece_bounds: _Array,
    logits: _Array,
    values: _Array,
    weights: _Array,
    piece_maxima: _Array,
    piece_totals: _Array,
    piece_sums: _Array,
) -> None:
    """Write the softmax of one piece before it is divided by its sum, for all heads.

    `weights`, (N, H), become exp(logits - maximum) in the rows of the piece. `piece_maxima` and `piece_totals`, (P, H),
    become the maximum of the logits and the sum of these weights; `piece_sums`, (P, H, d_v), become the weighted sums
    of the values.
    """
    first, stop = piece_bounds[piece, 0], piece_bounds[piece, 1]
    for h in range(logits.shape[1]):
        maximum = logits[first, h]
        for n in range(first + 1, stop):
            if logits[n, h] > maximum or np.isnan(logits[n, h]):
                maximum = logits[n, h]  # NaN stays, because no number is larger
        shift = logits.dtype.type(0) if maximum == -np.inf else maximum  # -inf - -inf would be NaN instead of -inf
        sum_of_weights, average = 0.0, piece_sums[piece, h]
        for d in range(values.shape[1]):
            average[d] = 0
        for n in range(first, stop):
            weight = np.exp(logits[n, h] - shift)
            weights[n, h] = weight
            sum_of_weights += weight
            value = values[n]
            for d in range(values.shape[1]):
                average[d] += weight * value[d]
        piece_maxima[piece, h], piece_totals[piece, h] = maximum, sum_of_weights


@njit(**FAST)
def _scale_piece(piece: int, piece_bounds: _Array, weights: _Array, factors: _Array) -> None:
    """Multiply the weights of a piece by its share of its set."""
    for n in range(piece_bounds[piece, 0], piece_bounds[piece, 1]):
        for h in range(weights.shape[1]):
            weights[n, h] *= factors[piece, h]


def _forward(
    logits: _Array, values: _Array, set_of_piece: _Array, piece_bounds: _Array, weights: _Array, pooled: _Array
) -> None:
    """Write weights, (N, H), and averages, (B, H, d_v); the pieces of a set are combined at the end."""
    P, (_, H, d_v) = len(set_of_piece), pooled.shape
    piece_maxima, piece_totals, piece_sums = np.empty((P, H)), np.empty((P, H)), np.empty((P, H, d_v), values.dtype)
    for piece in numba.prange(P):  # its index is unsigned: numba would compile each function for this type, too
        _forward_piece(np.int64(piece), piece_bounds, logits, values, weights, piece_maxima, piece_totals, piece_sums)
    factors = _combine_pieces(piece_maxima, piece_totals, piece_sums, set_of_piece, pooled)
    for piece in numba.prange(P):
        _scale_piece(np.int64(piece), piece_bounds, weights, factors)


_FORWARD = _Forms.of(_forward)


@njit(nogil=True)  # not parallel: numba would start threads for every small array
def _combine_pieces(
    piece_maxima: _Array, piece_totals: _Array, piece_sums: _Array, set_of_piece: _Array, pooled: _Array
) -> _Array:
    """Sum the pieces of each set into `pooled`; return the factor of the weights of each piece, (P, H)."""
    B, H, _ = pooled.shape
    set_maximum, sums, factors = np.empty((B, H)), np.empty((B, H)), np.empty((len(set_of_piece), H))
    for b in range(B):
        for h in range(H):  # in loops: array operations take seconds to compile
            set_maximum[b, h], sums[b, h] = -np.inf, 0.0
    for piece, b in enumerate(set_of_piece):
        for h in range(H):
            if piece_maxima[piece, h] > set_maximum[b, h] or np.isnan(piece_maxima[piece, h]):
                set_maximum[b, h] = piece_maxima[piece, h]  # NaN stays, because no number is larger
    for piece, b in enumerate(set_of_piece):
        for h in range(H):
            factors[piece, h] = np.exp(piece_maxima[piece, h] - set_maximum[b, h])
            sums[b, h] += piece_totals[piece, h] * factors[piece, h]
    for piece, b in enumerate(set_of_piece):
        for h in range(H):
            factors[piece, h] /= sums[b, h]
            for d in range(pooled.shape[2]):
                pooled[b, h, d] += piece_sums[piece, h, d] * factors[piece, h]
    return factors


@njit(**FAST)
def _backward_piece(
    weights: _Array,
    values: _Array,
    pooled: _Array,
    gradient: _Array,
    piece_bounds: _Array,
    logits_gradient: _Array,
    values_gradient: _Array,
) -> None:
    """Write the gradients of the logits and values of one piece, the rows from piece_bounds[0] to piece_bounds[1].

    `pooled` and `gradient` are the averages of its set and their gradients, (H, d_v) each. The gradient of a logit is
    weight * (value - average) · gradient of the average, for each head.
    """
    d_v = values.shape[1]
    for h in range(weights.shape[1]):
        head_gradient, mean_match = gradient[h], values.dtype.type(0)
        for d in range(d_v):
            mean_match += pooled[h, d] * head_gradient[d]
        for n in range(piece_bounds[0], piece_bounds[1]):
            weight, value = weights[n, h], values[n]
            match = values.dtype.type(0)
            for d in range(d_v):
                match += value[d] * head_gradient[d]
            logits_gradient[n, h] = weight * (match - mean_match)
            if len(values_gradient):  # empty if it is not needed
                value_gradient = values_gradient[n]
                for d in range(d_v):
                    value_gradient[d] += weight * head_gradient[d]


def _backward(
    weights: _Array,
    values: _Array,
    pooled: _Array,
    gradient: _Array,
    set_of_piece: _Array,
    piece_bounds: _Array,
    logits_gradient: _Array,
    values_gradient: _Array,
) -> None:
    """Write the gradients of the logits, (N, H), and of the values, (N, d_v), piece by piece."""
    for piece in numba.prange(len(set_of_piece)):
        b = set_of_piece[piece]
        _backward_piece(weights, values, pooled[b], gradient[b], piece_bounds[piece], logits_gradient, values_gradient)


_BACKWARD = _Forms.of(_backward)
