"""Layers of a few units in LLVM vectors, for functions that numba compiles; all numbers are float32.

numba turns loops into vector instructions only if it can prove that arrays do not overlap, which it rarely can. So
these functions use vectors of `TILE` numbers explicitly. LLVM adapts them to the processor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from deeprc.nn.motif_convolution.cpu import TILE

__all__ = ["add_outer_product", "add_row", "linear_layer", "selu_gradient", "selu_layer", "selu_row"]

_ALPHA, _SCALE = 1.6732632423543772, 1.0507009873554805  # constants of SELU
_LOG2_E, _LN_2_HIGH, _LN_2_LOW = 1.4426950408889634, 0.693359375, -2.12194440e-4
_LOWEST = -87.0  # its exponential is about the smallest float32 of full precision

_INDEX, _LANE = ir.IntType(64), ir.IntType(32)
_VECTOR = ir.VectorType(ir.FloatType(), TILE)
_Intrinsic = tuple[Any, Callable[..., Any]]


def _get_data_pointer(context: Any, build: ir.IRBuilder, signature: Any, arguments: Any, at: int) -> Any:
    """Return the pointer to the first number of an array argument."""
    return context.make_array(signature.args[at])(context, build, arguments[at]).data


def _row(build: ir.IRBuilder, pointer: Any, row: Any = None) -> Any:
    """Return the pointer to a row of TILE numbers; without `row`, to the first one."""
    if row is not None:
        pointer = build.gep(pointer, [build.mul(row, ir.Constant(_INDEX, TILE))])
    return build.bitcast(pointer, _VECTOR.as_pointer())


def _load(build: ir.IRBuilder, pointer: Any) -> Any:
    return build.load(pointer, align=4)


def _broadcast_scalar(build: ir.IRBuilder, scalar: Any) -> Any:
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    lanes = ir.Constant(ir.VectorType(_LANE, TILE), [0] * TILE)
    return build.shuffle_vector(build.insert_element(nothing, scalar, ir.Constant(_LANE, 0)), nothing, lanes)


def _make_constant(value: float) -> ir.Constant:
    return ir.Constant(_VECTOR, [value] * TILE)


def _multiply_add(build: ir.IRBuilder, a: Any, b: Any, c: Any) -> Any:
    return build.fadd(build.fmul(a, b, flags=["contract"]), c, flags=["contract"])


def _selu(build: ir.IRBuilder, x: Any) -> Any:
    """Return SELU of a vector, to the last bit or two.

    exp(x) - 1 = 2^n q + (2^n - 1), where n is x / ln 2 rounded and q = exp(r) - 1 a polynomial of the small rest r.
    """
    integers = ir.VectorType(_LANE, TILE)
    low = build.select(build.fcmp_ordered("<", x, _make_constant(0.0)), x, _make_constant(0.0))
    low = build.select(build.fcmp_ordered(">", low, _make_constant(_LOWEST)), low, _make_constant(_LOWEST))
    # `low` is not positive: subtracting one half and cutting off towards zero rounds it
    n = build.fptosi(build.fsub(build.fmul(low, _make_constant(_LOG2_E)), _make_constant(0.5)), integers)
    n_float = build.sitofp(n, _VECTOR)
    rest = _multiply_add(build, n_float, _make_constant(-_LN_2_HIGH), low)
    rest = _multiply_add(build, n_float, _make_constant(-_LN_2_LOW), rest)
    q = _make_constant(1 / 5040)
    for factor in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2, 1.0):
        q = _multiply_add(build, q, rest, _make_constant(factor))
    q = build.fmul(q, rest)
    exponent = build.add(n, ir.Constant(integers, [127] * TILE))
    power = build.bitcast(build.shl(exponent, ir.Constant(integers, [23] * TILE)), _VECTOR)
    below = _multiply_add(build, power, q, build.fsub(power, _make_constant(1.0)))
    negative, positive = build.fmul(below, _make_constant(_SCALE * _ALPHA)), build.fmul(x, _make_constant(_SCALE))
    return build.select(build.fcmp_ordered("<", x, _make_constant(0.0)), negative, positive)  # NaN stays NaN


def _weighted_sum(build: ir.IRBuilder, inputs: Any, n_in: Any, weight: Any, start: Any) -> Any:
    """Return the vector start + sum of inputs[i] weight[i] over i < n_in.

    Even and odd i have separate sums, so that an addition need not wait for the one before.
    """
    totals = [cgutils.alloca_once_value(build, value) for value in (start, _make_constant(0.0))]

    def add(i: Any, total: Any) -> None:
        value = _broadcast_scalar(build, build.load(build.gep(inputs, [i])))
        build.store(_multiply_add(build, value, _load(build, _row(build, weight, i)), build.load(total)), total)

    one = ir.Constant(_INDEX, 1)
    with cgutils.for_range(build, build.lshr(n_in, one)) as loop:
        even = build.shl(loop.index, one)
        add(even, totals[0])
        add(build.add(even, one), totals[1])
    with build.if_then(build.trunc(n_in, ir.IntType(1))):
        add(build.sub(n_in, one), totals[0])
    return build.fadd(*(build.load(total) for total in totals))


@intrinsic
def selu_row(_: Any, row: Any, bias: Any) -> _Intrinsic:
    """Replace a row by SELU(row + bias), (TILE,) each."""

    def generate(context: Any, build: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        pointers = [_row(build, _get_data_pointer(context, build, signature, arguments, at)) for at in (0, 1)]
        total = build.fadd(*(_load(build, pointer) for pointer in pointers))
        build.store(_selu(build, total), pointers[0], align=4)
        return context.get_dummy_value()

    return types.void(row, bias), generate


@intrinsic
def selu_layer(_: Any, inputs: Any, n_in: Any, weight: Any, bias: Any, output: Any) -> _Intrinsic:
    """Write SELU(inputs weight + bias): inputs (n_in,), weight (n_in, TILE), bias and output (TILE,)."""

    def generate(context: Any, build: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        data = [None if at == 1 else _get_data_pointer(context, build, signature, arguments, at) for at in range(5)]
        total = _weighted_sum(build, data[0], arguments[1], data[2], _load(build, _row(build, data[3])))
        build.store(_selu(build, total), _row(build, data[4]), align=4)
        return context.get_dummy_value()

    return types.void(inputs, n_in, weight, bias, output), generate


@intrinsic
def linear_layer(_: Any, inputs: Any, n_in: Any, weight: Any, output: Any) -> _Intrinsic:
    """Write inputs weight: inputs (n_in,), weight (n_in, TILE), output (TILE,)."""

    def generate(context: Any, build: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        data = [None if at == 1 else _get_data_pointer(context, build, signature, arguments, at) for at in range(4)]
        total = _weighted_sum(build, data[0], arguments[1], data[2], _make_constant(0.0))
        build.store(total, _row(build, data[3]), align=4)
        return context.get_dummy_value()

    return types.void(inputs, n_in, weight, output), generate


@intrinsic
def selu_gradient(_: Any, gradient: Any, activation: Any, total: Any) -> _Intrinsic:
    """Replace the gradient of SELU's result by that of its argument, and add this to a total, (TILE,) each."""

    def generate(context: Any, build: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        of_result, result, sum_so_far = (
            _row(build, _get_data_pointer(context, build, signature, arguments, at)) for at in range(3)
        )
        y = _load(build, result)
        negative = build.fadd(y, _make_constant(_SCALE * _ALPHA))
        slope = build.select(build.fcmp_ordered("<=", y, _make_constant(0.0)), negative, _make_constant(_SCALE))
        product = build.fmul(_load(build, of_result), slope)
        build.store(product, of_result, align=4)
        build.store(build.fadd(_load(build, sum_so_far), product), sum_so_far, align=4)
        return context.get_dummy_value()

    return types.void(gradient, activation, total), generate


@intrinsic
def add_row(_: Any, total: Any, row: Any) -> _Intrinsic:
    """Add a row to a total, (TILE,) each."""

    def generate(context: Any, build: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        pointers = [_row(build, _get_data_pointer(context, build, signature, arguments, at)) for at in (0, 1)]
        build.store(build.fadd(*(_load(build, pointer) for pointer in pointers)), pointers[0], align=4)
        return context.get_dummy_value()

    return types.void(total, row), generate


@intrinsic
def add_outer_product(_: Any, inputs: Any, n_in: Any, row: Any, total: Any) -> _Intrinsic:
    """Add inputs[i] row to total[i] for i < n_in: inputs (n_in,), row (TILE,), total (n_in, TILE)."""

    def generate(context: Any, build: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        data = [None if at == 1 else _get_data_pointer(context, build, signature, arguments, at) for at in range(4)]
        vector = _load(build, _row(build, data[2]))
        with cgutils.for_range(build, arguments[1]) as loop:
            value = _broadcast_scalar(build, build.load(build.gep(data[0], [loop.index])))
            pointer = _row(build, data[3], loop.index)
            build.store(_multiply_add(build, value, vector, _load(build, pointer)), pointer, align=4)
        return context.get_dummy_value()

    return types.void(inputs, n_in, row, total), generate
