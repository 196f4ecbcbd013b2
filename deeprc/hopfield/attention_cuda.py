"""Attention over ragged sets, compiled for CUDA with Triton.

No temporary array has the size of the values, (N, d_v). Every set is divided into pieces of at most `_PIECE_ROWS` rows.
In the forward pass, one program sums the values of one piece, weighted with exp(logits - maximum of the piece). Then
the sums of the pieces of each set are combined. In the backward pass, one program per piece computes the weights of its
rows again. There are no atomic additions, so results are the same in every run, and the result of a set does not depend
on the other sets. Nothing waits for the device, and launches depend on shapes only. So calls can be captured in a CUDA
graph, after one call with the same shapes, which compiles the kernels.

The rows of a piece follow from the offsets o alone. The pieces of set b have the indices from o[b] // P + b on. So a
set of n rows has at least n // P + 1 indices, which is always enough. All sets together have N // P + B. A program
whose index belongs to no piece has no rows. In the backward pass, rows beyond the last offset count as set B with
gradients of 0, so that both gradients are written completely.
Letters: N patterns of all sets end to end, B sets, H heads, d_v = D dimensions of the values, P rows of a piece.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

__all__ = ["SegmentAttention"]

# Small enough to occupy every multiprocessor for 40,000 rows, large enough that the second kernel reads little.
_PIECE_ROWS = 128
# Numbers that four warps hold at 32 per thread. 32 columns of float32 are a cache line.
_TILE = 4096
_MAX_WIDE_TILE = 32
# The second kernel has few programs. Narrow tiles of 32 bytes, a sector, give more programs, and each program loads
# many pieces at once.
_MAX_NARROW_TILE = 8
_PIECES_AT_ONCE = _TILE // _MAX_NARROW_TILE
# Triton's default for the fusion of products and sums changes with its version.
_OPTIONS = {"num_warps": 4, "enable_fp_fusion": True}

_SETS_AT_ONCE = tl.constexpr(128)  # offsets that a program compares at once, one per thread
_PER_BATCH = ["logits", "offsets", "piece_maximum", "piece_total", "maximum", "total", "logits_gradient", "B", "N"]
"""Parameters that differ between batches; their alignment or divisibility must not cause another compilation."""


class SegmentAttention(torch.autograd.Function):
    """Forward and backward pass of `segment_attention`, which describes the parameters."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, values: Tensor, offsets: Tensor) -> Tensor:
        """Return the averages, (B, H, d_v), and save the maximum logit and sum of exponentials of each set, (B, H)."""
        logits, values, offsets = (t.detach().contiguous() for t in (logits, values, offsets))
        (N, H), D, B = logits.shape, values.shape[1], len(offsets) - 1
        pooled = values.new_zeros((B, H, D)) if N == 0 else values.new_empty((B, H, D))
        maximum, total = values.new_empty((2, B, H))
        ctx.save_for_backward(logits, values, offsets, pooled, maximum, total)
        if N == 0 or pooled.numel() == 0:
            return pooled
        P, n_pieces = _PIECE_ROWS, N // _PIECE_ROWS + B
        piece_maximum, piece_total = values.new_empty((2, n_pieces, H))
        piece_sum = values.new_empty((n_pieces, H, D))
        pieces = (piece_maximum, piece_total, piece_sum)
        wide, narrow = (min(triton.next_power_of_2(D), limit) for limit in (_MAX_WIDE_TILE, _MAX_NARROW_TILE))
        with torch.cuda.device_of(values):
            grid: tuple[int, ...] = (n_pieces * triton.cdiv(D, wide),)
            _sum_pieces[grid](logits, values, offsets, *pieces, B, N, H, D, P, wide, **_OPTIONS)
            grid = (B, H, triton.cdiv(D, narrow))
            _combine_pieces[grid](
                *pieces, offsets, pooled, maximum, total, H, D, P, _PIECES_AT_ONCE, narrow, **_OPTIONS
            )
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return the gradients of the logits and of the values."""
        logits, values, offsets, *results = ctx.saved_tensors
        (N, H), D, B = logits.shape, values.shape[1], len(offsets) - 1
        if N == 0 or gradient.numel() == 0:
            return torch.zeros_like(logits), torch.zeros_like(values), None
        logits_gradient, values_gradient = torch.empty_like(logits), torch.empty_like(values)
        block_d = triton.next_power_of_2(D)
        P = max(min(_PIECE_ROWS, _TILE // block_d), 1)
        arrays = (logits, values, offsets, *results, gradient.contiguous(), logits_gradient, values_gradient)
        with torch.cuda.device_of(values):
            _differentiate_piece[N // P + B + 1,](*arrays, B, N, H, D, P, block_d, **_OPTIONS)
        return logits_gradient, values_gradient, None


@triton.jit
def _locate_piece(
    piece: tl.tensor, offsets: tl.tensor, B: tl.tensor, N: tl.tensor, P: tl.constexpr
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Return the set of a piece, the first row of the piece, and the end of the set."""
    b = tl.full((), 0, tl.int32)
    for start in range(1, B + 1, _SETS_AT_ONCE):
        later = start + tl.arange(0, _SETS_AT_ONCE)
        first_piece = tl.load(offsets + later, mask=later <= B, other=0) // P + later
        b += tl.sum(((later <= B) & (first_piece <= piece)).to(tl.int32), 0)
    first = tl.load(offsets + b)
    first += (piece - (first // P + b)) * P
    return b, first, tl.load(offsets + b + 1, mask=b < B, other=N)


@triton.jit(do_not_specialize=_PER_BATCH)
def _sum_pieces(
    logits: tl.tensor,
    values: tl.tensor,
    offsets: tl.tensor,
    piece_maximum: tl.tensor,
    piece_total: tl.tensor,
    piece_sum: tl.tensor,
    B: tl.tensor,
    N: tl.tensor,
    H: tl.constexpr,
    D: tl.constexpr,
    P: tl.constexpr,
    BLOCK_D: tl.constexpr,
) -> None:
    """Write the maximum logit of a piece, its sum of exponentials, and the sum of its values times exponentials."""
    TILES: tl.constexpr = (D + BLOCK_D - 1) // BLOCK_D
    program = tl.program_id(0)
    piece, tile = (program // TILES).to(tl.int64), program % TILES  # neighbours read the same rows
    b, first, end = _locate_piece(piece, offsets, B, N, P)
    n, d = first + tl.arange(0, P), tile * BLOCK_D + tl.arange(0, BLOCK_D)
    present, in_tile = n < tl.where(b < B, end, 0), d < D
    value = tl.load(values + n[:, None] * D + d[None, :], mask=present[:, None] & in_tile[None, :], other=0)
    for h in tl.static_range(H):
        logit = tl.load(logits + n * H + h, mask=present, other=float("-inf"))
        maximum = tl.max(logit, 0)
        # all logits of a piece may be -inf although those of its set are not
        weight = tl.exp(logit - tl.where(maximum == float("-inf"), 0.0, maximum))
        at = piece * H + h
        tl.store(piece_maximum + at, maximum, mask=tile == 0)
        tl.store(piece_total + at, tl.sum(weight, 0), mask=tile == 0)
        tl.store(piece_sum + at * D + d, tl.sum(weight[:, None] * value, 0), mask=in_tile)


@triton.jit(do_not_specialize=_PER_BATCH)
def _combine_pieces(
    piece_maximum: tl.tensor,
    piece_total: tl.tensor,
    piece_sum: tl.tensor,
    offsets: tl.tensor,
    pooled: tl.tensor,
    maximum: tl.tensor,
    total: tl.tensor,
    H: tl.constexpr,
    D: tl.constexpr,
    P: tl.constexpr,
    BLOCK_P: tl.constexpr,
    BLOCK_D: tl.constexpr,
) -> None:
    """Combine the pieces of a set for one head: write its averages, its maximum logit and its sum of exponentials."""
    b, h, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start = tl.load(offsets + b)
    n_pieces = (tl.load(offsets + b + 1) - start + P - 1) // P
    first = (start // P + b) * H + h
    d = tile * BLOCK_D + tl.arange(0, BLOCK_D)
    in_tile = d < D
    highest = tl.full((BLOCK_P,), float("-inf"), maximum.dtype.element_ty)
    for done in range(0, n_pieces, BLOCK_P):
        piece = done + tl.arange(0, BLOCK_P)
        piece_maxima = tl.load(piece_maximum + first + piece * H, mask=piece < n_pieces, other=float("-inf"))
        highest = tl.maximum(highest, piece_maxima)
    top = tl.where(n_pieces == 0, 0.0, tl.max(highest, 0))
    exponentials = tl.full((BLOCK_P,), 0, maximum.dtype.element_ty)
    average = tl.full((BLOCK_P, BLOCK_D), 0, maximum.dtype.element_ty)
    for done in range(0, n_pieces, BLOCK_P):
        piece = done + tl.arange(0, BLOCK_P)
        known, at = piece < n_pieces, first + piece * H
        share = tl.exp(tl.load(piece_maximum + at, mask=known, other=float("-inf")) - top)
        exponentials += share * tl.load(piece_total + at, mask=known, other=0)
        present = known[:, None] & in_tile[None, :]
        average += share[:, None] * tl.load(piece_sum + at[:, None] * D + d[None, :], mask=present, other=0)
    denominator = tl.where(n_pieces == 0, 1.0, tl.sum(exponentials, 0))
    set_head = b.to(tl.int64) * H + h
    tl.store(maximum + set_head, top, mask=tile == 0)
    tl.store(total + set_head, denominator, mask=tile == 0)
    tl.store(pooled + set_head * D + d, tl.sum(average, 0) / denominator, mask=in_tile)


@triton.jit(do_not_specialize=_PER_BATCH)
def _differentiate_piece(
    logits: tl.tensor,
    values: tl.tensor,
    offsets: tl.tensor,
    pooled: tl.tensor,
    maximum: tl.tensor,
    total: tl.tensor,
    gradient: tl.tensor,
    logits_gradient: tl.tensor,
    values_gradient: tl.tensor,
    B: tl.tensor,
    N: tl.tensor,
    H: tl.constexpr,
    D: tl.constexpr,
    P: tl.constexpr,
    BLOCK_D: tl.constexpr,
) -> None:
    """Write the gradients of the logits and values of a piece; those of rows beyond all sets are 0."""
    b, first, end = _locate_piece(tl.program_id(0), offsets, B, N, P)
    n, d = first + tl.arange(0, P), tl.arange(0, BLOCK_D)
    in_set, row, column = b < B, n < end, d < D
    present, pooled_mask = n < tl.where(in_set, end, 0), d < tl.where(in_set, D, 0)
    at = n[:, None] * D + d[None, :]
    value = tl.load(values + at, mask=present[:, None] & column[None, :], other=0)
    value_gradient = tl.full((P, BLOCK_D), 0, values_gradient.dtype.element_ty)
    for h in tl.static_range(H):
        set_head = b.to(tl.int64) * H + h
        top = tl.load(maximum + set_head, mask=in_set, other=0)
        denominator = tl.load(total + set_head, mask=in_set, other=1)
        weight = tl.exp(tl.load(logits + n * H + h, mask=present, other=float("-inf")) - top) / denominator
        average = tl.load(pooled + set_head * D + d, mask=pooled_mask, other=0)[None, :]
        direction = tl.load(gradient + set_head * D + d, mask=pooled_mask, other=0)[None, :]
        tl.store(logits_gradient + n * H + h, weight * tl.sum((value - average) * direction, 1), mask=row)
        value_gradient += weight[:, None] * direction
    tl.store(values_gradient + at, value_gradient, mask=row[:, None] & column[None, :])
