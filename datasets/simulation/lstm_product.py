"""The product of states and weights, which is most of an LSTM's work, with explicit vector instructions.

LLVM makes vectors of a plain loop too, but keeps its sums in memory, which halves the speed. Here the sums of 4
sequences times 16 columns stay in registers. Each sum adds the products of the units in their order, and each is
rounded, as in a plain loop: so the bits are the same on every processor, whatever its vectors are.

Letters: S lanes, H units, G columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numpy.typing import NDArray

from deeprc.compilation import njit

__all__ = ["COLUMNS", "TILE_LANES", "add_product", "split_into_blocks"]

COLUMNS = 16
"""Number of columns of a block of weights; the columns of a matrix of weights are a multiple of it."""

TILE_LANES = 4
"""Number of sequences for which weights are loaded once; the rows of an array of lanes are a multiple of it."""

_WIDTH = 8  # floats of a vector; 4 x 2 vectors of sums fit the 16 registers of AVX2
_UNROLLED = 4  # units per turn of the loop; H is a multiple
_VECTORS = COLUMNS // _WIDTH
_Array = NDArray[Any]

_float, _int64, _int32 = ir.FloatType(), ir.IntType(64), ir.IntType(32)
_vector = ir.VectorType(_float, _WIDTH)


def split_into_blocks(weights: _Array) -> _Array:
    """Return weights, (H, G), in blocks of columns, (G / 16, H, 16)."""
    H, G = weights.shape
    return np.ascontiguousarray(weights.reshape(H, G // COLUMNS, COLUMNS).transpose(1, 0, 2))


@intrinsic
def _add_tile(_: Any, sums: Any, weights: Any, states: Any) -> Any:
    """Add states, (4, H), times a block of weights, (H, 16), to sums, (4, 16); float32, rows contiguous."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        arrays = [
            cgutils.create_struct_proxy(kind)(context, builder, value=value)
            for kind, value in zip(signature.args, arguments, strict=True)
        ]
        n_units = cgutils.unpack_tuple(builder, arrays[1].shape, 2)[0]
        to, source = _point_to_rows(builder, arrays[0]), _point_to_rows(builder, arrays[2])
        places = [_point_to_vector(builder, row, v * _WIDTH) for row in to for v in range(_VECTORS)]
        first = [builder.load(place, align=4) for place in places]
        before, loop, after = builder.block, *(builder.append_basic_block(name) for name in ("units", "done"))
        builder.branch(loop)
        builder.position_at_end(loop)
        k = builder.phi(_int64)
        held = [builder.phi(_vector) for _ in first]
        total = _add_units(builder, held, k, arrays[1].data, source)
        following = builder.add(k, _int64(_UNROLLED))
        for phi, start, end in zip([k, *held], [_int64(0), *first], [following, *total], strict=True):
            phi.add_incoming(start, before)
            phi.add_incoming(end, loop)
        builder.cbranch(builder.icmp_signed("<", following, n_units), loop, after)
        builder.position_at_end(after)
        for place, value in zip(places, total, strict=True):
            builder.store(value, place, align=4)
        return context.get_dummy_value()

    return types.void(sums, weights, states), generate


def _point_to_rows(builder: Any, array: Any) -> list[Any]:
    """Return pointers to the 4 rows of an array."""
    stride = cgutils.unpack_tuple(builder, array.strides, 2)[0]
    data = builder.bitcast(array.data, ir.IntType(8).as_pointer())
    rows = (builder.gep(data, [builder.mul(stride, _int64(i))]) for i in range(TILE_LANES))
    return [builder.bitcast(row, _float.as_pointer()) for row in rows]


def _point_to_vector(builder: Any, pointer: Any, index: int) -> Any:
    return builder.bitcast(builder.gep(pointer, [_int64(index)]), _vector.as_pointer())


def _add_units(builder: Any, sums: list[Any], k: Any, weights: Any, states: list[Any]) -> list[Any]:
    """Return the sums after adding the products of `_UNROLLED` units, from unit k on."""
    nothing = ir.Constant(_vector, ir.Undefined)
    to_all = ir.Constant(ir.VectorType(_int32, _WIDTH), [0] * _WIDTH)
    sums = list(sums)
    for u in range(_UNROLLED):
        unit = builder.add(k, _int64(u))
        row = builder.gep(weights, [builder.mul(unit, _int64(COLUMNS))])
        factors = [builder.load(_point_to_vector(builder, row, v * _WIDTH), align=4) for v in range(_VECTORS)]
        for i, state in enumerate(states):
            number = builder.load(builder.gep(state, [unit]), align=4)
            vector = builder.shuffle_vector(builder.insert_element(nothing, number, _int32(0)), nothing, to_all)
            for v, factor in enumerate(factors):
                at = i * _VECTORS + v
                sums[at] = builder.fadd(sums[at], builder.fmul(vector, factor))  # no flags: never contracted
    return sums


@njit(nogil=True)
def add_product(sums: _Array, states: _Array, weights: _Array, n: int) -> None:
    """Add states, (S, H), times weights, (G / 16, H, 16), to the first n rows of sums, (S, G); all float32.

    The rows up to the next multiple of 4 are computed, too; H is a multiple of 4.
    """
    for block in range(weights.shape[0]):
        first = block * COLUMNS
        for s in range(0, n, TILE_LANES):
            _add_tile(sums[s : s + TILE_LANES, first : first + COLUMNS], weights[block], states[s : s + TILE_LANES])
