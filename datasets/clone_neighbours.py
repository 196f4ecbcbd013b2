"""Which sequences of a repertoire are one of some clones, or differ from one by a single substitution.

Each clone is put into a hash table; a clone whose neighbours count is put there once more for every position, without
the residue at this position. A sequence is looked up in the same way, so a substitution at any position finds the
clone. Hashes only propose: the residues are compared.

The hash is Zobrist's: the exclusive or of random bits of each residue at its position. To leave a residue out, its bits
are exchanged for others, so the keys of all positions cost a look-up each.

Letters: J clones, L residues of a clone, N sequences of a repertoire, n pairs of a sequence and a clone.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numba
import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.clone_set import CloneSet, CloneTables
from deeprc.datasets.counters import GOLDEN, MIX_1, MIX_2, words
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.sequences import SequenceArrays

__all__ = ["NeighbourSearch", "Neighbours", "find_neighbours"]

_ALL_BITS = 2**64 - 1
_CODES = 32  # of residues; the last one stands for a residue that is left out
_SLOTS_PER_KEY = 2
_FILTER_BITS_PER_KEY = 16
_MIN_FILTER_BITS, _MAX_FILTER_BITS = 1 << 15, 1 << 23  # 1 MB: it stays in the processor's cache, and refuses most keys
_SHAPES = 1 << 14
_POSITION_BITS = 32
_POSITIONS = (1 << _POSITION_BITS) - 1
_CAPACITY = 1 << 12
_CHUNK = 1 << 12  # sequences that one thread searches at a time


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
    """A hash table of the clones, and of those with neighbours without one residue.

    `clones` (J) are the clones; `slots` (a power of 2,) hold the index of a clone and the position that is left out,
    counted from 1, or 0 for the whole clone; -1 is an empty slot. `is_filtered` has a bit for every hash that occurs.
    `shapes` says, by a hash of length and genes, whether a clone has them (bit 0), and one with neighbours (bit 1).
    `bits` are those of each residue at each position, and `exchanged` what leaves it out, (largest length, 32) each.
    """

    clones: SequenceArrays
    slots: NDArray[np.int64]
    is_filtered: NDArray[np.uint64]
    shapes: NDArray[np.uint8]
    bits: NDArray[np.uint64]
    exchanged: NDArray[np.uint64]


class NeighbourSearch:
    """Finds sequences that are one of some clones, or within one substitution of one.

    Sequence and clone have the same length, and the same genes where the clones have genes. The tables that a search
    needs are made once.

    Parameters
    ----------
    clones
        J different clones.
    has_neighbours
        Whether sequences with one substitution count for a clone, (J,); None: for all.
    mask
        The bits of the hash that are used; the result does not depend on it.
    """

    def __init__(
        self, clones: CloneSet, has_neighbours: NDArray[np.bool_] | None = None, *, mask: int = _ALL_BITS
    ) -> None:
        near = np.ones(len(clones), bool) if has_neighbours is None else has_neighbours
        self.clones, self._mask = clones, np.uint64(mask)
        self.make_table = partial(_make_table, near=near, mask=self._mask)
        self._tables = CloneTables(clones, self.make_table)

    def find_in(self, repertoire: Repertoire) -> Neighbours:
        """Return the pairs of one repertoire's sequences with clones, searched on all cores.

        Raises
        ------
        InputError
            If the repertoire's container lacks genes that count.
        """
        sequences, table = self._tables.arrays_and_table(repertoire)
        bounds = list(pairwise([*range(repertoire.start, repertoire.stop, _CHUNK), repertoire.stop]))
        if len(bounds) < 2:
            return self.find(sequences, table, repertoire.start, repertoire.stop)
        with ThreadPoolExecutor(numba.get_num_threads()) as threads:
            parts = list(threads.map(lambda part: self.find(sequences, table, *part), bounds))
        rows = [part.rows + start - repertoire.start for part, (start, _) in zip(parts, bounds, strict=True)]
        columns = zip(*((row, *part[1:]) for row, part in zip(rows, parts, strict=True)), strict=True)
        return Neighbours(*(np.concatenate(column) for column in columns))

    def find(self, sequences: SequenceArrays, table: _Table, start: int, stop: int) -> Neighbours:
        """Return the pairs of the sequences from `start` to `stop`; their rows count from `start`."""
        parts, row, capacity = [], start, _CAPACITY
        while True:
            found = np.empty((3, capacity), np.int64)
            n, row = _find(sequences, start, row, stop, table, found, self._mask)
            parts.append(found[:, :n])
            if row == stop:
                return Neighbours(*(parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)))
            capacity *= 4


def find_neighbours(
    clones: CloneSet,
    dataset: RepertoireDataset,
    has_neighbours: NDArray[np.bool_] | None = None,
    *,
    mask: int = _ALL_BITS,
) -> Iterator[Neighbours]:
    """Yield, for each repertoire, its sequences within one substitution of a clone, on all cores.

    Parameters
    ----------
    clones, has_neighbours, mask
        See `NeighbourSearch`.
    dataset
        Repertoires of any container; genes are compared by name.

    Raises
    ------
    InputError
        If the container lacks genes that count.
    """
    search = NeighbourSearch(clones, has_neighbours, mask=mask)
    return clones.search(dataset, search.make_table, search.find)


def _make_table(clones: SequenceArrays, is_known: NDArray[np.bool_], *, near: NDArray[np.bool_], mask: Any) -> _Table:
    lengths = np.diff(clones.offsets)
    n_keys = int((lengths * near + 1)[is_known].sum())
    n_bits = 1 << (_FILTER_BITS_PER_KEY * n_keys).bit_length()
    bits = words(0, np.arange(max(1, lengths.max(initial=0)) * _CODES)).reshape(-1, _CODES)
    table = _Table(
        clones,
        np.full(1 << (_SLOTS_PER_KEY * n_keys).bit_length(), -1, np.int64),
        np.zeros(min(max(n_bits, _MIN_FILTER_BITS), _MAX_FILTER_BITS) // 64, np.uint64),
        np.zeros(_SHAPES, np.uint8),
        bits,
        bits ^ bits[:, -1:],
    )
    _insert(table, np.flatnonzero(is_known), near, mask)
    return table


@njit(inline="always")
def _mix(z: Any) -> Any:
    z = (z ^ (z >> uint64(30))) * uint64(MIX_1)
    z = (z ^ (z >> uint64(27))) * uint64(MIX_2)
    return z ^ (z >> uint64(31))


@njit(inline="always")
def _shape_bits(sequences: SequenceArrays, row: int, length: int) -> Any:
    """Return the random bits of a sequence's length and genes."""
    v = uint64(sequences.v[row]) if len(sequences.v) > 0 else uint64(0)
    j = uint64(sequences.j[row]) if len(sequences.j) > 0 else uint64(0)
    return _mix(((uint64(length) << uint64(32) | v << uint64(16) | j) + uint64(1)) * uint64(GOLDEN))


@njit(inline="always")
def _filter_bit(key: Any, is_filtered: NDArray[np.uint64]) -> tuple[Any, Any]:
    """Return the word of the filter, and the bit in it, that belong to a key."""
    return (key >> uint64(6)) & uint64(len(is_filtered) - 1), uint64(1) << (key & uint64(63))


@njit(nogil=True)
def _insert_key(table: _Table, key: Any, row: int, position: int) -> None:
    slots = table.slots
    word, bit = _filter_bit(key, table.is_filtered)
    table.is_filtered[word] |= bit
    slot = np.int64((key >> uint64(24)) & uint64(len(slots) - 1))
    while slots[slot] >= 0:
        slot = (slot + 1) & (len(slots) - 1)
    slots[slot] = row << _POSITION_BITS | position


@njit(nogil=True)
def _insert(table: _Table, rows: NDArray[np.int64], near: NDArray[np.bool_], mask: Any) -> None:
    residues, offsets = table.clones.residues, table.clones.offsets
    for row in rows:
        first, length = offsets[row], offsets[row + 1] - offsets[row]
        whole = _shape_bits(table.clones, row, length)
        table.shapes[whole & uint64(_SHAPES - 1)] |= 3 if near[row] else 1
        for i in range(length):
            whole ^= table.bits[i, residues[first + i]]
        _insert_key(table, whole & mask, row, 0)
        if near[row]:
            for i in range(length):
                _insert_key(table, (whole ^ table.exchanged[i, residues[first + i]]) & mask, row, i + 1)


@njit(nogil=True)
def _find(
    sequences: SequenceArrays, start: int, row: int, stop: int, table: _Table, found: NDArray[np.int64], mask: Any
) -> tuple[int, int]:
    """Write the pairs of the sequences from `row` on, (3, capacity); their rows count from `start`.

    Returns
    -------
    tuple
        The number of pairs, and the row from which to go on: the first one whose pairs have no room, or `stop`.
    """
    residues, offsets = sequences.residues, sequences.offsets
    shapes, bits, exchanged, is_filtered = table.shapes, table.bits, table.exchanged, table.is_filtered
    n = 0
    while row < stop:
        first = offsets[row]
        length = offsets[row + 1] - first
        whole = _shape_bits(sequences, row, length)
        shape = shapes[whole & uint64(_SHAPES - 1)]
        if shape > 0 and length <= len(bits):
            before = n
            for i in range(length):
                whole ^= bits[i, residues[first + i]]
            key = whole & mask
            word, bit = _filter_bit(key, is_filtered)
            if is_filtered[word] & bit:
                n = _look_up(sequences, row, table, key, 0, found, n, start)
            if shape > 1:
                for i in range(length):
                    key = (whole ^ exchanged[i, residues[first + i]]) & mask
                    word, bit = _filter_bit(key, is_filtered)
                    if is_filtered[word] & bit:
                        n = _look_up(sequences, row, table, key, i + 1, found, n, start)
            if n > found.shape[1]:
                return before, row
        row += 1
    return n, row


@njit(nogil=True)
def _look_up(
    sequences: SequenceArrays,
    row: int,
    table: _Table,
    key: Any,
    position: int,
    found: NDArray[np.int64],
    n: int,
    start: int,
) -> int:
    """Write the clones that a sequence meets by the key of one position, from 1, or of the whole: 0; return n."""
    slots, mismatches = table.slots, min(position, 1)
    slot = np.int64((key >> uint64(24)) & uint64(len(slots) - 1))
    while slots[slot] >= 0:
        clone = slots[slot] >> _POSITION_BITS
        if slots[slot] & _POSITIONS == position and _differ_at(sequences, row, table.clones, clone, position - 1):
            if n < found.shape[1]:
                found[0, n], found[1, n], found[2, n] = row - start, clone, mismatches
            n += 1
        slot = (slot + 1) & (len(slots) - 1)
    return n


@njit(nogil=True)
def _differ_at(a: SequenceArrays, row: int, b: SequenceArrays, clone: int, position: int) -> bool:
    """Return whether both differ at this position and nowhere else; -1: whether they are equal."""
    first, other = a.offsets[row], b.offsets[clone]
    length = a.offsets[row + 1] - first
    if length != b.offsets[clone + 1] - other:
        return False
    if len(a.v) > 0 and a.v[row] != b.v[clone]:
        return False
    if len(a.j) > 0 and a.j[row] != b.j[clone]:
        return False
    for i in range(length):  # noqa: SIM110 (compiled)
        if (a.residues[first + i] != b.residues[other + i]) != (i == position):
            return False
    return True
