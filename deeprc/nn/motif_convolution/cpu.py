"""The motif convolution as a sum of table rows, compiled for the CPU with numba; see `tables` for the formula.

No one-hot tensor is built. `TILE` kernels are computed at a time. Their table of K x 20 rows fits into the fastest
cache, and their sums, maxima and best windows fit into vector registers. Results do not depend on the number of
threads, because sums run over a fixed number of blocks in a fixed order.
Letters: N sequences, L positions, K kernel width, D kernels, R residues.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from numba import uint64
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from deeprc.compilation import njit
from deeprc.nn.features import N_AMINO_ACIDS
from deeprc.nn.motif_convolution.tables import (
    choose_window_dtype,
    compute_kernel_gradient,
    find_rows_in_use,
    make_position_table,
)
from deeprc.nn.sequences import BatchArrays, SequenceBatch
from deeprc.vectors import fill, load, multiply_add, prefetch, select, store

__all__ = [
    "N_SUM_BLOCKS",
    "PREFETCH_DISTANCE",
    "SEQUENCES_PER_CHUNK",
    "TILE",
    "ConvolutionTables",
    "add_windows",
    "allocate_gradient_buffers",
    "compute_scale_gradients",
    "compute_weight_gradient",
    "forward",
    "make_convolution_tables",
    "round_up_to_tiles",
    "sum_buffers",
    "write_best_windows",
]

TILE = 32
"""Number of kernels that are computed at a time."""
PREFETCH_DISTANCE = 16
"""Number of sequences by which the fetching of residues is ahead of their use."""
N_SUM_BLOCKS = 16
"""Number of blocks of sequences for sums. It is fixed, so that results do not depend on the number of threads."""
SEQUENCES_PER_CHUNK = 64
"""Number of sequences that are computed at a time: their values fit into the fastest cache beside a tile's table."""
_UNROLLED_LENGTH = np.uint64(9)
"""Inner loop length that the compiler unrolls; the default kernel width."""
_N_AMINO_ACIDS, _N_COLUMNS = np.uint64(N_AMINO_ACIDS), np.uint64(N_AMINO_ACIDS + 1)
_Array = NDArray[Any]


class ConvolutionTables(NamedTuple):
    """Tables of the compiled forward pass, by tiles of kernels; the module `tables` has the formula.

    Attributes
    ----------
    residues
        The residue table: the amount that an amino acid at a position of a kernel adds, (tiles, K, 20, TILE).
    positions
        The position table: the amount that the position of a window in a sequence adds, (tiles, rows, TILE).
    first_row_of_length
        Row of the position table for the first window of sequences of each length, (max_length + 1,) int64.
    bias
        Biases of the kernels, (tiles * TILE,).
    """

    residues: _Array
    positions: _Array
    first_row_of_length: _Array
    bias: _Array


def forward(
    sequences: SequenceBatch,
    weight: Tensor,
    bias: Tensor,
    precision: str,  # noqa: ARG001  # the weight is rounded already, and sums have 32 bits
) -> tuple[Tensor, Tensor]:
    """Return the maximal pre-activations, (N, D), and the first window of each maximum, (N, D) uint8 or int32."""
    D = len(weight)
    tables = make_convolution_tables(sequences, weight, bias)
    maximum = weight.new_empty((sequences.n_sequences, round_up_to_tiles(D)))
    window = torch.empty(maximum.shape, dtype=choose_window_dtype(sequences))
    _forward(sequences.convert_scales(weight).arrays(), tables, maximum.numpy(), window.numpy())
    if D % TILE:
        return maximum[:, :D].clone(memory_format=torch.contiguous_format), window[:, :D].contiguous()
    return maximum, window


def round_up_to_tiles(n: int) -> int:
    """Return the number of kernels or units, n, rounded up to whole tiles."""
    return n + -n % TILE


def make_convolution_tables(sequences: SequenceBatch, weight: Tensor, bias: Tensor) -> ConvolutionTables:
    """Return the tables for a forward pass over these sequences, with the kernels padded to whole tiles.

    Raises
    ------
    ValueError
        If a sequence is empty or longer than `max_length`: the compiled code would read beyond its tables.
    """
    lengths, max_length = sequences.lengths, sequences.max_length
    if len(lengths) > 0:
        shortest, longest = (int(length) for length in lengths.aminmax())
        if shortest < 1 or longest > max_length:
            raise ValueError(
                f"lengths: expected 1 to {max_length} (max_length) residues, found {shortest} to {longest}"
            )
    n_added = round_up_to_tiles(len(weight)) - len(weight)
    padded = functional.pad(weight.detach(), (0, 0, 0, 0, 0, n_added))  # (tiles * TILE, 23, K)
    tiles = padded.view(-1, TILE, *weight.shape[1:])[:, :, :N_AMINO_ACIDS].permute(0, 3, 2, 1)  # (tiles, K, 20, TILE)
    rows, first_row_of_length = find_rows_in_use(lengths, max_length)
    positions = make_position_table(padded, max_length, rows).view(-1, len(tiles), TILE).transpose(0, 1)
    padded_bias = functional.pad(bias, (0, n_added))
    return ConvolutionTables(*(_to_numpy(tensor) for tensor in (tiles, positions, first_row_of_length, padded_bias)))


