"""Find the sequences of a repertoire that equal a clone, or differ from one by substitutions that its match allows.

Each clone is put into a hash table. A clone that is also matched with one substitution is put there again for every
position, without the residue at this position. A clone with a wildcard is put there again without the residue at the
wildcard. A sequence is looked up in the same way, so it finds a clone from which it differs at any one position. Equal
hashes are only candidates: the residues are compared.

Most sequences need no look-up of every position. A substitution leaves either the residues at even positions or those
at odd positions unchanged. So a sequence that shares neither half with a clone differs from it by more than one
substitution.

Clones that are matched with several substitutions are not in the hash table: a sequence is compared with each of them
that has its length and genes.

Letters: J clones, L residues of a clone, N sequences of a repertoire, n pairs of a sequence and a clone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit, run_in_blocks
from deeprc.datasets.clones.clone_set import CloneSet, CloneTables
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.sequence_hash import (
    NO_POSITION,
    count_mismatches,
    differ_only_at,
    hash_halves,
    hash_length_and_genes,
    hash_lengths_and_genes,
    leave_out,
)
from deeprc.datasets.sequences import SequenceArrays

__all__ = ["EXACT", "ONE_SUBSTITUTION", "SUBSTITUTIONS", "WILDCARD", "NeighbourSearch", "Neighbours", "find_neighbours"]

EXACT, ONE_SUBSTITUTION, WILDCARD, SUBSTITUTIONS = 0, 1, 2, 1 << 18
"""Match of a clone: exact, also with one substitution, or, for WILDCARD + p, with any residue at position p, from 0.

