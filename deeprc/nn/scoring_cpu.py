"""h1, h2 and the attention logits without gradients in one pass, compiled for the CPU.

A few sequences at a time go from residues to logits without leaving the fastest caches; written as one operation after
another, as training needs them, the same takes several times as long, most of it in waiting for memory and threads.
Letters: N sequences, K kernel width, D kernels, T tiles of kernels, H heads, n_in inputs of a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
import torch
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from deeprc.nn.motif_convolution.cpu import AHEAD, TILE, best_windows, convolution_arrays, fetch_ahead

__all__ = ["score"]

_SEQUENCES = 64  # in work at a time: their values lie in the fastest cache beside a tile's table
_ALPHA, _SCALE = 1.6732632423543772, 1.0507009873554805  # of SELU
_LOG2_E, _LN_2_HIGH, _LN_2_LOW = 1.4426950408889634, 0.693359375, -2.12194440e-4
_LOWEST = -87.0  # exp of it is the smallest float32 of full precision
_Array = NDArray[Any]


def score(
    residues: Tensor,
    starts: Tensor,
    lengths: Tensor,
    residue_scale: Tensor,
    position_scale: Tensor,
    weight: Tensor,
    bias: Tensor,
    layers: Sequence[tuple[Tensor, Tensor]],
    queries: Tensor,
    max_length: int,
    *,
    with_values: bool,
) -> tuple[Tensor, Tensor]:
    """Return the sequence representations, (N, D), and the attention logits, (N, H), in 32 bits.

    Parameters
    ----------
    residues, starts, lengths, residue_scale, position_scale, weight, bias, max_length
        Of the motif convolution; see `motif_convolution`.
    layers
        Weight (n_out, n_in) and bias (n_out,) of each SELU layer of the key network.
    queries
        β ξ of each head, (H, n_out of the last layer, or D).
    with_values
        Without, the representations are not kept and an empty tensor is returned for them, (0, D).
    """
    sequences = (residues, starts, lengths, residue_scale, position_scale)
    arrays = convolution_arrays(*sequences, weight, bias, max_length)
    sizes = np.array([len(weight), *(len(layer_bias) for _, layer_bias in layers)])
    widest = -(-int(sizes.max()) // TILE) * TILE
    weights = np.zeros((len(layers), widest // TILE, widest, TILE), np.float32)
    biases = np.zeros((len(layers), widest), np.float32)
    for number, (layer_weight, layer_bias) in enumerate(layers):
        n_out, n_in = layer_weight.shape
        padded = functional.pad(layer_weight.detach().T, (0, widest - n_out))  # (n_in, widest)
        weights[number, :, :n_in] = padded.reshape(n_in, -1, TILE).transpose(0, 1).numpy()
        biases[number, :n_out] = layer_bias.detach().numpy()
    values = torch.empty((len(starts) if with_values else 0, len(weight)))
    logits = torch.empty((len(starts), len(queries)))
    heads = np.ascontiguousarray(queries.detach().numpy())
    _score(*arrays, weights, biases, sizes, heads, values.numpy(), logits.numpy())
    return values, logits


def _selu(build: ir.IRBuilder, x: Any) -> Any:
    """Return SELU of a vector of float32, to the last bit or two.

    exp(x) - 1 = 2^n q + (2^n - 1), where n is x / ln 2 rounded and q = exp(r) - 1 a polynomial of the small rest r.
    """
    vector, count = x.type, x.type.count
    integers = ir.VectorType(ir.IntType(32), count)

    def number(value: float) -> ir.Constant:
        return ir.Constant(vector, [value] * count)

    def multiply_add(a: Any, b: Any, c: Any) -> Any:
        return build.fadd(build.fmul(a, b, flags=["contract"]), c, flags=["contract"])

    low = build.select(build.fcmp_ordered("<", x, number(0.0)), x, number(0.0))
    low = build.select(build.fcmp_ordered(">", low, number(_LOWEST)), low, number(_LOWEST))
    # `low` is not positive: adding one half and cutting off towards zero rounds it
    n = build.fptosi(build.fsub(build.fmul(low, number(_LOG2_E)), number(0.5)), integers)
    n_float = build.sitofp(n, vector)
    rest = multiply_add(n_float, number(-_LN_2_LOW), multiply_add(n_float, number(-_LN_2_HIGH), low))
    q = number(1 / 5040)
    for factor in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0):
        q = multiply_add(q, rest, number(factor))
    q = build.fmul(q, rest)
    bits = build.shl(build.add(n, ir.Constant(integers, [127] * count)), ir.Constant(integers, [23] * count))
    power = build.bitcast(bits, vector)
    negative = build.fmul(multiply_add(power, q, build.fsub(power, number(1.0))), number(_SCALE * _ALPHA))
    positive = build.fmul(x, number(_SCALE))
    return build.select(build.fcmp_ordered("<", x, number(0.0)), negative, positive)  # what is no number stays so


@intrinsic
def _selu_row(_: Any, row: Any, bias: Any) -> tuple[Any, Callable[..., Any]]:
    """Replace a row by SELU of the row plus the bias, (TILE,) float32 each."""

    def generate(context: Any, build: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        vector = ir.VectorType(ir.FloatType(), TILE)
        pointers = []
        for kind, argument in zip(signature.args, arguments, strict=True):
            data = context.make_array(kind)(context, build, argument).data
            pointers.append(build.bitcast(data, vector.as_pointer()))
        total = build.fadd(*(build.load(pointer, align=4) for pointer in pointers))
        build.store(_selu(build, total), pointers[0], align=4)
        return context.get_dummy_value()

    return types.void(row, bias), generate


@intrinsic
def _selu_layer(_: Any, inputs: Any, n_in: Any, weight: Any, bias: Any, output: Any) -> tuple[Any, Callable[..., Any]]:
    """Write SELU(inputs weight + bias): inputs (n_in,), weight (n_in, TILE), bias and output (TILE,) float32."""

    def generate(context: Any, build: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        number, index = ir.IntType(64), ir.IntType(32)
        vector = ir.VectorType(ir.FloatType(), TILE)

        def data(at: int) -> Any:
            return context.make_array(signature.args[at])(context, build, arguments[at]).data

        def as_vector(pointer: Any) -> Any:
            return build.bitcast(pointer, vector.as_pointer())

        total = cgutils.alloca_once_value(build, build.load(as_vector(data(3)), align=4))
        nothing, first = ir.Constant(vector, ir.Undefined), ir.Constant(index, 0)
        everywhere = ir.Constant(ir.VectorType(index, TILE), [0] * TILE)
        with cgutils.for_range(build, arguments[1]) as loop:
            scalar = build.load(build.gep(data(0), [loop.index]))
            value = build.shuffle_vector(build.insert_element(nothing, scalar, first), nothing, everywhere)
            row = as_vector(build.gep(data(2), [build.mul(loop.index, ir.Constant(number, TILE))]))
            product = build.fmul(value, build.load(row, align=4), flags=["contract"])
            build.store(build.fadd(build.load(total), product, flags=["contract"]), total)
        build.store(_selu(build, build.load(total)), as_vector(data(4)), align=4)
        return context.get_dummy_value()

    return types.void(inputs, n_in, weight, bias, output), generate


@numba.njit(parallel=True, cache=True, nogil=True, fastmath={"contract", "reassoc"})
def _score(
    residues: _Array,
    starts: _Array,
    lengths: _Array,
    residue_scale: _Array,
    position_scale: _Array,
    table: _Array,
    position_table: _Array,
    bias: _Array,
    weights: _Array,
    biases: _Array,
    sizes: _Array,
    queries: _Array,
    values: _Array,
    logits: _Array,
) -> None:
    N, D, widest = len(starts), sizes[0], biases.shape[1]
    for block in numba.prange((N + _SEQUENCES - 1) // _SEQUENCES):
        first = block * _SEQUENCES
        inputs, outputs = np.empty((2, _SEQUENCES, max(widest, len(bias))), np.float32)
        window = np.empty(TILE, np.uint8)
        for tile in range(len(table)):
            kernels = slice(tile * TILE, (tile + 1) * TILE)
            for n in range(first, min(first + _SEQUENCES, N)):
                fetch_ahead(residues, starts[min(n + AHEAD, N - 1)])
                L, best = lengths[n], inputs[n - first, kernels]
                rows = position_table[tile, L * (L - 1) // 2 :]
                best_windows(
                    residues, starts[n], L, residue_scale[n], position_scale[n], table[tile], rows, best, window
                )
                _selu_row(best, bias[kernels])
        for n in range(first, min(first + _SEQUENCES, N)):
            if len(values) > 0:
                values[n] = inputs[n - first, :D]
            before, after = inputs[n - first], outputs[n - first]
            for layer in range(len(weights)):
                for tile in range((sizes[layer + 1] + TILE - 1) // TILE):
                    units = slice(tile * TILE, (tile + 1) * TILE)
                    _selu_layer(before, sizes[layer], weights[layer, tile], biases[layer, units], after[units])
                before, after = after, before
            for h in range(len(queries)):
                total = np.float32(0)
                for d in range(queries.shape[1]):
                    total += queries[h, d] * before[d]
                logits[n, h] = total
