"""Vectors in compiled functions compute what numpy computes, place by place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError

from deeprc.vectors import bits_to_float, fill, load, multiply_add, prefetch, select, store, to_float, to_int

N = 16
A = np.array([1.5, -2.0, 0.0, np.nan, 3.25, -0.5, 7.0, 8.0, -9.0, 1.0, 2.0, np.inf, 4.0, 5.0, 6.0, 0.1], np.float32)
B = np.array([0.5, -2.0, 1.0, 1.0, np.nan, 4.0, -7.0, 0.1, 9.0, 1.5, 2.0, 3.0, 4.5, -5.0, 6.0, 0.2], np.float32)


def compute(function: Callable[..., Any], *arrays: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
    """Return what a compiled function of vectors makes of arrays, (N,) each."""
    inner = numba.njit(function)
    places = range(len(arrays))

    @numba.njit
    def run_one(a: np.ndarray, out: np.ndarray) -> None:
        store(inner(load(a, 0, N)), out, 0)

    @numba.njit
    def run_two(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        store(inner(load(a, 0, N), load(b, 0, N)), out, 0)

    out = np.zeros(N, dtype)
    (run_one if len(places) == 1 else run_two)(*arrays, out)
    return out


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a + b,
        lambda a, b: a - b,
        lambda a, b: a * b,
        lambda a, b: a * b + 0.1,
        lambda a, b: np.float32(2) - a * 0.1 + b,
        lambda a, b: 3 * a,
    ],
)
def test_arithmetic_is_that_of_numpy_to_the_last_bit(function: Callable[..., Any]) -> None:
    expected = function(A, B)
    assert expected.dtype == np.float32
    np.testing.assert_array_equal(compute(function, A, B), expected)


def test_adding_in_place_gives_a_new_vector() -> None:
    def double(a: Any) -> Any:
        before = a
        a += 1.0
        return a * before

    np.testing.assert_array_equal(compute(double, A), (A + 1) * A)


@pytest.mark.parametrize(
    ("condition", "of_numpy"),
    [
        (lambda a, b: a < b, lambda: A < B),
        (lambda a, b: a <= b, lambda: A <= B),
        (lambda a, b: a > b, lambda: A > B),
        (lambda a, b: a == b, lambda: A == B),
        (lambda a, b: ~(a <= b) & (b == b), lambda: ~(A <= B) & (B == B)),
        (lambda a, b: a < 0.0, lambda: A < 0),
    ],
)
def test_conditions_choose_place_by_place_and_are_false_with_nan(
    condition: Callable[..., Any], of_numpy: Callable[[], np.ndarray]
) -> None:
    chosen = numba.njit(condition)

    def choose(a: Any, b: Any) -> Any:
        return select(chosen(a, b), a, -1.0)

    np.testing.assert_array_equal(compute(choose, A, B), np.where(of_numpy(), A, np.float32(-1)))


def test_multiply_add_is_rounded_once_or_twice() -> None:
    twice = A * B + np.float32(0.1)
    once = (A.astype(np.float64) * B + np.float64(np.float32(0.1))).astype(np.float32)
    found = compute(lambda a, b: multiply_add(a, b, 0.1), A, B)
    assert all(np.isnan(x) if np.isnan(y) else x in (y, z) for x, y, z in zip(found, twice, once, strict=True))
    np.testing.assert_array_equal(compute(lambda a: multiply_add(2.0, a, a), B), 3 * B)  # both are exact, or round once


def test_whole_numbers_and_bits() -> None:
    finite = np.where(np.isfinite(A), A, 2.5).astype(np.float32)
    np.testing.assert_array_equal(compute(lambda a: to_float(to_int(a)), finite), np.trunc(finite))
    whole = np.arange(-8, 8, dtype=np.int32)
    powers = compute(lambda a: bits_to_float((a + 127) << 23), whole)
    np.testing.assert_array_equal(powers, 2.0**whole)
    np.testing.assert_array_equal(compute(lambda a: a * 3 - 1, whole, dtype=np.int32), whole * 3 - 1)
    np.testing.assert_array_equal(compute(lambda a: a, whole + 300, dtype=np.uint8), (whole + 300).astype(np.uint8))


def test_numbers_without_a_sign_are_compared_without_one() -> None:
    bytes_ = np.array([0, 1, 100, 127, 128, 150, 199, 200, 201, 254, 255, 2, 3, 4, 5, 6], np.uint8)
    found = compute(lambda a: select(a < 200, a, 7), bytes_, dtype=np.uint8)
    np.testing.assert_array_equal(found, np.where(bytes_ < 200, bytes_, 7))


def test_rows_are_loaded_filled_and_stored_where_they_lie() -> None:
    @numba.njit
    def add_rows(rows: np.ndarray, out: np.ndarray) -> None:
        total = fill(np.float64(0), N)
        for i in range(len(rows)):
            prefetch(rows, i)
            total += load(rows, i, N)
        store(total, out, 2)

    rows = np.arange(5 * N, dtype=np.float64).reshape(5, N)
    out = np.full((4, N), -1.0)
    add_rows(rows, out)
    np.testing.assert_array_equal(out, np.stack([np.full(N, -1.0)] * 2 + [rows.sum(axis=0), np.full(N, -1.0)]))


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: a + load(b, 0, 2 * N),  # another length
        lambda a, b: select(a, a, a),  # no condition
        lambda a, b: to_float(a),  # no whole numbers
        lambda a, b: fill(1.0, int(b[0])),  # no constant
        lambda a, b: a & a,  # no whole numbers
        lambda a, b: ~a,
        lambda a, b: a << 1,
        lambda a, b: store(to_int(a), b, 0),  # other numbers than those of the array
    ],
)
def test_meaningless_vector_operations_are_refused(function: Callable[..., Any]) -> None:
    inner = numba.njit(function)

    @numba.njit
    def run(a: np.ndarray) -> None:
        inner(load(a, 0, N), a)

    with pytest.raises(TypingError):
        run(np.concatenate([A, B]))
