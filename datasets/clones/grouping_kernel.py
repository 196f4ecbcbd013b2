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
_DONE = np.uint64(2**64 - 1)  # no key has this value, because no row has 1 in all its bits


class KeyLayout(NamedTuple):
    """The layout of the key of a sequence, and the division of the hashes into ranges.

    The upper bits of a key are the lower 64 - `row_bits` bits of the hash, its lower bits are the sequence's row. Only
    the bits of `mask` are used of the hash. `n_ranges` is the number of hash ranges, K.
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
        Position of the sequence of each key in the arrays, (n,); (0,) if it is the key's row.
    """

    arrays: SequenceArrays
    positions: NDArray[np.int64]


class RangeClones(NamedTuple):
    """The clones whose hashes are in one hash range.

    Attributes
    ----------
    representative
        Row of the first sequence of each shared clone.
    n_carriers
        Number of repertoires that carry each shared clone.
    carriers
        Rows of these repertoires, clone after clone.
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

    Keys with equal hashes lie together, in the order of their sequences. For each key that has no clone yet, the keys
    with the same hash that follow it are compared with it; those of equal sequences become `_DONE`. The caller makes
    the arrays of `buffers`, because the functions that make arrays take longer to compile than this one.
    """
    arrays, positions = sequences.arrays, sequences.positions
    representative, carriers = buffers.representative, buffers.carriers
    n = len(keys)
    row_mask = (uint64(1) << row_bits) - uint64(1)
    n_clones = n_carriers = 0
    start = 0
    while start < n:
        stop = start + 1
        while stop < n and keys[stop] >> row_bits == keys[start] >> row_bits:
            stop += 1
        for first in range(start, stop):  # the first key of a clone, unless it is done
            _prefetch_later_keys(sequences, keys, first, row_bits)
            if keys[first] == _DONE:
                continue
            row = np.int64(keys[first] & row_mask)
            last_carrier = _find_repertoire(row, repertoire_offsets)
            carriers_stop = n_carriers + 1
            carriers[n_carriers] = last_carrier
            for other in range(first + 1, stop):
                if keys[other] != _DONE:
                    other_row = np.int64(keys[other] & row_mask)
                    pair = (positions[first], positions[other]) if len(positions) > 0 else (row, other_row)
                    if are_equal(arrays, pair[0], arrays, pair[1]):
                        keys[other] = _DONE
                        if other_row >= repertoire_offsets[last_carrier + 1]:
                            last_carrier = _find_repertoire(other_row, repertoire_offsets)
                            carriers[carriers_stop] = last_carrier
                            carriers_stop += 1
            if carriers_stop - n_carriers > 1:
                representative[n_clones], buffers.n_carriers[n_clones] = row, carriers_stop - n_carriers
                n_clones += 1
                n_carriers = carriers_stop
            else:
                buffers.n_private[last_carrier] += 1
        start = stop
    return n_clones, n_carriers


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
def _prefetch_later_keys(sequences: KeyedSequences, keys: NDArray[np.uint64], at: Any, row_bits: Any) -> None:
    """Load the sequences of later keys into the cache of the processor, because they lie far from each other.

    Of the key after twice `_AHEAD` others the offset and the genes are fetched, of the one after `_AHEAD` others its
    residues: where they lie is known by then.
    """
    arrays, positions = sequences.arrays, sequences.positions
    for ahead in (2 * _AHEAD, _AHEAD):
        later = at + ahead
        if later + 1 < len(keys) and keys[later] != _DONE:
            hashed = keys[later] >> row_bits
            if hashed == keys[later - 1] >> row_bits or hashed == keys[later + 1] >> row_bits:
                row = np.int64(keys[later] & ((uint64(1) << row_bits) - uint64(1)))
                if len(positions) > 0:
                    row = positions[later]
                if ahead == _AHEAD:
                    prefetch(arrays.residues, arrays.offsets[row])
                else:
                    prefetch(arrays.offsets, row)
                    if len(arrays.v) > 0:
                        prefetch(arrays.v, row)
                    if len(arrays.j) > 0:
                        prefetch(arrays.j, row)


@njit(nogil=True)
def copy_carriers(
    position: NDArray[np.int64],
    offsets: NDArray[np.int64],
    n_carriers: NDArray[np.int32],
    carriers: NDArray[np.int32],
    target: NDArray[np.int32],
) -> None:
    """Copy the carriers of some clones, (n,), to their places among the carriers of all clones.

    `position` is the index of each clone among all clones, whose carriers have these offsets in `target`.
    """
    start = 0
    for clone in range(len(n_carriers)):
        first = offsets[position[clone]]
        for i in range(n_carriers[clone]):
            target[first + i] = carriers[start + i]
        start += n_carriers[clone]
