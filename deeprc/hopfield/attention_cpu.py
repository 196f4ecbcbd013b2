"""Attention over ragged sets, compiled for the CPU: one pass forward, one backward, nothing of size (N, d_v) between.

Results do not depend on the number of threads: sums run over pieces of a fixed size, in a fixed order.
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

from deeprc.compilation import njit

__all__ = ["SegmentAttention"]

_PIECE = 1024
_WORTH_THREADS = 1 << 18  # numbers in the values: below, starting threads takes longer than the work
_FAST = {"nogil": True, "fastmath": {"contract", "reassoc"}}
_Array = NDArray[Any]


class SegmentAttention(torch.autograd.Function):
    """Forward and backward of `segment_attention`; see there for the parameters."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
        """Return the averages, (B, H, d_v), and keep the weights, (N, H)."""
        sets, bounds = _pieces(offsets.numpy())
        arrays = [t.detach().contiguous().numpy() for t in (logits, values)]
        weights = torch.zeros_like(logits, memory_format=torch.contiguous_format)
        pooled = values.new_zeros((len(offsets) - 1, logits.shape[1], values.shape[1]))
        _run(
            _forward_alone, _forward_by_threads, arrays[1].size, *arrays, sets, bounds, weights.numpy(), pooled.numpy()
        )
        ctx.save_for_backward(weights, values, pooled, offsets)
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor | None, None]:
        """Return the gradients of the logits and, where it is wanted, of the values."""
        weights, values, pooled, offsets = ctx.saved_tensors
        sets, bounds = _pieces(offsets.numpy())
        arrays = [t.detach().contiguous().numpy() for t in (weights, values, pooled, gradient)]
        wanted = ctx.needs_input_grad[1]
        of_logits, of_values = torch.zeros_like(weights), torch.zeros_like(values if wanted else values[:0])
        _run(
            _backward_alone,
            _backward_by_threads,
            arrays[1].size,
            *arrays,
            sets,
            bounds,
            of_logits.numpy(),
            of_values.numpy(),
        )
        return of_logits, of_values if wanted else None, None


