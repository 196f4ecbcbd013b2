"""Group the sequences of a cohort by clone: exact, for hundreds of millions of sequences, in little memory.

A clone is a sequence, or a sequence with its genes; wherever it occurs, it is the same clone. The sequences are hashed.
The range of the hashes is cut into equal pieces, and the hashes are sorted piece by piece. Sequences with equal hashes
are then compared letter by letter, so that the result does not depend on the hash.

Letters: B repertoires, N sequences, M clones, E pairs of a clone and a repertoire that carries it.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit, open_threads
from deeprc.datasets.alphabet import compute_offsets, invert_order
from deeprc.datasets.sequence_hash import are_equal, hash_row
from deeprc.datasets.sequences import SequenceArrays
from deeprc.progress import open_step
from deeprc.vectors import prefetch

__all__ = ["AT_ONCE", "Clones", "SequencesInParts", "group_clones"]

AT_ONCE = 1 << 25
"""Number of sequences whose hashes are in memory at once, if nothing else is said."""

_PIECE = 1 << 20  # number of sequences that are sorted at once; they fit a processor's cache
_AHEAD = 16  # number of keys between the request for a sequence's residues and their comparison
_DONE = np.uint64(2**64 - 1)
_ALL_BITS = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class Clones:
    """The clones that at least two repertoires of a container carry, in the order of their first sequences.

    Attributes
    ----------
    representative
        Row of the first sequence of each clone in the container, (M,) int64.
    offsets, repertoires
        Carriers of clone m: repertoires[offsets[m]:offsets[m + 1]] are their rows in the container, rising, each once.
        (M + 1,) int64 and (E,) int32.
    private
        Number of clones that only this repertoire carries, (B,) int64. They are only counted, because they are most of
        all clones, and a single repertoire cannot show an association.
    """

    representative: NDArray[np.int64]
    offsets: NDArray[np.int64]
    repertoires: NDArray[np.int32]
    private: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.representative)

    def count_by_repertoire(self) -> NDArray[np.int64]:
        """Return the number of different clones of each repertoire of the container, (B,), shared or not."""
        return self.private + np.bincount(self.repertoires, minlength=len(self.private))


class SequencesInParts(Protocol):
    """Sequences that are not all in one array, with the genes that count, as compiled code reads them.

    Attributes
    ----------
    bounds
        First sequence of each part, counted through all parts, and the number of all sequences.
    """

    bounds: Sequence[int]

    def view(self, start: int, stop: int) -> SequenceArrays:
        """Return the sequences from `start` to `stop`, counted through all parts, which must lie in one of them."""

    def take(self, rows: NDArray[np.int64]) -> SequenceArrays:
        """Return some of the sequences, at rows (n,) counted through all parts, copied."""


class _KeyLayout(NamedTuple):
    """The layout of the key of a sequence, and the division of the hashes into pieces.

    The upper bits of a key are the lower 64 - `row_bits` bits of the hash, its lower bits are the sequence's row. Only
    the bits of `mask` are used of the hash. `n_pieces` is the number of pieces.
    """

    row_bits: Any
    mask: Any
    n_pieces: int


def group_clones(
    sequences: SequenceArrays | SequencesInParts,
    repertoire_offsets: NDArray[np.int64],
    *,
    at_once: int = AT_ONCE,
    mask: int = int(_ALL_BITS),
) -> Clones:
    """Find the clones that at least two repertoires carry; see `deeprc.datasets.clones.find_shared_clones`.

    Parameters
    ----------
    sequences
        All sequences, with the genes that count, in one piece or in parts.
    repertoire_offsets
        Offsets of the repertoires, (B + 1,): repertoire b has the sequences from repertoire_offsets[b] to
        repertoire_offsets[b + 1].
    at_once
        Number of sequences whose hashes are in memory at once; the result does not depend on it.
    mask
        Bits of the hash that are used; the result does not depend on it.
    """
    bounds_of_parts = [0, len(sequences.offsets) - 1] if isinstance(sequences, SequenceArrays) else sequences.bounds
    n = bounds_of_parts[-1]
    n_pieces = max(1, -(-n // min(_PIECE, at_once)))
    pieces_of_pass = n_pieces if at_once >= n else max(1, at_once // _PIECE)
    chunks = list(pairwise(sorted({*range(0, n, _PIECE), *bounds_of_parts}))) or [(0, 0)]

    def view(start: int, stop: int) -> tuple[SequenceArrays, int]:
        """Return arrays that hold the sequences from `start` to `stop`, and the row of their first sequence."""
        return (sequences, 0) if isinstance(sequences, SequenceArrays) else (sequences.view(start, stop), start)

    layout = _KeyLayout(uint64(n.bit_length()), np.uint64(mask), n_pieces)
    size = len(chunks) * (1 + -(-n_pieces // pieces_of_pass)) + n_pieces
    with (
        open_threads() as threads,
        open_step("finding clones that repertoires share", size) as step,
    ):
        # The counts say where in a piece the keys of each chunk belong, so no thread waits for another.
        def count(chunk: tuple[int, int]) -> NDArray[np.int64]:
            arrays, first = view(*chunk)
            return np.asarray(_count_keys(arrays, chunk[0] - first, chunk[1] - first, layout))

        counted = threads.map(count, chunks)
        counts = np.array([*step.follow(counted)], np.int64)
        parts = []
        for first in range(0, n_pieces, pieces_of_pass):
            block = counts.reshape(len(chunks), n_pieces)[:, first : first + pieces_of_pass]
            offsets = compute_offsets(block.sum(axis=0))
            # position of the first key of each chunk in each piece
            targets = offsets[:-1] + np.cumsum(block, axis=0) - block
            keys = np.empty(int(offsets[-1]), np.uint64)

            def write(chunk: tuple[int, int], target: NDArray[np.int64], keys: Any = keys, first: int = first) -> None:
                arrays, shift = view(*chunk)
                _write_keys(arrays, chunk[0] - shift, chunk[1] - shift, shift, layout, first, target.copy(), keys)

            list(step.follow(threads.map(write, chunks, targets)))
            pieces = [keys[start:stop] for start, stop in pairwise(offsets.tolist())]
            list(threads.map(np.ndarray.sort, pieces))
            compared = _take_compared(sequences, pieces, layout.row_bits, threads)
            group = partial(_group_keys, compared.sequences, repertoire_offsets, layout.row_bits)
            parts += list(step.follow(threads.map(group, pieces, compared.first_places)))
    return _join_parts(parts, len(repertoire_offsets) - 1)


_Part = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32], NDArray[np.int64]]


class _Compared(NamedTuple):
    """The sequences among which those with equal keys are compared.

    Attributes
    ----------
    sequences
        All sequences, or only those whose keys are not alone, in the order of the keys.
    first_places
        Position among them of the first one of each piece, or -1 if they are all sequences.
    """

    sequences: SequenceArrays
    first_places: list[int]


def _take_compared(
    sequences: SequenceArrays | SequencesInParts,
    pieces: Sequence[NDArray[np.uint64]],
    row_bits: Any,
    threads: ThreadPoolExecutor,
) -> _Compared:
    """Return the sequences to compare; if they lie in parts, they are taken together, which takes each part once."""
    if isinstance(sequences, SequenceArrays):
        return _Compared(sequences, [-1] * len(pieces))
    mask = (np.uint64(1) << row_bits) - np.uint64(1)
    rows = list(threads.map(lambda keys: (keys[_find_equal(keys, row_bits)] & mask).astype(np.int64), pieces))
    firsts = compute_offsets(np.array([len(each) for each in rows], np.int64))[:-1]
    return _Compared(sequences.take(np.concatenate(rows)), firsts.tolist())


def _find_equal(keys: NDArray[np.uint64], row_bits: Any) -> NDArray[np.bool_]:
    """Return whether each of some sorted keys has the same hash as a neighbour, (n,)."""
    same = keys[1:] >> row_bits == keys[:-1] >> row_bits
    found = np.zeros(len(keys), np.bool_)
    found[1:] |= same
    found[:-1] |= same
    return found


def _group_keys(
    sequences: SequenceArrays,
    repertoire_offsets: NDArray[np.int64],
    row_bits: Any,
    keys: NDArray[np.uint64],
    first_place: int,
) -> _Part:
    """Return the shared clones of sorted keys: first sequences, numbers of carriers, carriers; and private clones.

    `sequences` and `first_place` are those of `_Compared`.
    """
    n, places = len(keys), np.zeros(0, np.int64)
    if first_place >= 0:
        places = first_place + np.cumsum(_find_equal(keys, row_bits)) - 1
    representative, sizes, carriers = np.empty(n // 2, np.int64), np.empty(n // 2, np.int32), np.empty(n, np.int32)
    private = np.zeros(len(repertoire_offsets) - 1, np.int64)
    n_clones, n_carriers = _group(
        sequences, places, repertoire_offsets, keys, row_bits, representative, sizes, carriers, private
    )
    return representative[:n_clones].copy(), sizes[:n_clones].copy(), carriers[:n_carriers].copy(), private


def _join_parts(parts: list[_Part], n_repertoires: int) -> Clones:
    """Order the clones of all pieces by their first sequences; the pieces are freed one by one."""
    representative = np.concatenate([np.zeros(0, np.int64), *(part[0] for part in parts)])
    order = np.argsort(representative)
    position = invert_order(order)
    sizes = np.concatenate([np.zeros(0, np.int64), *(part[1] for part in parts)])
    offsets = compute_offsets(sizes[order])
    repertoires = np.empty(int(offsets[-1]), np.int32)
    private = np.zeros(n_repertoires, np.int64)
    last = len(order)
    while parts:
        _, n_carriers, carriers, alone = parts.pop()
        private += alone
        _copy_carriers(position[last - len(n_carriers) : last], offsets, n_carriers, carriers, repertoires)
        last -= len(n_carriers)
    return Clones(representative[order], offsets, repertoires, private)


@njit(nogil=True)
def _assign_piece(value: Any, n_pieces: int) -> Any:
    """Return the piece in which a hash is."""
    return np.int64(((value >> uint64(32)) * uint64(n_pieces)) >> uint64(32))


@njit(nogil=True)
def _count_keys(sequences: SequenceArrays, start: int, stop: int, layout: _KeyLayout) -> NDArray[np.int64]:
    """Count the sequences from `start` to `stop` in each piece of the hashes."""
    counts = np.zeros(layout.n_pieces, np.int64)
    for row in range(start, stop):
        counts[_assign_piece(hash_row(sequences, row) & layout.mask, layout.n_pieces)] += 1
    return counts


@njit(nogil=True)
def _write_keys(
    sequences: SequenceArrays,
    start: int,
    stop: int,
    first_row: int,
    layout: _KeyLayout,
    first_piece: int,
    targets: NDArray[np.int64],
    keys: NDArray[np.uint64],
) -> None:
    """Write the keys of the sequences from `start` to `stop` whose hashes are in one of the pieces.

    The pieces start at `first_piece`. The next key of each piece is written at its target, which then moves on by one.
    `first_row` is the row of the first sequence of the arrays.
    """
    for row in range(start, stop):
        value = hash_row(sequences, row) & layout.mask
        piece = _assign_piece(value, layout.n_pieces) - first_piece
        if 0 <= piece < len(targets):
            keys[targets[piece]] = (value << layout.row_bits) | uint64(first_row + row)
            targets[piece] += 1


@njit(nogil=True)
def _group(
    sequences: SequenceArrays,
    places: NDArray[np.int64],
    repertoire_offsets: NDArray[np.int64],
    keys: NDArray[np.uint64],
    row_bits: Any,
    representative: NDArray[np.int64],
    sizes: NDArray[np.int32],
    carriers: NDArray[np.int32],
    private: NDArray[np.int64],
) -> tuple[int, int]:
    """Write the arrays of `_group_keys`; return the number of shared clones, and of the carriers of all of them.

    Keys with equal hashes lie together, in the order of their sequences. `places` has the position of each key's
    sequence, (n,); if it is empty, the position is the key's row. The keys are changed. Arrays are made by the caller,
    because their functions take longer to compile than this one.
    """
    n = len(keys)
    row_mask = (uint64(1) << row_bits) - uint64(1)
    n_clones = n_carriers = 0
    start = 0
    while start < n:
        stop = start + 1
        while stop < n and keys[stop] >> row_bits == keys[start] >> row_bits:
            stop += 1
        for one in range(start, stop):
            _prefetch_later_keys(sequences, places, keys, one, row_bits)
            if keys[one] == _DONE:
                continue
            row = np.int64(keys[one] & row_mask)
            last = np.searchsorted(repertoire_offsets, row, side="right") - 1
            end = n_carriers + 1
            carriers[n_carriers] = last
            for other in range(one + 1, stop):
                if keys[other] != _DONE:
                    again = np.int64(keys[other] & row_mask)
                    at = (places[one], places[other]) if len(places) > 0 else (row, again)
                    if are_equal(sequences, at[0], sequences, at[1]):
                        keys[other] = _DONE
                        if again >= repertoire_offsets[last + 1]:
                            last = np.searchsorted(repertoire_offsets, again, side="right") - 1
                            carriers[end] = last
                            end += 1
            if end - n_carriers > 1:
                representative[n_clones], sizes[n_clones] = row, end - n_carriers
                n_clones += 1
                n_carriers = end
            else:
                private[last] += 1
        start = stop
    return n_clones, n_carriers


@njit(inline="always")
def _prefetch_later_keys(
    sequences: SequenceArrays, places: NDArray[np.int64], keys: NDArray[np.uint64], at: Any, row_bits: Any
) -> None:
    """Fetch what the comparison of later keys reads, because sequences of equal keys lie far from each other.

    Of the key after twice `_AHEAD` others the offset and the genes are fetched, of the one after `_AHEAD` others its
    residues, whose place is known by then.
    """
    for ahead in (2 * _AHEAD, _AHEAD):
        one = at + ahead
        if one + 1 < len(keys) and keys[one] != _DONE:
            hashed = keys[one] >> row_bits
            if hashed == keys[one - 1] >> row_bits or hashed == keys[one + 1] >> row_bits:
                row = np.int64(keys[one] & ((uint64(1) << row_bits) - uint64(1)))
                if len(places) > 0:
                    row = places[one]
                if ahead == _AHEAD:
                    prefetch(sequences.residues, sequences.offsets[row])
                else:
                    prefetch(sequences.offsets, row)
                    if len(sequences.v) > 0:
                        prefetch(sequences.v, row)
                    if len(sequences.j) > 0:
                        prefetch(sequences.j, row)


@njit(nogil=True)
def _copy_carriers(
    position: NDArray[np.int64],
    offsets: NDArray[np.int64],
    sizes: NDArray[np.int32],
    carriers: NDArray[np.int32],
    repertoires: NDArray[np.int32],
) -> None:
    """Copy the carriers of clones, which lie end to end, to the places of the clones at these positions."""
    start = 0
    for clone in range(len(sizes)):
        target = offsets[position[clone]]
        for i in range(sizes[clone]):
            repertoires[target + i] = carriers[start + i]
        start += sizes[clone]
