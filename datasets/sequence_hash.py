"""Hashes of sequences with their genes, and the comparison of two sequences: compiled code finds clones by them.

A hash alone decides nothing: where two hashes are equal, the sequences are compared.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.counters import GOLDEN, MIX_1, MIX_2
from deeprc.datasets.sequences import SequenceArrays

__all__ = ["are_equal", "hash_row", "hash_rows"]

_BITS, _PER_WORD = 5, 12  # 12 residues of 5 bits are one word


@njit(nogil=True)
def hash_row(sequences: SequenceArrays, row: int) -> Any:
    """Return the hash of one sequence and of its genes' codes, 64 bits without a sign; for compiled code."""
    start, stop = sequences.offsets[row], sequences.offsets[row + 1]
    v = uint64(sequences.v[row]) if len(sequences.v) > 0 else uint64(0)
    j = uint64(sequences.j[row]) if len(sequences.j) > 0 else uint64(0)
    z = uint64(stop - start) * uint64(GOLDEN) + ((v << uint64(16)) | j) * uint64(MIX_2)
    while True:
        word, end = uint64(0), min(start + _PER_WORD, stop)
        for position in range(start, end):
            word = (word << uint64(_BITS)) | uint64(sequences.residues[position])
        z = (z ^ word) * uint64(MIX_1)
        z ^= z >> uint64(29)
        start = end
        if start >= stop:
            break
    z = (z ^ (z >> uint64(30))) * uint64(MIX_1)
    z = (z ^ (z >> uint64(27))) * uint64(MIX_2)
    return z ^ (z >> uint64(31))


@njit(nogil=True)
def are_equal(a: SequenceArrays, i: int, b: SequenceArrays, k: int) -> Any:
    """Return whether sequence i of a and sequence k of b have the same residues and gene codes; for compiled code."""
    n = a.offsets[i + 1] - a.offsets[i]
    if n != b.offsets[k + 1] - b.offsets[k]:
        return False
    if len(a.v) > 0 and a.v[i] != b.v[k]:
        return False
    if len(a.j) > 0 and a.j[i] != b.j[k]:
        return False
    first, second = a.offsets[i], b.offsets[k]
    for position in range(n):  # noqa: SIM110 (compiled)
        if a.residues[first + position] != b.residues[second + position]:
            return False
    return True


@njit(nogil=True)
def hash_rows(sequences: SequenceArrays, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the hashes, (n,), of the sequences at some rows, (n,)."""
    hashes = np.empty(len(rows), np.uint64)
    for i in range(len(rows)):
        hashes[i] = hash_row(sequences, rows[i])
    return hashes
