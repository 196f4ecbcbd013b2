"""The motif convolution as a sum of table rows, compiled for the CPU with numba; see `tables` for the formula.

No one-hot tensor is built. `TILE` kernels are computed at a time: a tile's table of K x 20 rows fits into the fastest
cache, and the sums, maxima and best windows of its kernels into vector registers. Results do not depend on the number
of threads: sums run over a fixed number of blocks in a fixed order.
Letters: N sequences, L positions, K kernel width, D kernels, R residues, C blocks, T tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import types, uint64
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from deeprc.compilation import njit
from deeprc.nn.features import N_AMINO_ACIDS
from deeprc.nn.motif_convolution.tables import find_rows_in_use, kernel_gradient, position_table, window_dtype
from deeprc.nn.sequences import BatchArrays, SequenceBatch

__all__ = [
    "AHEAD",
    "BLOCKS",
    "TILE",
    "ConvolutionTables",
    "add_windows",
    "best_windows",
    "convolution_tables",
    "fetch_ahead",
    "forward",
    "gradient_buffers",
    "scale_gradients",
    "sum_buffers",
    "weight_gradient",
]

TILE = 32
"""Number of kernels that are computed at a time."""
AHEAD = 16
"""Number of sequences by which the fetching of residues is ahead of their use."""
BLOCKS = 16
"""Number of blocks of sequences for sums. It is fixed, so that results do not depend on the number of threads."""
_Array = NDArray[Any]


class ConvolutionTables(NamedTuple):
    """Tables of the compiled forward pass, by tiles of kernels; the module `tables` has the formula.

    Attributes
    ----------
    residues
        W, the amount that an amino acid at a position of a kernel adds, (T, K, 20, TILE).
    positions
        P, the amount that the position of a window in a sequence adds, (T, rows, TILE).
    first_row
        Row of P for the first window of sequences of each length, (max_length + 1,) int64.
    bias
        Biases of the kernels, (T * TILE,).
    """

    residues: _Array
    positions: _Array
    first_row: _Array
    bias: _Array


def forward(
    sequences: SequenceBatch,
    weight: Tensor,
    bias: Tensor,
    precision: str,  # noqa: ARG001  # the weight is rounded already, and sums have 32 bits
) -> tuple[Tensor, Tensor]:
    """Return the maximal pre-activations, (N, D), and the first window of each maximum, (N, D) uint8 or int32."""
    D = len(weight)
    tables = convolution_tables(sequences, weight, bias)
    maximum = weight.new_empty((sequences.n_sequences, D + -D % TILE))
    window = torch.empty(maximum.shape, dtype=window_dtype(sequences))
    _forward(sequences.convert_scales(weight).arrays(), tables, maximum.numpy(), window.numpy())
    if D % TILE:
        return maximum[:, :D].clone(memory_format=torch.contiguous_format), window[:, :D].contiguous()
    return maximum, window


def convolution_tables(sequences: SequenceBatch, weight: Tensor, bias: Tensor) -> ConvolutionTables:
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
            found = f"{shortest} to {longest}"
            raise ValueError(f"lengths: expected 1 to {max_length} (max_length) residues, found {found}")
    padded = functional.pad(weight.detach(), (0, 0, 0, 0, 0, -len(weight) % TILE))  # (T * TILE, 23, K)
    tiles = padded.view(-1, TILE, *weight.shape[1:])[:, :, :N_AMINO_ACIDS].permute(0, 3, 2, 1)  # (T, K, 20, TILE)
    rows, first_row = find_rows_in_use(lengths, max_length)
    positional = position_table(padded, max_length, rows).view(-1, len(tiles), TILE).transpose(0, 1)
    padded_bias = functional.pad(bias, (0, -len(bias) % TILE))
    return ConvolutionTables(*(_numpy(tensor) for tensor in (tiles, positional, first_row, padded_bias)))


def weight_gradient(sequences: SequenceBatch, weight: Tensor, window: Tensor, gradient: Tensor) -> Tensor:
    """Return the gradient of the kernels, (D, 23, K), from the gradient of the maxima, (N, D)."""
    rows, first_row = find_rows_in_use(sequences.lengths, sequences.max_length)
    buffers = gradient_buffers(weight, rows)
    arrays = sequences.convert_scales(weight).arrays()
    _backward(arrays, _numpy(window), _numpy(gradient), first_row.numpy(), *(buffer.numpy() for buffer in buffers))
    return sum_buffers(*buffers, sequences.max_length, rows)


def gradient_buffers(weight: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Return buffers of zeros for the gradients of W, (C, D, K, 21), and of these rows of P, (C, rows, D)."""
    D, _, K = weight.shape
    return weight.new_zeros((BLOCKS, D, K, N_AMINO_ACIDS + 1)), weight.new_zeros((BLOCKS, len(rows), D))


def sum_buffers(residue_gradient: Tensor, position_gradient: Tensor, max_length: int, rows: Tensor) -> Tensor:
    """Return the gradient of the kernels, (D, 23, K), from the filled buffers."""
    of_residues = residue_gradient.sum(0)[..., :N_AMINO_ACIDS].transpose(1, 2)  # (D, K, 20) -> (D, 20, K)
    return kernel_gradient(of_residues, position_gradient.sum(0), max_length, rows)