SUBSTITUTIONS + m is also with up to m substitutions. No enum, because `njit` functions use these numbers."""

_ALL_BITS = 2**64 - 1
_SLOTS_PER_KEY = 2
_FILTER_BITS_PER_KEY = 16
_MIN_FILTER_BITS, _MAX_FILTER_BITS = 1 << 15, 1 << 23  # 1 MB: it stays in the processor's cache, and refuses most keys
_N_FLAGS = 1 << 14  # number of entries for hashes of length and genes, by their lowest bits
# flags of clones: some are matched exactly, with one substitution or a wildcard, or with several substitutions
_EXACT_FLAG, _ONE_FLAG, _SEVERAL_FLAG = 1, 2, 4
_POSITION_BITS = 32
_POSITIONS = (1 << _POSITION_BITS) - 1
_FIRST_CAPACITY = 1 << 12  # number of pairs in the first array that is written
_BLOCK = 1 << 16  # sequences that one thread searches at a time


class Neighbours(NamedTuple):
    """n pairs of a sequence of one repertoire and a clone, in the order of the sequences.

    Attributes
    ----------
    rows
        Index of the sequence in its repertoire, (n,) int64.
    clones
        Index of the clone, (n,) int64.
    mismatches
        Number of substitutions between them, (n,) int64.
    """

    rows: NDArray[np.int64]
    clones: NDArray[np.int64]
    mismatches: NDArray[np.int64]


class _Table(NamedTuple):
    """A hash table of the clones, and of those that are not only matched exactly without one of their residues.

    Attributes
    ----------
    clones
        The J clones.
    slots
        Index of a clone and, in the lowest bits, the position that is left out, counted from 1, or 0 for the whole
        clone; -1 is an empty slot. (a power of 2,).
    bloom_filter
        Bloom filter of the keys, with two bits for each, in words of 64 bits.
    length_gene_flags
        How the clones with a length and genes are matched, by the lowest bits of their hash, (_N_FLAGS,): 0 if there
        is none, else flags.
    several, max_mismatches, length_gene_hashes
        Indices of the clones that are matched with several substitutions, how many these may be, and the hashes of
        their length and genes, rising, (clones,) each.
    """

    clones: SequenceArrays
    slots: NDArray[np.int64]
    bloom_filter: NDArray[np.uint64]
    length_gene_flags: NDArray[np.uint8]
    several: NDArray[np.int64]
    max_mismatches: NDArray[np.int64]
    length_gene_hashes: NDArray[np.uint64]


class NeighbourSearch:
    """A search for sequences that equal a clone, or differ from one by substitutions that its match allows.

    Sequence and clone have the same length, and the same genes where the clones have genes. The tables that a search
    needs are made once.

    Parameters
    ----------
    clones
        J clones. The same one may be there with several wildcards.
    matches
        Match of each clone: `EXACT`, `ONE_SUBSTITUTION`, `WILDCARD` + position, or `SUBSTITUTIONS` + number, (J,);
        None: `ONE_SUBSTITUTION`.
    mask
        Bits of the hash that are used; the result does not depend on it.
    """

    def __init__(self, clones: CloneSet, matches: NDArray[np.int64] | None = None, *, mask: int = _ALL_BITS) -> None:
        if matches is None:
            matches = np.full(len(clones), ONE_SUBSTITUTION, np.int64)
        self.clones, self._mask = clones, np.uint64(mask)
        self.make_table = partial(_make_table, matches=matches, mask=self._mask)
        self._tables = CloneTables(clones, self.make_table)

    def find_in(self, repertoire: Repertoire, hashes: NDArray[np.uint64] | None = None) -> Neighbours:
        """Return the pairs of one repertoire's sequences with clones, found on all cores.

        Parameters
        ----------
        repertoire
            The N sequences.
        hashes
            Room for their hashes, (N,), which are written as `hash_rows` computes them, with the clones' genes. Without
            it, most sequences that have the length and genes of no clone are not hashed.

        Raises
        ------
        InputError
            If the repertoire's container lacks genes of the clone definition.
        """
        sequences, table = self._tables.get_sequences_and_table(repertoire)
        first = repertoire.start

        def search(start: int, stop: int) -> Neighbours:
            block_hashes = None if hashes is None else hashes[start:stop]
            neighbours = self.find(sequences, table, first + start, first + stop, block_hashes)
            return neighbours._replace(rows=neighbours.rows + start)

        block_results = run_in_blocks(search, len(repertoire), _BLOCK) or [search(0, 0)]
        return Neighbours(*map(np.concatenate, zip(*block_results, strict=True)))

    def find(
        self, sequences: SequenceArrays, table: _Table, start: int, stop: int, hashes: NDArray[np.uint64] | None = None
    ) -> Neighbours:
        """Return the pairs of the sequences from `start` to `stop`; their rows count from `start`.

        The hashes of these sequences are written to `hashes`, (stop - start,).
        """
        known_hashes = np.zeros(0, np.uint64) if hashes is None else hashes
        written, row, capacity = [], start, _FIRST_CAPACITY
        while True:
            pairs = np.empty((3, capacity), np.int64)
            n, row = _find_pairs(sequences, start, row, stop, table, pairs, known_hashes, self._mask)
            written.append(pairs[:, :n])
            if row == stop:
                return Neighbours(*(written[0] if len(written) == 1 else np.concatenate(written, axis=1)))
            capacity *= 4


def find_neighbours(
    clones: CloneSet,
    dataset: RepertoireDataset,
    matches: NDArray[np.int64] | None = None,
    *,
    mask: int = _ALL_BITS,
) -> Iterator[Neighbours]:
    """Yield, for each repertoire, its sequences that match a clone, on all cores.

    Parameters
    ----------
    clones, matches, mask
        See `NeighbourSearch`.
    dataset
        Repertoires of any container; genes are compared by name.

    Raises
    ------
    InputError
        If the container lacks genes of the clone definition.
    """
    search = NeighbourSearch(clones, matches, mask=mask)
    return clones.search(dataset, search.make_table, search.find)


def _make_table(
    clones: SequenceArrays, is_known: NDArray[np.bool_], *, matches: NDArray[np.int64], mask: Any
) -> _Table:
    """Return a hash table of the known clones; if `matches` asks for it, also of them with one residue left out."""
    lengths = np.diff(clones.offsets)
    n_left_out = np.where(matches == ONE_SUBSTITUTION, lengths, matches >= WILDCARD)
    is_in_table = is_known & (matches < SUBSTITUTIONS)
    n_keys = int((n_left_out + 1)[is_in_table].sum())
    several = np.flatnonzero(is_known & (matches >= SUBSTITUTIONS))
    hashes = hash_lengths_and_genes(clones, several)
    order = np.argsort(hashes, kind="stable")
    n_bits = 1 << (_FILTER_BITS_PER_KEY * n_keys).bit_length()
    table = _Table(
        clones,
        np.full(1 << (_SLOTS_PER_KEY * n_keys).bit_length(), -1, np.int64),
        np.zeros(min(max(n_bits, _MIN_FILTER_BITS), _MAX_FILTER_BITS) // 64, np.uint64),
        np.zeros(_N_FLAGS, np.uint8),
        several[order],
        matches[several[order]] - SUBSTITUTIONS,
        hashes[order],
    )
    _insert_clones(table, np.flatnonzero(is_in_table), matches, mask)
    np.bitwise_or.at(table.length_gene_flags, hashes & np.uint64(_N_FLAGS - 1), np.uint8(_SEVERAL_FLAG))
    return table


@njit(inline="always")
def _locate_filter_bits(key: Any, bloom_filter: NDArray[np.uint64]) -> tuple[Any, Any]:
    """Return the word of the Bloom filter, and the two bits in it, that belong to a key."""
    bits = uint64(1) << (key & uint64(63)) | uint64(1) << ((key >> uint64(6)) & uint64(63))
    return (key >> uint64(12)) & uint64(len(bloom_filter) - 1), bits


@njit(inline="always")
def _may_contain(key: Any, bloom_filter: NDArray[np.uint64]) -> Any:
    """Return whether a key may be in the table, by the Bloom filter; otherwise it certainly is not."""
    word, needed = _locate_filter_bits(key, bloom_filter)
    return bloom_filter[word] & needed == needed


@njit(nogil=True)
def _add_to_filter(table: _Table, key: Any) -> None:
    """Add a key to the Bloom filter."""
    word, needed = _locate_filter_bits(key, table.bloom_filter)
    table.bloom_filter[word] |= needed


@njit(nogil=True)
def _insert_key(table: _Table, key: Any, row: int, position: int) -> None:
    """Insert a clone into the hash table under a key; `position` is the residue that the key leaves out, or 0."""
    slots = table.slots
    _add_to_filter(table, key)
    slot = np.int64((key >> uint64(24)) & uint64(len(slots) - 1))
    while slots[slot] >= 0:
        slot = (slot + 1) & (len(slots) - 1)
    slots[slot] = row << _POSITION_BITS | position


@njit(nogil=True)
def _insert_clones(table: _Table, rows: NDArray[np.int64], matches: NDArray[np.int64], mask: Any) -> None:
    """Insert rows of the clones under the key of the whole sequence, and under those without one residue if needed.

    One residue is left out at every position in turn, or at the wildcard alone.
    """
    residues, offsets = table.clones.residues, table.clones.offsets
    for row in rows:
        length_genes_hash = hash_length_and_genes(table.clones, row)
        half, other = hash_halves(table.clones, row)
        full_hash = length_genes_hash ^ half ^ other
        table.length_gene_flags[length_genes_hash & uint64(_N_FLAGS - 1)] |= (
            _EXACT_FLAG if matches[row] == EXACT else _EXACT_FLAG | _ONE_FLAG
        )
        _insert_key(table, full_hash & mask, row, 0)
        if matches[row] != EXACT:
            _add_to_filter(table, (length_genes_hash ^ half) & mask)
            _add_to_filter(table, (length_genes_hash ^ other) & mask)
            first_left_out, stop = 0, offsets[row + 1] - offsets[row]
            if matches[row] >= WILDCARD:
                first_left_out = matches[row] - WILDCARD
                stop = first_left_out + 1
            for i in range(first_left_out, stop):
                _insert_key(table, leave_out(full_hash, i, residues[offsets[row] + i]) & mask, row, i + 1)


@njit(nogil=True)
def _find_pairs(
    sequences: SequenceArrays,
    start: int,
    row: int,
    stop: int,
    table: _Table,
    pairs: NDArray[np.int64],
    hashes: NDArray[np.uint64],
    mask: Any,
) -> tuple[int, int]:
    """Write the pairs of the sequences from `row` on, (3, capacity); their rows count from `start`.

    The hashes of the sequences from `start` to `stop` are written, too, if there is room for any.

    Returns
    -------
    tuple
        Number of pairs, and the row from which to go on: the first one whose pairs have no room, or `stop`.
    """
    residues, offsets, bloom_filter = sequences.residues, sequences.offsets, table.bloom_filter
    n, wants_hashes = 0, len(hashes) > 0
    while row < stop:
        length_genes_hash = hash_length_and_genes(sequences, row)
        flags = table.length_gene_flags[length_genes_hash & uint64(_N_FLAGS - 1)]
        if flags > 0 or wants_hashes:
            before = n
            half, other = hash_halves(sequences, row)
            full_hash = length_genes_hash ^ half ^ other
            if wants_hashes:
                hashes[row - start] = full_hash
            if flags & _EXACT_FLAG and _may_contain(full_hash & mask, bloom_filter):
                n = _look_up(sequences, row, table, full_hash & mask, 0, pairs, n, start)
            if flags & _ONE_FLAG and (
                _may_contain((length_genes_hash ^ half) & mask, bloom_filter)
                or _may_contain((length_genes_hash ^ other) & mask, bloom_filter)
            ):
                for i in range(offsets[row + 1] - offsets[row]):
                    key = leave_out(full_hash, i, residues[offsets[row] + i]) & mask
                    if _may_contain(key, bloom_filter):
                        n = _look_up(sequences, row, table, key, i + 1, pairs, n, start)
            if flags & _SEVERAL_FLAG:
                n = _compare(sequences, row, table, length_genes_hash, pairs, n, start)
            if n > pairs.shape[1]:
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
    pairs: NDArray[np.int64],
    n: int,
    start: int,
) -> int:
    """Append the clones that have the key of a sequence to `pairs`; return the new number of pairs.

    `position` is the residue that the key leaves out, from 1; 0 is the key of the whole sequence.
    """
    slots, mismatches = table.slots, min(position, 1)
    different_at = position - 1 if position > 0 else NO_POSITION
    slot = np.int64((key >> uint64(24)) & uint64(len(slots) - 1))
    while slots[slot] >= 0:
        clone = slots[slot] >> _POSITION_BITS
        if slots[slot] & _POSITIONS == position and differ_only_at(sequences, row, table.clones, clone, different_at):
            if n < pairs.shape[1]:
                pairs[0, n], pairs[1, n], pairs[2, n] = row - start, clone, mismatches
            n += 1
        slot = (slot + 1) & (len(slots) - 1)
    return n


@njit(nogil=True)
def _compare(
    sequences: SequenceArrays,
    row: int,
    table: _Table,
    length_genes_hash: Any,
    pairs: NDArray[np.int64],
    n: int,
    start: int,
) -> int:
    """Append the clones that match a sequence with several substitutions to `pairs`; return the new number of pairs."""
    hashes = table.length_gene_hashes
    at, stop = 0, len(hashes)  # bisection: the first clone with this hash
    while at < stop:
        middle = (at + stop) // 2
        if hashes[middle] < length_genes_hash:
            at = middle + 1
        else:
            stop = middle
    while at < len(hashes) and hashes[at] == length_genes_hash:
        limit = table.max_mismatches[at]
        n_mismatches = count_mismatches(sequences, row, table.clones, table.several[at], limit)
        if n_mismatches <= limit:
            if n < pairs.shape[1]:
                pairs[0, n], pairs[1, n], pairs[2, n] = row - start, table.several[at], n_mismatches
            n += 1
        at += 1
    return n
