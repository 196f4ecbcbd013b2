"""64 bits of a sequence and its genes, and whether two sequences are the same: what compiled code finds clones with.

A hash alone decides nothing: wherever two are equal, the sequences are compared.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.counters import GOLDEN, MIX_1, MIX_2

__all__ = ["Rows", "hash_of", "hashes_of", "same"]

_BITS, _PER_WORD = 5, 12  # 12 residues of 5 bits are one word


class Rows(NamedTuple):
    """N sequences that lie end to end, and their genes.

    `residues` (R,) uint8, `offsets` (N + 1,) int64; `v` and `j` (N,) uint16 are numbers of genes, (0,) where they
    do not count.
    """

    residues: NDArray[np.uint8]
    offsets: NDArray[np.int64]
    v: NDArray[np.integer[Any]]
    j: NDArray[np.integer[Any]]


@njit(nogil=True)
def hash_of(rows: Rows, row: int) -> Any:
    """Return 64 bits, without a sign, of a sequence and of its genes' numbers; for compiled code."""
    start, stop = rows.offsets[row], rows.offsets[row + 1]
    v = uint64(rows.v[row]) if len(rows.v) > 0 else uint64(0)
    j = uint64(rows.j[row]) if len(rows.j) > 0 else uint64(0)
    z = uint64(stop - start) * uint64(GOLDEN) + ((v << uint64(16)) | j) * uint64(MIX_2)
    while True:
        word, end = uint64(0), min(start + _PER_WORD, stop)
        for place in range(start, end):
            word = (word << uint64(_BITS)) | uint64(rows.residues[place])
        z = (z ^ word) * uint64(MIX_1)
        z ^= z >> uint64(29)
        start = end
        if start >= stop:
            break
    z = (z ^ (z >> uint64(30))) * uint64(MIX_1)
    z = (z ^ (z >> uint64(27))) * uint64(MIX_2)
    return z ^ (z >> uint64(31))


@njit(nogil=True)
def same(a: Rows, i: int, b: Rows, j: int) -> Any:
    """Return whether row i of a and row j of b have the same residues and genes' numbers; for compiled code."""
    n = a.offsets[i + 1] - a.offsets[i]
    if n != b.offsets[j + 1] - b.offsets[j]:
        return False
    if len(a.v) > 0 and a.v[i] != b.v[j]:
        return False
    if len(a.j) > 0 and a.j[i] != b.j[j]:
        return False
    first, second = a.offsets[i], b.offsets[j]
    for place in range(n):  # noqa: SIM110 (compiled)
        if a.residues[first + place] != b.residues[second + place]:
            return False
    return True


@njit(nogil=True)
def hashes_of(rows: Rows, numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the hashes, (n,), of some rows, (n,)."""
    hashes = np.empty(len(numbers), np.uint64)
    for i in range(len(numbers)):
        hashes[i] = hash_of(rows, numbers[i])
    return hashes