def scale_gradients(
    sequences: SequenceBatch, weight: Tensor, window: Tensor, gradient: Tensor
) -> tuple[Tensor, Tensor]:
    """Return the gradients of the two scales, (N,) each, from the gradient of the maxima, (N, D)."""
    of_residues, of_positions = torch.empty_like(sequences.residue_scale), torch.empty_like(sequences.position_scale)
    positions = position_table(weight, sequences.max_length)
    arrays = (_numpy(tensor) for tensor in (weight, positions, window, gradient, of_residues, of_positions))
    _scale_gradients(sequences.convert_scales(weight).arrays(), *arrays)
    return of_residues, of_positions


def _numpy(tensor: Tensor) -> _Array:
    return tensor.detach().contiguous().numpy()


@intrinsic
def fetch_ahead(_: Any, residues: Any, start: Any) -> tuple[Any, Callable[..., Any]]:
    """Fetch the residues of a later sequence into the cache, because sampled sequences lie anywhere in memory."""

    def generate(context: Any, build: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, build, arguments[0])
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        prefetch = cgutils.get_or_insert_function(
            build.module, ir.FunctionType(ir.VoidType(), [pointer, number, number, number]), "llvm.prefetch.p0i8"
        )
        read, keep, data = (ir.Constant(number, value) for value in (0, 3, 1))
        build.call(prefetch, [build.bitcast(build.gep(array.data, [arguments[1]]), pointer), read, keep, data])
        return context.get_dummy_value()

    return types.void(residues, start), generate


