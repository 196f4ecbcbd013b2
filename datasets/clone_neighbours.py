"""Which sequences of a repertoire are one of some clones, or differ from one by a single substitution.

Each clone is put into a hash table once for every position, without the residue at this position. A sequence is looked
up in the same way, so a substitution at any position finds the clone. Hashes only propose: the residues are compared.

Letters: J clones, L residues of a clone, N sequences of a repertoire, n pairs of a sequence and a clone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.clone_set import CloneSet
from deeprc.datasets.counters import GOLDEN, MIX_1, MIX_2
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.sequences import SequenceArrays

__all__ = ["Neighbours", "find_neighbours"]

_SLOTS_PER_KEY = 4
_FILTER_BITS = 1 << 22  # half a megabyte: it stays in the processor's cache, and refuses most sequences
_FIRST_CAPACITY = 1024
_POSITION_BITS = 32
_POSITIONS = (1 << _POSITION_BITS) - 1


class Neighbours(NamedTuple):
    """n pairs of a sequence of one repertoire and a clone, in the order of the sequences.

    Attributes
    ----------
    rows
        The index of the sequence in its repertoire, (n,) int64.
    clones
        The index of the clone, (n,) int64.
    mismatches
        The number of substitutions between them, 0 or 1, (n,) int64.
    """

    rows: NDArray[np.int64]
    clones: NDArray[np.int64]
    mismatches: NDArray[np.int64]


class _Table(NamedTuple):
    """A hash table of the clones without one residue.

    `clones` (J) are the clones; `slots` (a power of 2,) hold the index of a clone and the position that is left out, or
    -1; `is_filtered` has a bit for every hash that occurs; `has_length` says for each length whether a clone has it.
    """

    clones: SequenceArrays
    slots: NDArray[np.int64]
    is_filtered: NDArray[np.uint64]
    has_length: NDArray[np.bool_]


def find_neighbours(clones: CloneSet, dataset: RepertoireDataset, *, mask: int = 2**64 - 1) -> Iterator[Neighbours]:
    """Yield, for each repertoire, its sequences within one substitution of a clone, on all cores.

    Sequence and clone have the same length, and the same genes where the clones have genes.

    Parameters
    ----------
    clones
        J different clones.
    dataset
        Repertoires of any container; genes are compared by name.
    mask
        The bits of the hash that are used; the result does not depend on it.

    Raises
    ------
    InputError
        If the container lacks genes that count.
    """
    bits = np.uint64(mask)
    return clones.search(dataset, partial(_make_table, mask=bits), partial(_find_all, mask=bits))


def _find_all(sequences: SequenceArrays, start: int, stop: int, table: _Table, *, mask: Any) -> Neighbours:
    capacity = _FIRST_CAPACITY
    while True:
        found = np.empty((3, capacity), np.int64)
        n = _find(sequences, start, stop, table, found, mask)
        if n <= capacity:
            return Neighbours(*found[:, :n])
        capacity = n


def _make_table(clones: SequenceArrays, is_known: NDArray[np.bool_], *, mask: Any) -> _Table:
    lengths = np.diff(clones.offsets)
    n_keys = int(lengths[is_known].sum())
    table = _Table(
        clones,
        np.full(1 << (_SLOTS_PER_KEY * n_keys + 1).bit_length(), -1, np.int64),
        np.zeros(_FILTER_BITS // 64, np.uint64),
        np.bincount(lengths[is_known], minlength=2) > 0,
    )
    _insert(table, np.flatnonzero(is_known), mask)
    return table


@njit(inline="always")
def _mix(z: Any) -> Any:
    z = (z ^ (z >> uint64(30))) * uint64(MIX_1)
    z = (z ^ (z >> uint64(27))) * uint64(MIX_2)
    return z ^ (z >> uint64(31))


@njit(inline="always")
def _at(position: int, residue: Any) -> Any:
    """Return the random bits of a residue at a position; 31 stands for the residue that is left out."""
    return _mix((uint64(position) * uint64(32) + uint64(residue) + uint64(1)) * uint64(GOLDEN))


@njit(nogil=True)
def _hash_whole(sequences: SequenceArrays, row: int) -> Any:
    """Return the exclusive or of the bits of the length, of the genes and of each residue at its position."""
    start, stop = sequences.offsets[row], sequences.offsets[row + 1]
    v = uint64(sequences.v[row]) if len(sequences.v) > 0 else uint64(0)
    j = uint64(sequences.j[row]) if len(sequences.j) > 0 else uint64(0)
    bits = _mix((uint64(stop - start) << uint64(32) | v << uint64(16) | j) * uint64(GOLDEN))
    for i in range(start, stop):
        bits ^= _at(i - start, sequences.residues[i])
    return bits


@njit(nogil=True)
def _insert(table: _Table, rows: NDArray[np.int64], mask: Any) -> None:
    residues, offsets, slots = table.clones.residues, table.clones.offsets, table.slots
    for row in rows:
        whole = _hash_whole(table.clones, row)
        for i in range(offsets[row + 1] - offsets[row]):
            key = _mix(whole ^ _at(i, residues[offsets[row] + i]) ^ _at(i, 31)) & mask
            bit = key % uint64(_FILTER_BITS)
            table.is_filtered[bit >> uint64(6)] |= uint64(1) << (bit & uint64(63))
            slot = np.int64((key >> uint64(20)) % uint64(len(slots)))
            while slots[slot] >= 0:
                slot = (slot + 1) % len(slots)
            slots[slot] = row << _POSITION_BITS | i


@njit(nogil=True)
def _find(sequences: SequenceArrays, start: int, stop: int, table: _Table, found: NDArray[np.int64], mask: Any) -> int:
    """Write the pairs of the sequences from `start` to `stop`, (3, capacity), as far as there is room; return n."""
    n = 0
    slots = table.slots
    for row in range(start, stop):
        first = sequences.offsets[row]
        length = sequences.offsets[row + 1] - first
        if length >= len(table.has_length) or not table.has_length[length]:
            continue
        whole = _hash_whole(sequences, row)
        for i in range(length):
            key = _mix(whole ^ _at(i, sequences.residues[first + i]) ^ _at(i, 31)) & mask
            bit = key % uint64(_FILTER_BITS)
            if not table.is_filtered[bit >> uint64(6)] >> (bit & uint64(63)) & uint64(1):
                continue
            slot = np.int64((key >> uint64(20)) % uint64(len(slots)))
            while slots[slot] >= 0:
                clone, position = slots[slot] >> _POSITION_BITS, slots[slot] & _POSITIONS
                mismatches = _mismatches(sequences, row, table.clones, clone, i) if position == i else 2
                if mismatches == 1 or (mismatches == 0 and i == 0):  # an equal one is met at every position
                    if n < found.shape[1]:
                        found[0, n], found[1, n], found[2, n] = row - start, clone, mismatches
                    n += 1
                slot = (slot + 1) % len(slots)
    return n


@njit(nogil=True)
def _mismatches(a: SequenceArrays, row: int, b: SequenceArrays, clone: int, position: int) -> int:
    """Return 0 if both are equal, 1 if they differ at this position alone, 2 otherwise."""
    first, other = a.offsets[row], b.offsets[clone]
    length = a.offsets[row + 1] - first
    if length != b.offsets[clone + 1] - other:
        return 2
    if len(a.v) > 0 and a.v[row] != b.v[clone]:
        return 2
    if len(a.j) > 0 and a.j[row] != b.j[clone]:
        return 2
    for i in range(length):
        if i != position and a.residues[first + i] != b.residues[other + i]:
            return 2
    return int(a.residues[first + position] != b.residues[other + position])