def compute_weight_gradient(sequences: SequenceBatch, weight: Tensor, window: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of the kernels, (D, 23, K), from the gradient of the maxima, (N, D)."""
    rows, first_row_of_length = find_rows_in_use(sequences.lengths, sequences.max_length)
    buffers = allocate_gradient_buffers(weight, rows)
    arrays = sequences.convert_scales(weight).arrays()
    _backward(
        arrays,
        _to_numpy(window),
        _to_numpy(gradient),
        first_row_of_length.numpy(),
        *(buffer.numpy() for buffer in buffers),
    )
    return sum_buffers(*buffers, sequences.max_length, rows)


def allocate_gradient_buffers(weight: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return buffers of zeros for the gradients of the two tables, (blocks, D, K, 21) and (blocks, rows, D).

    The blocks are `N_SUM_BLOCKS`. `rows` are the rows of the position table in use; see `find_rows_in_use`.
    """
    D, _, K = weight.shape
    return weight.new_zeros((N_SUM_BLOCKS, D, K, N_AMINO_ACIDS + 1)), weight.new_zeros((N_SUM_BLOCKS, len(rows), D))


def sum_buffers(residue_gradient: Tensor, position_gradient: Tensor, max_length: int, rows: Tensor) -> Tensor:
    """Return the gradient of the kernels, (D, 23, K), from the filled buffers."""
    grad_residues = residue_gradient.sum(0)[..., :N_AMINO_ACIDS].transpose(1, 2)  # (D, K, 20) -> (D, 20, K)
    return compute_kernel_gradient(grad_residues, position_gradient.sum(0), max_length, rows)


def compute_scale_gradients(
    sequences: SequenceBatch, weight: Tensor, window: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the two feature scales of each sequence, (N,) each, from that of the maxima, (N, D)."""
    gradients = torch.empty_like(sequences.residue_scale), torch.empty_like(sequences.position_scale)
    positions = make_position_table(weight, sequences.max_length)
    arrays = (_to_numpy(tensor) for tensor in (weight, positions, window, gradient, *gradients))
    _scale_gradients(sequences.convert_scales(weight).arrays(), *arrays)
    return gradients


def _to_numpy(tensor: Tensor) -> _Array:
    return tensor.detach().contiguous().numpy()


@njit(nogil=True, inline="always")
def write_best_windows(
    sequences: BatchArrays, n: int, table: _Array, position_rows: _Array, maximum: _Array, window: _Array
) -> None:
    """Write the maxima and their first windows for sequence n and one tile of kernels.

    For each window p, the values of the kernels are

        residue_scale[n] * sum_j table[j, residues[starts[n] + p + j]] + position_scale[n] * position_rows[p].

    A maximum of NaN stays. Arrays: table (K, 20, TILE), position_rows (L, TILE), maximum and window (TILE,).
    """
    residues, first, length = sequences.residues, uint64(sequences.starts[n]), uint64(sequences.lengths[n])
    residue_scale, position_scale = sequences.residue_scale[n], sequences.position_scale[n]
    kernel_size = uint64(len(table))
    best, best_at = fill(table.dtype.type(-np.inf), TILE), fill(np.int32(0), TILE)
    for p in range(length):
        total = fill(table.dtype.type(0), TILE)
        for j in range(min(kernel_size, length - p)):
            total += load(table, j * _N_AMINO_ACIDS + residues[first + p + j], TILE)
        value = multiply_add(residue_scale, total, position_scale * load(position_rows, p, TILE))
        is_better = ~(value <= best) & (best == best)  # also if the value is NaN, and not the best so far
        best, best_at = select(is_better, value, best), select(is_better, p, best_at)
    store(best, maximum, 0)
    store(best_at, window, 0)


@njit(parallel=True, nogil=True)
def _forward(sequences: BatchArrays, tables: ConvolutionTables, maximum: _Array, window: _Array) -> None:
    """Write the maximal pre-activations, and the first window of each maximum, (N, tiles * TILE) each."""
    residues, starts, lengths = sequences.residues, sequences.starts, sequences.lengths
    N = len(starts)
    for block in numba.prange(N_SUM_BLOCKS):
        for tile in range(len(tables.residues)):
            kernels = slice(tile * TILE, (tile + 1) * TILE)
            for n in range(block * N // N_SUM_BLOCKS, (block + 1) * N // N_SUM_BLOCKS):
                prefetch(residues, starts[min(n + PREFETCH_DISTANCE, N - 1)])
                position_rows = tables.positions[tile, tables.first_row_of_length[lengths[n]] :]
                best, best_at = maximum[n, kernels], window[n, kernels]
                write_best_windows(sequences, n, tables.residues[tile], position_rows, best, best_at)
                best += tables.bias[kernels]


@njit(parallel=True, nogil=True)
def _backward(
    sequences: BatchArrays,
    window: _Array,
    gradient: _Array,
    first_row_of_length: _Array,
    residue_gradient: _Array,
    position_gradient: _Array,
) -> None:
    """Add the gradients of all sequences to the buffers of `allocate_gradient_buffers`; see `add_windows`."""
    N = len(sequences.starts)
    for block in numba.prange(N_SUM_BLOCKS):
        grad_residues, grad_positions = residue_gradient[block], position_gradient[block]
        block_stop = (block + 1) * N // N_SUM_BLOCKS
        for first in range(block * N // N_SUM_BLOCKS, block_stop, SEQUENCES_PER_CHUNK):
            part = slice(first, min(first + SEQUENCES_PER_CHUNK, block_stop))
            add_windows(
                sequences, first, window[part], gradient[part], first_row_of_length, grad_residues, grad_positions
            )


@njit(nogil=True, fastmath={"contract"})
def add_windows(
    sequences: BatchArrays,
    first: int,
    window: _Array,
    gradient: _Array,
    first_row_of_length: _Array,
    residue_gradient: _Array,
    position_gradient: _Array,
) -> None:
    """Add the gradients of n sequences, from `first` on, to those of the two tables, (D, K, 21) and (rows, D).

    Every window adds to K cells of the residue table, so that no branch is needed: positions beyond the end of the
    sequence have a column of their own. One tile of kernels after the other gets the gradients of all n sequences, so
    that its cells stay in the fastest cache. `window` and `gradient` are (n, D or more). Indices are unsigned, so that
    numba omits the code for negative ones.
    """
    residues = sequences.residues
    grad_residues, grad_positions = residue_gradient.ravel(), position_gradient.ravel()
    # residue at each position of a sequence, which is a column of the residue table
    columns = np.empty(sequences.max_length + residue_gradient.shape[1], np.uint64)
    D, K = uint64(residue_gradient.shape[0]), uint64(residue_gradient.shape[1])
    for start in range(uint64(0), D, uint64(TILE)):
        for i in range(len(window)):
            n = first + i
            prefetch(residues, sequences.starts[min(n + PREFETCH_DISTANCE, len(sequences.starts) - 1)])
            begin, L = uint64(sequences.starts[n]), uint64(sequences.lengths[n])
            residue_scale, position_scale = sequences.residue_scale[n], sequences.position_scale[n]
            for p in range(L):
                columns[p] = residues[begin + p]
            for p in range(L, L + K):
                columns[p] = _N_AMINO_ACIDS
            cell, first_window = start * K * _N_COLUMNS, uint64(first_row_of_length[L])
            for d in range(start, min(start + uint64(TILE), D)):
                p, g = uint64(window[i, d]), gradient[i, d]
                grad_positions[(first_window + p) * D + d] += g * position_scale
                g *= residue_scale
                for _ in range(K // _UNROLLED_LENGTH):
                    for j in range(_UNROLLED_LENGTH):
                        grad_residues[cell + j * _N_COLUMNS + columns[p + j]] += g
                    cell, p = cell + _UNROLLED_LENGTH * _N_COLUMNS, p + _UNROLLED_LENGTH
                for _ in range(K % _UNROLLED_LENGTH):
                    grad_residues[cell + columns[p]] += g
                    cell, p = cell + _N_COLUMNS, p + uint64(1)


@njit(parallel=True, nogil=True)
def _scale_gradients(
    sequences: BatchArrays,
    weight: _Array,
    position_table: _Array,
    window: _Array,
    gradient: _Array,
    grad_residue_scale: _Array,
    grad_position_scale: _Array,
) -> None:
    """Write the gradients of the two scales of each sequence, (N,) each, from those of the strongest windows, (N, D).

    The windows of sequences of length L begin in row L (L - 1) / 2 of the whole position table, see `tables`.
    """
    residues, starts, lengths = sequences.residues, sequences.starts, sequences.lengths
    N, D = gradient.shape
    K = weight.shape[2]
    for n in numba.prange(N):
        L = lengths[n]
        first_row = L * (L - 1) // 2
        residue_sum, position_sum = 0.0, 0.0
        for d in range(D):
            p = window[n, d]
            position_sum += gradient[n, d] * position_table[first_row + p, d]
            for j in range(min(K, L - p)):
                residue_sum += gradient[n, d] * weight[d, residues[starts[n] + p + j], j]
        grad_residue_scale[n], grad_position_scale[n] = residue_sum, position_sum
