"""The motif convolution as a sum of table rows, compiled for CUDA with Triton; see `tables` for the formula.

No one-hot tensor is built. A Triton program computes a few sequences and a tile of kernels; its part of the residue
table stays in the L1 cache, and its sums, maxima and best windows in registers. The host never waits for the device,
and the launched programs depend on shapes only. So calls can be captured in a CUDA graph (after one call with the same
shapes, which compiles the programs and builds the positional features of the tables).
Letters: N sequences, L positions, K kernel width, D kernels, R residues, W kernels padded to whole tiles, C copies.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from deeprc.nn.features import N_AMINO_ACIDS
from deeprc.nn.motif_convolution.tables import choose_window_dtype, kernel_gradient, position_table
from deeprc.nn.sequences import SequenceBatch

__all__ = ["forward", "scale_gradients", "weight_gradient"]

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
_COPIES = 16
"""Number of copies of W's gradient: they must fit into the L2 cache, but be so many that threads rarely collide."""

_ROWS = tl.constexpr(N_AMINO_ACIDS + 1)  # rows of the residue table for each position of a kernel
_BEYOND_END = tl.constexpr(N_AMINO_ACIDS)  # row of zeros, for positions beyond the end of a sequence
_AMINO_ACIDS = tl.constexpr(N_AMINO_ACIDS)
_PER_SEQUENCE = ["residues", "starts", "lengths", "residue_scale", "position_scale", "N"]
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
    own = sequences.convert_scales(weight).tensors()
    arrays = (*own, *(t.contiguous() for t in (table, positions, bias)))
    grid = (triton.cdiv(N, block_n), triton.cdiv(D, block_d))  # neighbouring programs share a tile of kernels
    with torch.cuda.device_of(weight):
        _forward[grid](*arrays, maximum, window, N, D, K, block_n, block_d, **_OPTIONS)
    return maximum, window


