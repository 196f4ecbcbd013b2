"""Vectors of numbers, for functions that numba compiles: a row of an array is loaded, computed with, and stored.

numba turns a loop into vector instructions only if it can prove that arrays do not overlap, which it rarely can, and it
keeps sums in memory. A vector is held in registers; its length is a constant, and LLVM adapts it to the processor.
Python's operators work place by place, as for numpy arrays; a number beside a vector is converted to the type of its
numbers and counts for all places. `*` and `+` are rounded one after the other, so that results are the same bits on
every processor, unless the function, or one into which numba inlines it, is compiled with `fastmath`; `multiply_add`
is rounded once if the processor can do so.

    total = fill(np.float32(0), 32)
    for i in range(n):
        total += weights[i] * load(rows, i, 32)
    store(total, sums, 0)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, models, register_model
from numba.types import unliteral

__all__ = ["bits_to_float", "fill", "load", "multiply_add", "prefetch", "select", "store", "to_float", "to_int"]

_Intrinsic = tuple[Any, Callable[..., Any]] | None
_LANE = ir.IntType(32)


class _Vector(types.Type):
    """The type of a vector in compiled code: the type of its numbers, and how many there are."""

    def __init__(self, dtype: Any, length: int) -> None:
        self.dtype, self.length = dtype, length
        super().__init__(name=f"vector({dtype}, {length})")


@register_model(_Vector)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]  # numba has no types
    """LLVM's type of a vector; a truth value is one bit."""

    def __init__(self, manager: Any, kind: _Vector) -> None:
        of_number = ir.IntType(1) if kind.dtype is types.boolean else manager.lookup(kind.dtype).get_value_type()
        super().__init__(manager, kind, ir.VectorType(of_number, kind.length))


def _repeat(build: ir.IRBuilder, number: Any, length: int) -> Any:
    """Return a vector with a number at all places."""
    nothing = ir.Constant(ir.VectorType(number.type, length), ir.Undefined)
    first = build.insert_element(nothing, number, ir.Constant(_LANE, 0))
    return build.shuffle_vector(first, nothing, ir.Constant(ir.VectorType(_LANE, length), [0] * length))


def _widen(context: Any, build: ir.IRBuilder, wanted: _Vector, given: Any, value: Any) -> Any:
    """Return a vector as it is, and a number as a vector of the wanted type."""
    if isinstance(given, _Vector):
        return value
    return _repeat(build, context.cast(build, value, given, wanted.dtype), wanted.length)


def _find_vector(kinds: Any) -> _Vector | None:
    """Return the type that all vectors among some types have, if the others are numbers; else None."""
    vectors = [kind for kind in kinds if isinstance(kind, _Vector)]
    same = vectors and all(kind == vectors[0] or isinstance(kind, types.Number) for kind in kinds)
    return vectors[0] if same else None