@intrinsic
def best_windows(
    _: Any, sequences: Any, n: Any, table: Any, position_rows: Any, maximum: Any, window: Any
) -> tuple[Any, Callable[..., Any]]:
    """Write the maxima and their first windows for sequence n and one tile of kernels.

    The code uses LLVM vectors of `TILE` numbers, which numba cannot express. For each window p it computes

        value = residue_scale[n] * sum_j table[j, residues[starts[n] + p + j]] + position_scale[n] * position_rows[p]

    and keeps value and p if value exceeds the maximum so far. A maximum of NaN stays. Arrays: table (K, 20, TILE),
    position_rows (L, TILE), maximum and window (TILE,).
    """
    number, index = ir.IntType(64), ir.IntType(32)

    def generate(context: Any, build: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        value_type = context.get_value_type(table.dtype)
        values, places = ir.VectorType(value_type, TILE), ir.VectorType(index, TILE)
        contract = ["contract"]

        def array(at: int) -> Any:
            return context.make_array(signature.args[at])(context, build, arguments[at])

        def column(name: str) -> tuple[Any, Any]:
            at = sequences.fields.index(name)
            value = build.extract_value(arguments[0], at)
            return sequences.types[at], context.make_array(sequences.types[at])(context, build, value)

        def number_of_sequence(name: str) -> Any:
            array_type, values_of_all = column(name)
            return build.load(cgutils.get_item_pointer(context, build, array_type, values_of_all, [arguments[1]]))

        def broadcast(scalar: Any, vector: ir.VectorType) -> Any:
            nothing = ir.Constant(vector, ir.Undefined)
            one = build.insert_element(nothing, scalar, ir.Constant(index, 0))
            return build.shuffle_vector(one, nothing, ir.Constant(places, [0] * TILE))

        def vector_at(pointer: Any, row: Any, vector: ir.VectorType) -> Any:
            first = build.gep(pointer, [build.mul(row, ir.Constant(number, TILE))])
            return build.bitcast(first, vector.as_pointer())

        def load_row(pointer: Any, row: Any) -> Any:
            return build.load(vector_at(pointer, row, values), align=table.dtype.bitwidth // 8)

        sequence = build.gep(column("residues")[1].data, [number_of_sequence("starts")])
        end = number_of_sequence("lengths")
        kernels, positions = array(2), array(3).data
        kernel_size = build.extract_value(kernels.shape, 0)
        scales = (number_of_sequence(name) for name in ("residue_scale", "position_scale"))
        of_residues, of_positions = (broadcast(scale, values) for scale in scales)
        best = cgutils.alloca_once_value(build, ir.Constant(values, [float("-inf")] * TILE))
        best_at = cgutils.alloca_once_value(build, ir.Constant(places, [0] * TILE))
        total = cgutils.alloca_once(build, values)
        with cgutils.for_range(build, end) as windows:
            p = windows.index
            left = build.sub(end, p)
            here = build.gep(sequence, [p])
            build.store(ir.Constant(values, [0.0] * TILE), total)
            with cgutils.for_range(
                build, build.select(build.icmp_signed("<", left, kernel_size), left, kernel_size)
            ) as w:
                residue = build.zext(build.load(build.gep(here, [w.index])), number)
                row = build.add(build.mul(w.index, ir.Constant(number, N_AMINO_ACIDS)), residue)
                build.store(build.fadd(build.load(total), load_row(kernels.data, row)), total)
            positional = build.fmul(of_positions, load_row(positions, p), flags=contract)
            value = build.fadd(build.fmul(of_residues, build.load(total), flags=contract), positional, flags=contract)
            so_far = build.load(best)
            better = build.and_(build.fcmp_unordered(">", value, so_far), build.fcmp_ordered("ord", so_far, so_far))
            build.store(build.select(better, value, so_far), best)
            p_everywhere = broadcast(build.trunc(p, index), places)
            build.store(build.select(better, p_everywhere, build.load(best_at)), best_at)
        zero = ir.Constant(number, 0)
        build.store(build.load(best), vector_at(array(4).data, zero, values), align=table.dtype.bitwidth // 8)
        stored = ir.VectorType(context.get_value_type(window.dtype), TILE)
        narrow = build.load(best_at) if stored == places else build.trunc(build.load(best_at), stored)
        build.store(narrow, vector_at(array(5).data, zero, stored), align=window.dtype.bitwidth // 8)
        return context.get_dummy_value()

    return types.void(sequences, n, table, position_rows, maximum, window), generate


@njit(parallel=True, nogil=True)
def _forward(sequences: BatchArrays, tables: ConvolutionTables, maximum: _Array, window: _Array) -> None:
    residues, starts, lengths = sequences.residues, sequences.starts, sequences.lengths
    N = len(starts)
    for block in numba.prange(BLOCKS):
        for tile in range(len(tables.residues)):
            kernels = slice(tile * TILE, (tile + 1) * TILE)
            for n in range(block * N // BLOCKS, (block + 1) * N // BLOCKS):
                fetch_ahead(residues, starts[min(n + AHEAD, N - 1)])
                position_rows = tables.positions[tile, tables.first_row[lengths[n]] :]
                best, at = maximum[n, kernels], window[n, kernels]
                best_windows(sequences, n, tables.residues[tile], position_rows, best, at)
                best += tables.bias[kernels]


@njit(parallel=True, nogil=True)
def _backward(
    sequences: BatchArrays,
    window: _Array,
    gradient: _Array,
    first_row: _Array,
    residue_gradient: _Array,
    position_gradient: _Array,
) -> None:
    residues, starts, lengths = sequences.residues, sequences.starts, sequences.lengths
    N = len(starts)
    K = residue_gradient.shape[2]
    for block in numba.prange(BLOCKS):
        scratch = np.empty(sequences.max_length + K, np.uint64)
        for n in range(block * N // BLOCKS, (block + 1) * N // BLOCKS):
            fetch_ahead(residues, starts[min(n + AHEAD, N - 1)])
            row, of_residues, of_positions = first_row[lengths[n]], residue_gradient[block], position_gradient[block]
            add_windows(sequences, n, window[n], gradient[n], row, scratch, of_residues, of_positions)


@njit(nogil=True, inline="always")
def add_windows(
    sequences: BatchArrays,
    n: int,
    window: _Array,
    gradient: _Array,
    first_row: int,
    scratch: _Array,
    residue_gradient: _Array,
    position_gradient: _Array,
) -> None:
    """Add the gradients (D,) of sequence n to the table rows of its windows, (D, K, 21) and (rows, D).

    Every window adds to K rows, so that no branch is needed; rows beyond the end of the sequence have a column of their
    own. `scratch` is (max_length + K,) uint64. Indices are unsigned, so that numba omits the code for negative ones.
    """
    residues = sequences.residues
    D, K, columns = residue_gradient.shape
    of_residues, of_positions = residue_gradient.ravel(), position_gradient.ravel()
    first, L = uint64(sequences.starts[n]), uint64(sequences.lengths[n])
    residue_scale, position_scale = sequences.residue_scale[n], sequences.position_scale[n]
    for i in range(L):
        scratch[i] = residues[first + i]
    for i in range(uint64(K)):
        scratch[L + i] = columns - 1
    at, row = uint64(0), uint64(first_row)
    for d in range(uint64(D)):
        p, g = uint64(window[d]), gradient[d]
        of_positions[(row + p) * uint64(D) + d] += g * position_scale
        g *= residue_scale
        for j in range(uint64(K)):
            of_residues[at + scratch[p + j]] += g
            at += uint64(columns)


@njit(parallel=True, nogil=True)
def _scale_gradients(
    sequences: BatchArrays,
    weight: _Array,
    position_table: _Array,
    window: _Array,
    gradient: _Array,
    of_residues: _Array,
    of_positions: _Array,
) -> None:
    residues, starts, lengths = sequences.residues, sequences.starts, sequences.lengths
    N, D = gradient.shape
    K = weight.shape[2]
    for n in numba.prange(N):
        L = lengths[n]
        residue_sum, position_sum = 0.0, 0.0
        for d in range(D):
            p = window[n, d]
            position_sum += gradient[n, d] * position_table[L * (L - 1) // 2 + p, d]
            for j in range(min(K, L - p)):
                residue_sum += gradient[n, d] * weight[d, residues[starts[n] + p + j], j]
        of_residues[n], of_positions[n] = residue_sum, position_sum