def weight_gradient(sequences: SequenceBatch, weight: Tensor, window: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of the kernels, (D, 23, K), from that of the maxima, (N, D).

    It is summed by atomic additions. Their order differs between runs, and so do the last bits.
    """
    N, (D, _, K) = sequences.n_sequences, weight.shape
    residue_gradient = weight.new_zeros((_COPIES, K, N_AMINO_ACIDS, D))
    max_length = sequences.max_length
    position_gradient = weight.new_zeros((max_length * (max_length + 1) // 2, D))
    if N > 0:
        own = sequences.convert_scales(weight).tensors()
        arrays = (*own, window.contiguous(), gradient.contiguous())
        gradients = (residue_gradient, position_gradient)
        with torch.cuda.device_of(weight):
            # one pair per thread, so that no value moves between threads
            _backward[triton.cdiv(N * D, _THREADS),](*arrays, *gradients, N, D, K, _COPIES, _THREADS, **_OPTIONS)
    of_residues = residue_gradient.sum(0).permute(2, 1, 0)  # (C, K, 20, D) -> (K, 20, D) -> (D, 20, K)
    return kernel_gradient(of_residues, position_gradient, max_length)


def scale_gradients(
    sequences: SequenceBatch, weight: Tensor, window: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the two scales, (N,) each, from that of the maxima, (N, D)."""
    N, (D, _, K) = sequences.n_sequences, weight.shape
    results = (torch.empty_like(sequences.residue_scale), torch.empty_like(sequences.position_scale))
    if N == 0:
        return results
    block_n, block_d = _choose_tile(D, weight.itemsize)
    where = (sequences.residues, sequences.starts, sequences.lengths)
    arrays = [t.contiguous() for t in (*where, *_make_tables(weight, sequences.max_length, block_d), window, gradient)]
    with torch.cuda.device_of(weight):
        _scale_gradients[triton.cdiv(N, block_n),](*arrays, *results, N, D, K, block_n, block_d, **_OPTIONS)
    return results


def _choose_tile(n_kernels: int, itemsize: int) -> tuple[int, int]:
    """Return the number of sequences and of kernels per program; numbers of the residue table have `itemsize` bytes."""
    block_d = min(max(triton.next_power_of_2(n_kernels), 8), _MAX_TILE)
    return min(_THREADS * _BYTES // (itemsize * block_d), _MAX_SEQUENCES), block_d


def _make_tables(weight: Tensor, max_length: int, block_d: int) -> tuple[Tensor, Tensor]:
    """Return the residue table, (K, 21, W) with a last row of zeros, and the position table, (rows, W)."""
    padded = functional.pad(weight, (0, 0, 0, 0, 0, -len(weight) % block_d))  # (W, 23, K)
    rows = padded[:, :N_AMINO_ACIDS].permute(2, 1, 0)  # (K, 20, W)
    return functional.pad(rows, (0, 0, 0, 1)), position_table(padded, max_length)


@triton.jit(do_not_specialize=_PER_SEQUENCE)
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
    known = n < N
    length = tl.load(lengths + n, mask=known, other=0)
    sequence = residues + tl.load(starts + n, mask=known, other=0)
    of_residues = tl.load(residue_scale + n, mask=known, other=0)[:, None]
    of_positions = tl.load(position_scale + n, mask=known, other=0)[:, None]
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
        value = of_residues * total + of_positions * positional
        better = inside & ~(value <= best) & (best == best)  # also if value is NaN and best is not
        best = tl.where(better, value, best)
        best_at = tl.where(better, p, best_at)
    in_tile = d < D
    best += tl.load(bias + d, mask=in_tile, other=0)[None, :]
    at = n[:, None] * D + d[None, :]
    written = known[:, None] & in_tile[None, :]
    tl.store(maximum + at, best, mask=written)
    tl.store(window + at, best_at.to(window.dtype.element_ty), mask=written)


@triton.jit(do_not_specialize=_PER_SEQUENCE)
def _backward(
    residues: tl.tensor,
    starts: tl.tensor,
    lengths: tl.tensor,
    residue_scale: tl.tensor,
    position_scale: tl.tensor,
    window: tl.tensor,
    gradient: tl.tensor,
    residue_gradient: tl.tensor,
    position_gradient: tl.tensor,
    N: tl.tensor,
    D: tl.constexpr,
    K: tl.constexpr,
    COPIES: tl.constexpr,
    PAIRS: tl.constexpr,
) -> None:
    """Add the gradient of each pair of sequence and kernel to the table rows of its window."""
    program = tl.program_id(0)
    pair = program.to(tl.int64) * PAIRS + tl.arange(0, PAIRS)
    n, d = pair // D, pair % D
    known = n < N
    p = tl.load(window + pair, mask=known, other=0).to(tl.int32)
    g = tl.load(gradient + pair, mask=known, other=0)
    known = known & (g != 0)  # sequences that only fill the batch are all the same, and would collide
    length = tl.load(lengths + n, mask=known, other=0)
    of_positions = g * tl.load(position_scale + n, mask=known, other=0)
    position_row = length * (length - 1) // 2 + p
    tl.atomic_add(position_gradient + position_row * D + d, of_positions, mask=known, sem="relaxed")
    of_residues = g * tl.load(residue_scale + n, mask=known, other=0)
    here = residues + tl.load(starts + n, mask=known, other=0) + p
    left = tl.where(known, length.to(tl.int32) - p, 0)
    copy = residue_gradient + (program % COPIES) * (K * _AMINO_ACIDS * D) + d
    for j in tl.static_range(K):
        residue = tl.load(here + j, mask=j < left, other=0).to(tl.int32)
        tl.atomic_add(copy + (residue + j * _AMINO_ACIDS) * D, of_residues, mask=j < left, sem="relaxed")


@triton.jit(do_not_specialize=_PER_SEQUENCE)
def _scale_gradients(
    residues: tl.tensor,
    starts: tl.tensor,
    lengths: tl.tensor,
    table: tl.tensor,
    position_table: tl.tensor,
    window: tl.tensor,
    gradient: tl.tensor,
    of_residues: tl.tensor,
    of_positions: tl.tensor,
    N: tl.tensor,
    D: tl.constexpr,
    K: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
) -> None:
    """Write the gradients of the two scales of each sequence, summed over all kernels."""
    WIDTH: tl.constexpr = (D + BLOCK_D - 1) // BLOCK_D * BLOCK_D
    n = tl.program_id(0).to(tl.int64) * BLOCK_N + tl.arange(0, BLOCK_N)
    known = n < N
    length = tl.load(lengths + n, mask=known, other=0)[:, None]
    sequence = residues + tl.load(starts + n, mask=known, other=0)[:, None]
    first_row = length * (length - 1) // 2
    residue_sum = tl.full((BLOCK_N, BLOCK_D), 0, gradient.dtype.element_ty)
    position_sum = tl.full((BLOCK_N, BLOCK_D), 0, gradient.dtype.element_ty)
    for first in range(0, D, BLOCK_D):
        d = first + tl.arange(0, BLOCK_D)[None, :]
        present = known[:, None] & (d < D)
        at = n[:, None] * D + d
        p = tl.load(window + at, mask=present, other=0).to(tl.int64)
        g = tl.load(gradient + at, mask=present, other=0)
        position_sum += g * tl.load(position_table + (first_row + p) * WIDTH + d)
        for j in tl.static_range(K):
            residue = tl.load(sequence + (p + j), mask=p + j < length, other=_BEYOND_END).to(tl.int32)
            residue_sum += g * tl.load(table + (residue + j * _ROWS) * WIDTH + d, eviction_policy="evict_last")
    tl.store(of_residues + n, tl.sum(residue_sum, 1).to(of_residues.dtype.element_ty), mask=known)
    tl.store(of_positions + n, tl.sum(position_sum, 1).to(of_positions.dtype.element_ty), mask=known)
