"""The motif convolution as a sum of table rows, compiled for CUDA with Triton; see `tables` for the formula.

No one-hot tensor is built. A Triton program computes a few sequences and a tile of kernels. Its part of the residue
table stays in the L1 cache; its sums, maxima and best windows stay in registers. The host never waits for the device,
and the launched programs depend on shapes only. So calls can be captured in a CUDA graph (after one call with the same
shapes, which compiles the programs and builds the positional features of the tables).
Letters: N sequences, L positions, K kernel width, D kernels, R residues. `padded_D` is D padded to whole tiles.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from deeprc.nn.features import N_AMINO_ACIDS, N_POSITIONAL
from deeprc.nn.motif_convolution.tables import choose_window_dtype, make_position_table, make_positional_features
from deeprc.nn.sequences import SequenceBatch

__all__ = ["compute_scale_gradients", "compute_weight_gradient", "forward"]

# A row of 32 float32 kernels is one cache line of 128 bytes, and a tile's table of K times 21 such lines (24 KB for
# K = 9) fits the L1 cache of an RTX 2080 Ti (64 KB) and of an H100 (up to 256 KB).
_MAX_TILE = 32
# Two warps. Each thread sums as many numbers as one load of 16 bytes has: eight threads then read a whole line, and
# each thread has K loads under way at once. A block has few sequences, so it does not wait long for its longest one.
# Blocks of two warps still fill a multiprocessor of an H100 (64 warps, 32 blocks) and of an RTX 2080 Ti (32 and 16).
_WARPS = 2
_THREADS = 32 * _WARPS
_BYTES = 16
# With fewer sequences than threads, every thread loads the residues that it needs. Otherwise Triton loads a residue in
# one thread and copies it through shared memory, which costs a barrier per residue.
_MAX_SEQUENCES = 32
# The fusion of products and sums is set here, because Triton's default depends on its version.
_OPTIONS = {"num_warps": _WARPS, "enable_fp_fusion": True}
# The gradient is summed in parts, which are added in the end. So many programs hide how long loads take, and so many
# parts are still a few megabytes.
_LEAST_PER_PART = 32
_MAX_PARTS = 256

_ROWS = tl.constexpr(N_AMINO_ACIDS + 1)  # rows of the residue table for each position of a kernel
_BEYOND_END = tl.constexpr(N_AMINO_ACIDS)  # row of zeros, for positions beyond the end of a sequence
_FEATURES = tl.constexpr(N_AMINO_ACIDS + N_POSITIONAL)
_SEQUENCES_AT_ONCE = tl.constexpr(4)  # sequences of a thread whose loads are under way together
_PER_BATCH = ["residues", "starts", "lengths", "residue_scale", "position_scale", "N", "max_length"]
"""Parameters that Triton must not specialise: it would compile again for another alignment or divisibility."""


def forward(sequences: SequenceBatch, weight: Tensor, bias: Tensor, precision: str) -> tuple[Tensor, Tensor]:
    """Return the maximal pre-activations, (N, D), and the first window that has them, (N, D) uint8 or int32."""
    N, (D, _, K) = sequences.n_sequences, weight.shape
    maximum = weight.new_empty((N, D))
    window = torch.empty_like(maximum, dtype=choose_window_dtype(sequences))
    if N == 0:
        return maximum, window
    narrow = precision == "bfloat16"
    block_n, block_d = _choose_tile(D, 2 if narrow else weight.itemsize)
    table, positions = _make_tables(weight, sequences.max_length, block_d)
    if narrow:  # exact, because the weight is rounded already; passed as bits, because not every GPU has bfloat16
        table = table.bfloat16().view(torch.int16)
    sequence_arrays = sequences.convert_scales(weight).tensors()
    arrays = (*sequence_arrays, *(t.contiguous() for t in (table, positions, bias)))
    grid = (triton.cdiv(N, block_n), triton.cdiv(D, block_d))  # neighbouring programs share a tile of kernels
    with torch.cuda.device_of(weight):
        _forward[grid](*arrays, maximum, window, N, D, K, block_n, block_d, **_OPTIONS)
    return maximum, window


def compute_weight_gradient(sequences: SequenceBatch, weight: Tensor, window: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of the kernels, (D, 23, K), from that of the maxima, (N, D).

    Sums have a fixed order, so the same call gives the same bits.
    """
    N, (D, n_features, K) = sequences.n_sequences, weight.shape
    if N == 0:
        return torch.zeros_like(weight)
    block_d = min(triton.next_power_of_2(D), _MAX_TILE)
    tiles = triton.cdiv(D, block_d)
    n_parts = max(1, min(triton.cdiv(N, _LEAST_PER_PART), _MAX_PARTS // tiles))
    parts = weight.new_empty((n_parts, n_features, K, D))
    features = make_positional_features(sequences.max_length, weight.dtype, weight.device)
    sequence_arrays = sequences.convert_scales(weight).tensors()
    arrays = (*sequence_arrays, features, window.contiguous(), gradient.contiguous(), parts)
    with torch.cuda.device_of(weight):
        _backward[n_parts, K, tiles](*arrays, N, sequences.max_length, D, K, _THREADS, block_d, **_OPTIONS)
    return parts.sum(0).permute(2, 0, 1).contiguous()


def compute_scale_gradients(
    sequences: SequenceBatch, weight: Tensor, window: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the two scales, (N,) each, from that of the maxima, (N, D)."""
    N, (D, _, K) = sequences.n_sequences, weight.shape
    results = (torch.empty_like(sequences.residue_scale), torch.empty_like(sequences.position_scale))
    if N == 0:
        return results
    block_n, block_d = _choose_tile(D, weight.itemsize)
    residue_arrays = (sequences.residues, sequences.starts, sequences.lengths)
    tables = _make_tables(weight, sequences.max_length, block_d)
    arrays = [t.contiguous() for t in (*residue_arrays, *tables, window, gradient)]
    with torch.cuda.device_of(weight):
        _scale_gradients[triton.cdiv(N, block_n),](*arrays, *results, N, D, K, block_n, block_d, **_OPTIONS)
    return results


def _choose_tile(n_kernels: int, itemsize: int) -> tuple[int, int]:
    """Return the number of sequences and of kernels per program; numbers of the residue table have `itemsize` bytes."""
    block_d = min(max(triton.next_power_of_2(n_kernels), 8), _MAX_TILE)
    return min(_THREADS * _BYTES // (itemsize * block_d), _MAX_SEQUENCES), block_d


def _make_tables(weight: Tensor, max_length: int, block_d: int) -> tuple[Tensor, Tensor]:
    """Return the residue table, (K, 21, padded_D) with last rows of zeros, and the position table, (rows, padded_D)."""
    padded = functional.pad(weight, (0, 0, 0, 0, 0, -len(weight) % block_d))  # (padded_D, 23, K)
    rows = padded[:, :N_AMINO_ACIDS].permute(2, 1, 0)  # (K, 20, padded_D)
    return functional.pad(rows, (0, 0, 0, 1)), make_position_table(padded, max_length)


@triton.jit(do_not_specialize=_PER_BATCH)
def _forward(
    residues: tl.tensor,
    starts: tl.tensor,
    lengths: tl.tensor,
    residue_scale: tl.tensor,
    position_scale: tl.tensor,
    table: tl.tensor,
    position_table: tl.tensor,
    bias: tl.tensor,
    maximum: tl.tensor,
    window: tl.tensor,
    N: tl.tensor,
    D: tl.constexpr,
    K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
) -> None:
    """Write the maxima and their first windows; a maximum of NaN stays.

    Every thread of a row loads the residue of this row; all threads read the same lines of `table`. Triton has no
    arrays in shared memory, so `evict_last` keeps the table in the L1 cache, which is the same memory.
    """
    WIDTH: tl.constexpr = (D + BLOCK_D - 1) // BLOCK_D * BLOCK_D
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)
    in_batch = n < N
    length = tl.load(lengths + n, mask=in_batch, other=0)
    sequence = residues + tl.load(starts + n, mask=in_batch, other=0)
    scale_of_residues = tl.load(residue_scale + n, mask=in_batch, other=0)[:, None]
    scale_of_positions = tl.load(position_scale + n, mask=in_batch, other=0)[:, None]
    table += d[None, :]
    position_row = position_table + (length * (length - 1) // 2)[:, None] * WIDTH + d[None, :]
    length = length.to(tl.int32)
    best = tl.full((BLOCK_N, BLOCK_D), float("-inf"), maximum.dtype.element_ty)
    best_at = tl.full((BLOCK_N, BLOCK_D), 0, tl.int32)
    for p in range(tl.max(length)):
        here, left = sequence + p, length - p
        total = tl.full((BLOCK_N, BLOCK_D), 0, maximum.dtype.element_ty)
        for j in tl.static_range(K):
            residue = tl.load(here + j, mask=j < left, other=_BEYOND_END).to(tl.int32)
            row = tl.load(table + (residue + j * _ROWS)[:, None] * WIDTH, eviction_policy="evict_last")
            if table.dtype.element_ty == tl.int16:
                row = (row.to(tl.int32) << 16).to(tl.float32, bitcast=True)
            total += row
        inside = (left > 0)[:, None]
        positional = tl.load(position_row + p * WIDTH, mask=inside, other=0)
        value = scale_of_residues * total + scale_of_positions * positional
        better = inside & ~(value <= best) & (best == best)  # also if value is NaN and best is not
        best = tl.where(better, value, best)
        best_at = tl.where(better, p, best_at)
    in_tile = d < D
    best += tl.load(bias + d, mask=in_tile, other=0)[None, :]
    cell = n[:, None] * D + d[None, :]
    written = in_batch[:, None] & in_tile[None, :]
    tl.store(maximum + cell, best, mask=written)
    tl.store(window + cell, best_at.to(window.dtype.element_ty), mask=written)


@triton.jit
def _sum_shares(sums: tl.tensor, SHARES: tl.constexpr, BLOCK_D: tl.constexpr) -> tl.tensor:
    """Return the sum of each kernel, (BLOCK_D,), from those of its threads, (SHARES * BLOCK_D,)."""
    return tl.sum(tl.reshape(sums, (SHARES, BLOCK_D)), 0)


@triton.jit(do_not_specialize=_PER_BATCH)
def _backward(
    residues: tl.tensor,
    starts: tl.tensor,
    lengths: tl.tensor,
    residue_scale: tl.tensor,
    position_scale: tl.tensor,
    features: tl.tensor,
    window: tl.tensor,
    gradient: tl.tensor,
    parts: tl.tensor,
    N: tl.tensor,
    max_length: tl.tensor,
    D: tl.constexpr,
    K: tl.constexpr,
    THREADS: tl.constexpr,
    BLOCK_D: tl.constexpr,
) -> None:
    """Write a part of the gradient: from some sequences, for the weights at one position of a tile of kernels.

    Each thread has one kernel, and holds 20 sums of it in registers, one for each amino acid. To add to one of them, it
    adds to all, and 0 to the others. Atomic additions to a table in memory would take twice as long.
    """
    SHARES: tl.constexpr = THREADS // BLOCK_D  # threads of one kernel
    part, j, tile = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    thread = tl.arange(0, THREADS)
    d = tile * BLOCK_D + thread % BLOCK_D
    share = thread.to(tl.int64) // BLOCK_D
    in_tile = d < D
    first_rows, last_rows = tl.arange(0, 16)[:, None], 16 + tl.arange(0, 4)[:, None]  # sizes must be powers of two
    first = tl.full((16, THREADS), 0, gradient.dtype.element_ty)
    last = tl.full((4, THREADS), 0, gradient.dtype.element_ty)
    start = tl.full((THREADS,), 0, gradient.dtype.element_ty)
    centre = tl.full((THREADS,), 0, gradient.dtype.element_ty)
    end = tl.full((THREADS,), 0, gradient.dtype.element_ty)
    n_parts = tl.num_programs(0)
    for step in range(part, tl.cdiv(N, SHARES * _SEQUENCES_AT_ONCE), n_parts):
        for i in tl.static_range(_SEQUENCES_AT_ONCE):
            n = (step * _SEQUENCES_AT_ONCE + i) * SHARES + share
            is_pair = (n < N) & in_tile  # whether the thread has a sequence and a kernel
            length = tl.load(lengths + n, mask=is_pair, other=0).to(tl.int32)
            position = tl.load(window + n * D + d, mask=is_pair, other=0).to(tl.int32) + j
            is_residue = position < length  # never where there is no pair
            g = tl.load(gradient + n * D + d, mask=is_residue, other=0)
            residue = tl.load(
                residues + tl.load(starts + n, mask=is_pair, other=0) + position, mask=is_residue, other=0
            )
            grad_residue = (g * tl.load(residue_scale + n, mask=is_residue, other=0))[None, :]
            residue = residue.to(tl.int32)[None, :]
            first += tl.where(residue == first_rows, grad_residue, 0)
            last += tl.where(residue == last_rows, grad_residue, 0)
            grad_position = g * tl.load(position_scale + n, mask=is_residue, other=0)
            feature = features + (length * max_length + position) * 3
            start += grad_position * tl.load(feature, mask=is_residue, other=0)
            centre += grad_position * tl.load(feature + 1, mask=is_residue, other=0)
            end += grad_position * tl.load(feature + 2, mask=is_residue, other=0)
    column = tile * BLOCK_D + tl.arange(0, BLOCK_D)
    target = parts + part.to(tl.int64) * (_FEATURES * K * D) + j * D + column
    present = column < D
    first = tl.sum(tl.reshape(first, (16, SHARES, BLOCK_D)), 1)
    last = tl.sum(tl.reshape(last, (4, SHARES, BLOCK_D)), 1)
    tl.store(target[None, :] + first_rows * (K * D), first, mask=present[None, :])
    tl.store(target[None, :] + last_rows * (K * D), last, mask=present[None, :])
    tl.store(target + 20 * (K * D), _sum_shares(start, SHARES, BLOCK_D), mask=present)
    tl.store(target + 21 * (K * D), _sum_shares(centre, SHARES, BLOCK_D), mask=present)
    tl.store(target + 22 * (K * D), _sum_shares(end, SHARES, BLOCK_D), mask=present)


@triton.jit(do_not_specialize=_PER_BATCH)
def _scale_gradients(
    residues: tl.tensor,
    starts: tl.tensor,
    lengths: tl.tensor,
    table: tl.tensor,
    position_table: tl.tensor,
    window: tl.tensor,
    gradient: tl.tensor,
    grad_residue_scale: tl.tensor,
    grad_position_scale: tl.tensor,
    N: tl.tensor,
    D: tl.constexpr,
    K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
) -> None:
    """Write the gradients of the two scales of each sequence, summed over all kernels."""
    WIDTH: tl.constexpr = (D + BLOCK_D - 1) // BLOCK_D * BLOCK_D
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    in_batch = n < N
    length = tl.load(lengths + n, mask=in_batch, other=0)[:, None]
    sequence = residues + tl.load(starts + n, mask=in_batch, other=0)[:, None]
    first_row = length * (length - 1) // 2
    residue_sum = tl.full((BLOCK_N, BLOCK_D), 0, gradient.dtype.element_ty)
    position_sum = tl.full((BLOCK_N, BLOCK_D), 0, gradient.dtype.element_ty)
    for first in range(0, D, BLOCK_D):
        d = first + tl.arange(0, BLOCK_D)[None, :]
        present = in_batch[:, None] & (d < D)
        cell = n[:, None] * D + d
        p = tl.load(window + cell, mask=present, other=0).to(tl.int64)
        g = tl.load(gradient + cell, mask=present, other=0)
        position_sum += g * tl.load(position_table + (first_row + p) * WIDTH + d)
        for j in tl.static_range(K):
            residue = tl.load(sequence + (p + j), mask=p + j < length, other=_BEYOND_END).to(tl.int32)
            residue_sum += g * tl.load(table + (residue + j * _ROWS) * WIDTH + d, eviction_policy="evict_last")
    tl.store(grad_residue_scale + n, tl.sum(residue_sum, 1).to(grad_residue_scale.dtype.element_ty), mask=in_batch)
    tl.store(grad_position_scale + n, tl.sum(position_sum, 1).to(grad_position_scale.dtype.element_ty), mask=in_batch)