def _pieces(offsets: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Cut every set into pieces: return the set of each piece, (P,), and its first and last row, (P, 2)."""
    sizes = np.diff(offsets)
    n_pieces = -(-sizes // _PIECE)
    sets = np.repeat(np.arange(len(sizes)), n_pieces)
    number = np.arange(len(sets)) - np.repeat(np.cumsum(n_pieces) - n_pieces, n_pieces)
    first = offsets[sets] + number * _PIECE
    return sets, np.stack([first, np.minimum(first + _PIECE, offsets[sets + 1])], axis=1)


def _run(alone: Callable[..., None], by_threads: Callable[..., None], size: int, *arrays: _Array) -> None:
    """Call one of two forms; by itself numba would take all cores, and leave torch with as many threads."""
    threads = torch.get_num_threads()
    if threads == 1 or size < _WORTH_THREADS:
        alone(*arrays)
        return
    own = numba.get_num_threads()
    numba.set_num_threads(min(threads, own))
    try:
        by_threads(*arrays)
    finally:
        numba.set_num_threads(own)
        torch.set_num_threads(threads)


@njit(**_FAST)
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
    """Write the exponentials of a piece's logits less their maximum, and sum them, and the values times them."""
    first, last = bounds[piece, 0], bounds[piece, 1]
    for h in range(logits.shape[1]):
        maximum = logits[first, h]
        for n in range(first + 1, last):
            if logits[n, h] > maximum or np.isnan(logits[n, h]):
                maximum = logits[n, h]  # NaN stays: nothing is above it
        sum_of_weights, average = 0.0, part[piece, h]
        for n in range(first, last):
            weight = np.exp(logits[n, h] - maximum)
            weights[n, h] = weight
            sum_of_weights += weight
            value = values[n]
            for d in range(values.shape[1]):
                average[d] += weight * value[d]
        highest[piece, h], total[piece, h] = maximum, sum_of_weights


@njit(**_FAST)
def _scale_piece(piece: int, bounds: _Array, weights: _Array, shares: _Array) -> None:
    for n in range(bounds[piece, 0], bounds[piece, 1]):
        for h in range(weights.shape[1]):
            weights[n, h] *= shares[piece, h]


@njit(parallel=True, **_FAST)
def _forward_by_threads(
    logits: _Array, values: _Array, sets: _Array, bounds: _Array, weights: _Array, pooled: _Array
) -> None:
    P, (_, H, d_v) = len(sets), pooled.shape
    highest, total, part = np.full((P, H), -np.inf), np.zeros((P, H)), np.zeros((P, H, d_v), values.dtype)
    for piece in numba.prange(P):
        _forward_piece(piece, bounds, logits, values, weights, highest, total, part)
    shares = _combine(highest, total, part, sets, pooled)
    for piece in numba.prange(P):
        _scale_piece(piece, bounds, weights, shares)


@njit(**_FAST)
def _forward_alone(
    logits: _Array, values: _Array, sets: _Array, bounds: _Array, weights: _Array, pooled: _Array
) -> None:
    P, (_, H, d_v) = len(sets), pooled.shape
    highest, total, part = np.full((P, H), -np.inf), np.zeros((P, H)), np.zeros((P, H, d_v), values.dtype)
    for piece in range(P):
        _forward_piece(piece, bounds, logits, values, weights, highest, total, part)
    shares = _combine(highest, total, part, sets, pooled)
    for piece in range(P):
        _scale_piece(piece, bounds, weights, shares)


@njit(nogil=True)  # not parallel: numba would start threads for every small array
def _combine(highest: _Array, total: _Array, part: _Array, sets: _Array, pooled: _Array) -> _Array:
    """Add up each set's pieces in `pooled`; return what each piece's weights are to be multiplied with, (P, H)."""
    B, H, _ = pooled.shape
    of_set = np.full((B, H), -np.inf)
    for piece, b in enumerate(sets):
        for h in range(H):  # in loops: array operations take seconds to compile
            if highest[piece, h] > of_set[b, h] or np.isnan(highest[piece, h]):
                of_set[b, h] = highest[piece, h]  # NaN stays: nothing is above it
    sums, shares = np.zeros((B, H)), np.empty((len(sets), H))
    for piece, b in enumerate(sets):
        for h in range(H):
            shares[piece, h] = np.exp(highest[piece, h] - of_set[b, h])
            sums[b, h] += total[piece, h] * shares[piece, h]
    for piece, b in enumerate(sets):
        for h in range(H):
            shares[piece, h] /= sums[b, h]
            for d in range(pooled.shape[2]):
                pooled[b, h, d] += part[piece, h, d] * shares[piece, h]
    return shares


@njit(**_FAST)
def _backward_piece(
    piece: int,
    weights: _Array,
    values: _Array,
    pooled: _Array,
    gradient: _Array,
    sets: _Array,
    bounds: _Array,
    of_logits: _Array,
    of_values: _Array,
) -> None:
    d_v = values.shape[1]
    b = sets[piece]
    for h in range(weights.shape[1]):
        direction, mean = gradient[b, h], values.dtype.type(0)
        for d in range(d_v):
            mean += pooled[b, h, d] * direction[d]
        for n in range(bounds[piece, 0], bounds[piece, 1]):
            weight, value = weights[n, h], values[n]
            match = values.dtype.type(0)
            for d in range(d_v):
                match += value[d] * direction[d]
            of_logits[n, h] = weight * (match - mean)
            if len(of_values):  # else nobody wants their gradient
                of_value = of_values[n]
                for d in range(d_v):
                    of_value[d] += weight * direction[d]


@njit(parallel=True, **_FAST)
def _backward_by_threads(
    weights: _Array,
    values: _Array,
    pooled: _Array,
    gradient: _Array,
    sets: _Array,
    bounds: _Array,
    of_logits: _Array,
    of_values: _Array,
) -> None:
    for piece in numba.prange(len(sets)):
        _backward_piece(piece, weights, values, pooled, gradient, sets, bounds, of_logits, of_values)


@njit(**_FAST)
def _backward_alone(
    weights: _Array,
    values: _Array,
    pooled: _Array,
    gradient: _Array,
    sets: _Array,
    bounds: _Array,
    of_logits: _Array,
    of_values: _Array,
) -> None:
    for piece in range(len(sets)):
        _backward_piece(piece, weights, values, pooled, gradient, sets, bounds, of_logits, of_values)