def _define_operator(of: Any, generators: Mapping[type, Callable[..., Any]], *, result: Any = None) -> None:
    """Let an operator of Python work on two vectors, or on a vector and a number.

    Parameters
    ----------
    of
        The operator.
    generators
        For a kind of numbers, the function that generates the code from the builder, the vectors and their numbers'
        type.
    result
        Type of the numbers of the result; None is that of the arguments.
    """

    class Operator(AbstractTemplate):  # type: ignore[misc]  # numba has no types
        def generic(self, args: Any, _: Any) -> Any:
            kind = _find_vector(args)
            if kind is None or type(kind.dtype) not in generators:
                return None
            return signature(_Vector(result or kind.dtype, kind.length), *args)

    def generate(context: Any, build: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        kind = _find_vector(signature.args)
        assert kind is not None
        left, right = (
            _widen(context, build, kind, *typed_value) for typed_value in zip(signature.args, arguments, strict=True)
        )
        return generators[type(kind.dtype)](build, left, right, kind.dtype)

    infer_global(of)(Operator)
    for kinds in ((_Vector, _Vector), (_Vector, types.Number), (types.Number, _Vector)):
        lower_builtin(of, *kinds)(generate)


def _without_type(generate: Callable[..., Any]) -> Callable[..., Any]:
    """Return a generator for `_define_operator` that does not look at the numbers' type."""
    return lambda build, left, right, _: generate(build, left, right)


def _define_comparison(of: Any, symbol: str) -> None:
    """Let a comparison of Python give a vector of truth values; with NaN it is false."""

    def of_floats(build: ir.IRBuilder, left: Any, right: Any, _: Any) -> Any:
        return build.fcmp_ordered(symbol, left, right)

    def of_integers(build: ir.IRBuilder, left: Any, right: Any, dtype: Any) -> Any:
        return (build.icmp_signed if dtype.signed else build.icmp_unsigned)(symbol, left, right)

    _define_operator(of, {types.Float: of_floats, types.Integer: of_integers}, result=types.boolean)


for _of, _floats, _integers in (
    (operator.add, ir.IRBuilder.fadd, ir.IRBuilder.add),
    (operator.iadd, ir.IRBuilder.fadd, ir.IRBuilder.add),
    (operator.sub, ir.IRBuilder.fsub, ir.IRBuilder.sub),
    (operator.mul, ir.IRBuilder.fmul, ir.IRBuilder.mul),
):
    _define_operator(_of, {types.Float: _without_type(_floats), types.Integer: _without_type(_integers)})
_define_operator(operator.lshift, {types.Integer: _without_type(ir.IRBuilder.shl)})
_AND = _without_type(ir.IRBuilder.and_)
_define_operator(operator.and_, {types.Integer: _AND, types.Boolean: _AND})
for _of, _symbol in ((operator.lt, "<"), (operator.le, "<="), (operator.gt, ">"), (operator.eq, "==")):
    _define_comparison(_of, _symbol)


@infer_global(operator.invert)
class _Invert(AbstractTemplate):  # type: ignore[misc]  # numba has no types
    def generic(self, args: Any, _: Any) -> Any:
        is_exact = isinstance(args[0], _Vector) and not isinstance(args[0].dtype, types.Float)
        return signature(args[0], args[0]) if is_exact else None


@lower_builtin(operator.invert, _Vector)
def _invert(_context: Any, build: ir.IRBuilder, _signature: Any, arguments: Any) -> Any:
    return build.not_(arguments[0])


def _find_row(context: Any, build: ir.IRBuilder, kind: Any, array: Any, row: Any, length: int) -> tuple[Any, int]:
    """Return the pointer to a row of an array as a vector, and its alignment in bytes."""
    first = context.make_array(kind)(context, build, array).data
    rows = build.bitcast(first, ir.VectorType(first.type.pointee, length).as_pointer())
    return build.gep(rows, [row]), kind.dtype.bitwidth // 8


def _has_numbers(array: Any) -> bool:
    """Return whether a type is that of an array of numbers, in the order of C as far as numba knows it."""
    return isinstance(array, types.Array) and array.layout != "F" and isinstance(array.dtype, types.Number)


@intrinsic(prefer_literal=True)
def load(_: Any, array: Any, row: Any, length: Any) -> _Intrinsic:  # noqa: ARG001  # any whole number is a row
    """Return a row of an array as a vector: the array is read as rows of `length` numbers, which is a constant.

    The numbers of the array must lie one after another in memory. Neither this nor the index of the row is checked.
    """
    if not _has_numbers(array) or not isinstance(length, types.IntegerLiteral):
        return None

    def generate(context: Any, build: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        kind = signature.return_type
        array, row, _ = arguments
        pointer, alignment = _find_row(context, build, signature.args[0], array, row, kind.length)
        return build.load(pointer, align=alignment)

    return _Vector(array.dtype, length.literal_value)(array, types.intp, length), generate


@intrinsic
def store(_: Any, vector: Any, array: Any, row: Any) -> _Intrinsic:  # noqa: ARG001  # any whole number is a row
    """Write a vector to a row of an array, see `load`; whole numbers lose the bits that the array has no place for."""
    if not _has_numbers(array) or not isinstance(vector, _Vector):
        return None
    both = (vector.dtype, array.dtype)
    fits = both[0] == both[1] or (
        all(isinstance(operand, types.Integer) for operand in both) and both[1].bitwidth < both[0].bitwidth
    )
    if not fits:
        return None

    def generate(context: Any, build: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        value, array, row = arguments
        pointer, alignment = _find_row(context, build, signature.args[1], array, row, signature.args[0].length)
        element_type = pointer.type.pointee
        build.store(value if value.type == element_type else build.trunc(value, element_type), pointer, align=alignment)
        return context.get_dummy_value()

    return types.void(vector, array, types.intp), generate


@intrinsic(prefer_literal=True)
def fill(_: Any, number: Any, length: Any) -> _Intrinsic:
    """Return a vector with a number at all places; its length is a constant."""
    if not isinstance(length, types.IntegerLiteral):
        return None

    def generate(_context: Any, build: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return _repeat(build, arguments[0], signature.return_type.length)

    number = unliteral(number)
    return _Vector(number, length.literal_value)(number, length), generate


@intrinsic
def select(_: Any, condition: Any, then: Any, otherwise: Any) -> _Intrinsic:
    """Return at each place `then` if the condition is true there, else `otherwise`; one of both may be a number."""
    kind = _find_vector((then, otherwise))
    if kind is None or condition != _Vector(types.boolean, kind.length):
        return None

    def generate(context: Any, build: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        both = zip(signature.args[1:], arguments[1:], strict=True)
        return build.select(arguments[0], *(_widen(context, build, kind, *typed_value) for typed_value in both))

    return kind(condition, then, otherwise), generate


@intrinsic
def multiply_add(_: Any, a: Any, b: Any, c: Any) -> _Intrinsic:
    """Return a b + c, rounded once if the processor can do so; some of the three may be numbers."""
    kind = _find_vector((a, b, c))
    if kind is None:
        return None

    def generate(context: Any, build: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        x, y, z = (
            _widen(context, build, kind, *typed_value) for typed_value in zip(signature.args, arguments, strict=True)
        )
        return build.fadd(build.fmul(x, y, flags=["contract"]), z, flags=["contract"])

    return kind(a, b, c), generate


def _convert(vector: Any, given: Any, wanted: Any, convert: Callable[..., Any]) -> _Intrinsic:
    """Return the signature and the code of a conversion of vectors with numbers of the type `given`."""
    if not isinstance(vector, _Vector) or vector.dtype != given:
        return None

    def generate(context: Any, build: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        return convert(build, arguments[0], context.get_value_type(signature.return_type))

    return _Vector(wanted, vector.length)(vector), generate


@intrinsic
def to_int(_: Any, vector: Any) -> _Intrinsic:
    """Return the whole part of float32 numbers as int32."""
    return _convert(vector, types.float32, types.int32, ir.IRBuilder.fptosi)


@intrinsic
def to_float(_: Any, vector: Any) -> _Intrinsic:
    """Return int32 numbers as float32."""
    return _convert(vector, types.int32, types.float32, ir.IRBuilder.sitofp)


@intrinsic
def bits_to_float(_: Any, vector: Any) -> _Intrinsic:
    """Return the float32 numbers whose bits are those of int32 numbers."""
    return _convert(vector, types.int32, types.float32, ir.IRBuilder.bitcast)


@intrinsic
def prefetch(_: Any, array: Any, index: Any) -> _Intrinsic:  # noqa: ARG001  # any whole number is an index
    """Fetch a number of a contiguous array into the cache, so that it is there when it is needed later."""
    if not _has_numbers(array):
        return None

    def generate(context: Any, build: ir.IRBuilder, signature: Any, arguments: Any) -> Any:
        pointer = ir.IntType(8).as_pointer()
        kind = ir.FunctionType(ir.VoidType(), [pointer, _LANE, _LANE, _LANE])
        function = cgutils.get_or_insert_function(build.module, kind, "llvm.prefetch.p0i8")
        address = build.gep(context.make_array(signature.args[0])(context, build, arguments[0]).data, [arguments[1]])
        read, keep, data = (ir.Constant(_LANE, value) for value in (0, 3, 1))
        build.call(function, [build.bitcast(address, pointer), read, keep, data])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate
