"""The compiled loops of `grouping`: write the keys of sequences, and find the clones of sorted keys.

Letters: B repertoires, K hash ranges, n keys of one hash range.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.sequence_hash import are_equal, hash_row
from deeprc.datasets.sequences import SequenceArrays
from deeprc.vectors import prefetch

__all__ = [
    "KeyLayout",
    "KeyedSequences",
    "RangeClones",
    "copy_carriers",
    "count_keys",
    "group_keys",
    "write_keys",
]

_AHEAD = 16  # number of keys between the request for a sequence's residues and their comparison
_DONE = np.uint64(2**64 - 1)  # replaces a key whose clone is known; no row has 1 in all its bits, so no key is equal


class KeyLayout(NamedTuple):
    """The layout of the key of a sequence, and the division of the hashes into ranges.

    A key is (hash & mask) << row_bits | row, in 64 bits, where `row` is the index of the sequence among those of all
    repertoires. So sorted keys are in the order of their hashes, and keys of one hash in the order of their rows.

    Attributes
    ----------
    row_bits
        Number of bits of the row, uint64.
    mask
        Bits of the hash that the key holds, at most 64 - `row_bits`, uint64.
    n_ranges
        Number of hash ranges, K.
    """

    row_bits: Any
    mask: Any
    n_ranges: int


class KeyedSequences(NamedTuple):
    """The sequences of n keys.

    Attributes
    ----------
    arrays
        Sequences, with the genes of the clone definition.
    positions
        Index of the sequence of each key in the arrays, (n,); (0,) if it is the key's row.
    """

    arrays: SequenceArrays
    positions: NDArray[np.int64]


class RangeClones(NamedTuple):
    """The clones whose hashes are in one hash range.

    Attributes
    ----------
    representative
        Row of the first sequence of each shared clone, (clones,).
    n_carriers
        Number of repertoires that carry each shared clone, (clones,).
    carriers
        Indices of these repertoires, clone after clone.
    n_private
        Number of clones that only this repertoire carries, (B,).
    """

    representative: NDArray[np.int64]
    n_carriers: NDArray[np.int32]
    carriers: NDArray[np.int32]
    n_private: NDArray[np.int64]


@njit(nogil=True)
def _find_range(value: Any, n_ranges: int) -> Any:
    """Return the index of the hash range in which a hash is."""
    return np.int64(((value >> uint64(32)) * uint64(n_ranges)) >> uint64(32))


@njit(nogil=True)
def count_keys(sequences: SequenceArrays, start: int, stop: int, layout: KeyLayout) -> NDArray[np.int64]:
    """Count the sequences from `start` to `stop` in each hash range."""
    counts = np.zeros(layout.n_ranges, np.int64)
    for row in range(start, stop):
        counts[_find_range(hash_row(sequences, row) & layout.mask, layout.n_ranges)] += 1
    return counts


@njit(nogil=True)
def write_keys(
    sequences: SequenceArrays,
    start: int,
    stop: int,
    first_row: int,
    layout: KeyLayout,
    first_range: int,
    targets: NDArray[np.int64],
    keys: NDArray[np.uint64],
) -> None:
    """Write the keys of the sequences from `start` to `stop` whose hashes are in some hash ranges.

    Parameters
    ----------
    sequences, start, stop
        The sequences.
    first_row
        Row of the first sequence of the arrays.
    layout
        Layout of the keys.
    first_range
        Index of the first of the hash ranges.
    targets
        For each of the hash ranges, where its next key is written; it then moves on by one.
    keys
        The keys that are written.
    """
    for row in range(start, stop):
        value = hash_row(sequences, row) & layout.mask
        index = _find_range(value, layout.n_ranges) - first_range
        if 0 <= index < len(targets):
            keys[targets[index]] = (value << layout.row_bits) | uint64(first_row + row)
            targets[index] += 1


@njit(nogil=True)
def group_keys(
    sequences: KeyedSequences,
    repertoire_offsets: NDArray[np.int64],
    keys: NDArray[np.uint64],
    row_bits: Any,
    buffers: RangeClones,
) -> tuple[int, int]:
    """Write the clones of sorted keys; return the number of shared clones, and of the carriers of all of them.

    Different sequences may have one hash. So the first key of a hash begins a clone, which gets all keys of equal
    sequences. The first of the remaining keys begins the next clone, and so on.

    Parameters
    ----------
    sequences
        Sequences of the keys.
    repertoire_offsets
        Bounds of the repertoires among the rows, (B + 1,).
    keys
        Sorted keys, (n,); they are overwritten.
    row_bits
        Number of bits of a key that hold the row, see `KeyLayout`.
    buffers
        Arrays that are long enough for all clones, with `n_private` 0. The caller makes them, because the functions
        that make arrays take longer to compile than this one.
    """
    n_clones = n_carriers = 0  # of shared clones
    start = 0
    while start < len(keys):
        stop = _find_end_of_hash(keys, start, row_bits)
        for first in range(start, stop):
            _prefetch_later_keys(sequences, keys, first, row_bits)
            if keys[first] == _DONE:
                continue
            row = _get_row(keys[first], row_bits)
            end = _take_clone(sequences, repertoire_offsets, keys, first, stop, row_bits, buffers.carriers, n_carriers)
            if end - n_carriers == 1:
                buffers.n_private[buffers.carriers[n_carriers]] += 1  # its carrier is overwritten
            else:
                buffers.representative[n_clones], buffers.n_carriers[n_clones] = row, end - n_carriers
                n_clones += 1
                n_carriers = end
        start = stop
    return n_clones, n_carriers


@njit(nogil=True)
def _find_end_of_hash(keys: NDArray[np.uint64], start: int, row_bits: Any) -> int:
    """Return the index after the last key that has the same hash as the key at `start`."""
    stop = start + 1
    while stop < len(keys) and keys[stop] >> row_bits == keys[start] >> row_bits:
        stop += 1
    return stop


@njit(nogil=True)
def _take_clone(
    sequences: KeyedSequences,
    repertoire_offsets: NDArray[np.int64],
    keys: NDArray[np.uint64],
    first: int,
    stop: int,
    row_bits: Any,
    carriers: NDArray[np.int32],
    begin: int,
) -> int:
    """Write the indices of the repertoires that carry the clone of the key at `first` to carriers[begin:end].

    The keys from `first` to `stop` have one hash. Those of the clone, except the first, become `_DONE`. Return `end`.
    """
    arrays = sequences.arrays
    carrier = _find_repertoire(_get_row(keys[first], row_bits), repertoire_offsets)
    carriers[begin] = carrier
    end = begin + 1
    first_position = _get_position(sequences, keys, first, row_bits)
    for other in range(first + 1, stop):
        if keys[other] == _DONE:
            continue
        if not are_equal(arrays, first_position, arrays, _get_position(sequences, keys, other, row_bits)):
            continue
        row = _get_row(keys[other], row_bits)
        keys[other] = _DONE
        if row >= repertoire_offsets[carrier + 1]:  # rows ascend, so the next carrier is a later repertoire
            carrier = _find_repertoire(row, repertoire_offsets)
            carriers[end] = carrier
            end += 1
    return end


@njit(inline="always")
def _get_row(key: Any, row_bits: Any) -> Any:
    """Return the row that a key holds."""
    return np.int64(key & ((uint64(1) << row_bits) - uint64(1)))


@njit(inline="always")
def _get_position(sequences: KeyedSequences, keys: NDArray[np.uint64], index: Any, row_bits: Any) -> Any:
    """Return the index in the arrays of the sequence of the key at `index`."""
    return sequences.positions[index] if len(sequences.positions) > 0 else _get_row(keys[index], row_bits)


@njit(nogil=True)
def _find_repertoire(row: int, repertoire_offsets: NDArray[np.int64]) -> int:
    """Return the index of the repertoire that has a row; numpy's `searchsorted` takes longer to compile."""
    low, high = 0, len(repertoire_offsets)
    while low < high:
        middle = (low + high) >> 1
        if repertoire_offsets[middle] <= row:
            low = middle + 1
        else:
            high = middle
    return low - 1


@njit(inline="always")
def _prefetch_later_keys(sequences: KeyedSequences, keys: NDArray[np.uint64], current: Any, row_bits: Any) -> None:
    """Load the sequences of later keys into the cache of the processor, because they lie far from each other.

    The offset and the genes of the key 2 `_AHEAD` keys later are fetched. When it is only `_AHEAD` keys away, its
    residues are fetched: where they lie is known by then. A key whose hash no other key has is never compared.
    """
    arrays = sequences.arrays
    for ahead in (2 * _AHEAD, _AHEAD):
        later = current + ahead
        if later + 1 < len(keys) and keys[later] != _DONE:
            later_hash = keys[later] >> row_bits
            if later_hash == keys[later - 1] >> row_bits or later_hash == keys[later + 1] >> row_bits:
                position = _get_position(sequences, keys, later, row_bits)
                if ahead == _AHEAD:
                    prefetch(arrays.residues, arrays.offsets[position])
                else:
                    prefetch(arrays.offsets, position)
                    if len(arrays.v) > 0:
                        prefetch(arrays.v, position)
                    if len(arrays.j) > 0:
                        prefetch(arrays.j, position)


@njit(nogil=True)
def copy_carriers(
    index: NDArray[np.int64],
    offsets: NDArray[np.int64],
    n_carriers: NDArray[np.int32],
    carriers: NDArray[np.int32],
    target: NDArray[np.int32],
) -> None:
    """Copy the carriers of the clones of one hash range to their places among the carriers of all clones.

    Parameters
    ----------
    index
        Index of each clone of the range among all clones, (n,).
    offsets
        Bounds of the carriers of each of all clones in `target`.
    n_carriers, carriers
        Number of carriers of each clone of the range, (n,), and the carriers, clone after clone.
    target
        Carriers of all clones, clone after clone.
    """
    start = 0
    for clone in range(len(n_carriers)):
        first = offsets[index[clone]]
        for i in range(n_carriers[clone]):
            target[first + i] = carriers[start + i]
        start += n_carriers[clone]
