"""Search for the sequences in which given gapped k-mers occur; several ranks divide the repertoires among them.

Letters: B repertoires, n given k-mers, m occurrences, M k-mers of one spacing (one tuple of offsets).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Flags, Integers
from deeprc.compilation import njit, run_in_blocks, run_in_parts
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.kmers import encode_kmer
from deeprc.progress import open_step
from deeprc.rank_calls import PackedFlags, compute_parts, divide_repertoires
from deeprc.training.kmer_frequencies import BlockSequences, iterate_blocks
from deeprc.training.kmer_lookup import KmerTables, fill_chunk, look_up, make_chunk, make_tables
from deeprc.training.kmer_sets import KmerSet, Spacing

__all__ = ["Occurrences", "find_occurrences", "find_sequences_with_kmer"]

_BLOCK = 65536  # largest number of sequences that a thread searches for one k-mer at a time
_MAX_OCCURRENCES = 10_000_000  # largest number that is kept in memory


@dataclass(frozen=True)
class Occurrences:
    """Occurrences of k-mers in sequences.

    Attributes
    ----------
    repertoire
        Index of the repertoire of each occurrence, (m,) int32.
    sequence
        Index of the sequence of each occurrence among the sequences of all repertoires, (m,).
    kmer
        Index of the k-mer of each occurrence, (m,) int32.
    was_searched
        Whether each k-mer was searched for, (n,).
    """

    repertoire: NDArray[np.int32]
    sequence: Integers
    kmer: NDArray[np.int32]
    was_searched: Flags

    @classmethod
    def none(cls) -> Occurrences:
        """Return the occurrences of no k-mers."""
        return cls(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.bool_))

    def take(self, kmers: Integers) -> Occurrences:
        """Return the occurrences of some k-mers, which get the indices 0, 1, 2 ... in this order."""
        index = np.full(len(self.was_searched), -1, np.int32)
        index[kmers] = np.arange(len(kmers))
        kmer = index[self.kmer]
        kept = kmer >= 0
        return Occurrences(self.repertoire[kept], self.sequence[kept], kmer[kept], self.was_searched[kmers])

    def tabulate(self, n_repertoires: int, rows: Integers | Flags) -> Integers:
        """Return how many of the occurrences at some rows are of each k-mer and in each repertoire, (B, n)."""
        n = len(self.was_searched)
        cell = self.repertoire[rows].astype(np.int64) * n + self.kmer[rows]
        return np.bincount(cell, minlength=n_repertoires * n).reshape(n_repertoires, n)

    def append(self, other: Occurrences) -> Occurrences:
        """Join two sets of occurrences; the k-mers of `other` follow those of this one."""
        return Occurrences(
            np.concatenate([self.repertoire, other.repertoire]),
            np.concatenate([self.sequence, other.sequence]),
            np.concatenate([self.kmer, other.kmer + np.int32(len(self.was_searched))]),
            np.concatenate([self.was_searched, other.was_searched]),
        )


def find_occurrences(dataset: RepertoireDataset, kmers: KmerSet, *, max_occurrences: int | None = None) -> Occurrences:
    """Return all occurrences of some k-mers; a k-mer with more occurrences than still fit is left out.

    Parameters
    ----------
    dataset
        The repertoires.
    kmers
        The n k-mers, all different.
    max_occurrences
        Largest number of occurrences of all k-mers together; None is ten million.
    """
    if len(kmers) == 0:
        return Occurrences.none()
    parts = divide_repertoires(dataset)
    counts_and_flags = compute_parts(partial(_count_part, kmers), parts)
    total = sum((counts.sum(axis=0) for counts, _ in counts_and_flags), np.zeros(len(kmers), np.int64))
    was_searched = _choose_within_limit(total, _MAX_OCCURRENCES if max_occurrences is None else max_occurrences)
    if not total[was_searched].any():
        return replace(Occurrences.none(), was_searched=was_searched)
    counted = [
        _CountedPart(part, np.where(was_searched, counts, 0), has_kmer)
        for part, (counts, has_kmer) in zip(parts, counts_and_flags, strict=True)
    ]
    return _join_parts(parts, compute_parts(partial(_find_part, kmers, was_searched), counted), was_searched)


class _CountedPart(NamedTuple):
    """Some repertoires after the first pass.

    Attributes
    ----------
    dataset
        The repertoires.
    counts
        Count of each k-mer that is searched for in each repertoire, (B, n); 0 for the others.
    has_kmer
        Whether each sequence has any k-mer, (N,).
    """

    dataset: RepertoireDataset
    counts: Integers
    has_kmer: PackedFlags


def _count_part(kmers: KmerSet, dataset: RepertoireDataset) -> tuple[Integers, PackedFlags]:
    """Return the count of each k-mer in each repertoire, (B, n), and whether each sequence has any k-mer, (N,)."""
    counts = np.zeros((len(dataset), len(kmers)), np.int64)
    repertoire_offsets = compute_offsets(dataset.n_sequences)
    has_kmer = np.zeros(int(repertoire_offsets[-1]), np.bool_)
    tables = make_tables(kmers, np.ones(len(kmers), np.bool_))
    with open_step("search for motifs: where candidates occur, pass 1 of 2", len(has_kmer)) as step:
        for repertoires, block in iterate_blocks(dataset, step):
            own_flags = has_kmer[repertoire_offsets[repertoires.start] : repertoire_offsets[repertoires.stop]]
            own_counts = counts[repertoires]
            run_in_parts(_count_occurrences, len(own_counts), block, tables, own_counts, own_flags)
    return counts, PackedFlags(has_kmer)


class _PartOccurrences(NamedTuple):
    """The occurrences in some repertoires: repertoire and sequence, both counted among these, and k-mer, (m,) each."""

    repertoire: NDArray[np.int32]
    sequence: Integers
    kmer: NDArray[np.int32]


def _join_parts(
    parts: Sequence[RepertoireDataset], occurrences: Sequence[_PartOccurrences], was_searched: Flags
) -> Occurrences:
    """Join the occurrences in consecutive parts of the repertoires."""
    if len(occurrences) == 1:
        return Occurrences(*occurrences[0], was_searched)
    first_repertoire = first_sequence = 0  # of a part, among those of all parts
    moved = []
    for part, found in zip(parts, occurrences, strict=True):
        moved.append((found.repertoire + np.int32(first_repertoire), found.sequence + first_sequence, found.kmer))
        first_repertoire += len(part)
        first_sequence += int(part.n_sequences.sum())
    repertoire, sequence, kmer = map(np.concatenate, zip(*moved, strict=True))
    return Occurrences(repertoire, sequence, kmer, was_searched)


def _find_part(kmers: KmerSet, was_searched: Flags, part: _CountedPart) -> _PartOccurrences:
    """Return the occurrences of the k-mers that are searched for, (n,), in some repertoires."""
    dataset, counts, has_kmer = part.dataset, part.counts, part.has_kmer.flags
    repertoire_offsets = compute_offsets(dataset.n_sequences)
    n_occurrences = counts.sum(axis=1)  # (B,)
    occurrence_offsets = compute_offsets(n_occurrences)
    repertoire = np.repeat(np.arange(len(dataset), dtype=np.int32), n_occurrences)
    sequence, kmer = np.empty(len(repertoire), np.int64), np.empty(len(repertoire), np.int32)
    tables = make_tables(kmers, was_searched)
    with open_step("search for motifs: where candidates occur, pass 2 of 2", len(has_kmer)) as step:
        for repertoires, block in iterate_blocks(dataset, step):
            first_sequence = repertoire_offsets[repertoires.start]
            indices = np.flatnonzero(has_kmer[first_sequence : repertoire_offsets[repertoires.stop]])
            searched = _SearchedSequences(indices, np.searchsorted(indices, block.repertoire_offsets))
            rows = slice(occurrence_offsets[repertoires.start], occurrence_offsets[repertoires.stop])
            starts = occurrence_offsets[repertoires.start : repertoires.stop] - rows.start
            run_in_parts(_write_occurrences, len(starts), block, searched, tables, starts, sequence[rows], kmer[rows])
            sequence[rows] += first_sequence
    return _PartOccurrences(repertoire, sequence, kmer)


def find_sequences_with_kmer(dataset: RepertoireDataset, spacing: Spacing, code: int) -> Flags:
    """Return whether each sequence of all repertoires has the k-mer of this spacing and code, (N,)."""
    flags_of_parts = compute_parts(partial(_flag_part, spacing, code), divide_repertoires(dataset))
    return (
        flags_of_parts[0].flags if len(flags_of_parts) == 1 else np.concatenate([part.flags for part in flags_of_parts])
    )


def _flag_part(spacing: Spacing, code: int, dataset: RepertoireDataset) -> PackedFlags:
    """Return what `find_sequences_with_kmer` returns, for some of the repertoires."""
    repertoire_offsets = compute_offsets(dataset.n_sequences)
    has_kmer = np.zeros(int(repertoire_offsets[-1]), np.bool_)
    with open_step("search for motifs: sequences with a motif", len(has_kmer)) as step:
        for repertoires, block in iterate_blocks(dataset, step):
            own_flags = has_kmer[repertoire_offsets[repertoires.start] : repertoire_offsets[repertoires.stop]]
            run_in_blocks(
                _flag_sequences, len(own_flags), _BLOCK, block.residues, block.offsets, spacing, code, own_flags
            )
    return PackedFlags(has_kmer)


class _SearchedSequences(NamedTuple):
    """The sequences of a block in which k-mers are searched.

    Attributes
    ----------
    indices
        Indices of the sequences among those of the block, (n,).
    offsets
        Bounds of the repertoires among these n sequences, (B + 1,).
    """

    indices: Integers
    offsets: Integers


def _choose_within_limit(counts: Integers, max_occurrences: int) -> Flags:
    """Return whether each k-mer, in their order, still fits into the limit after the earlier ones that fit, (n,)."""
    fits = np.zeros(len(counts), np.bool_)
    room = max_occurrences
    for i, count in enumerate(counts):
        if count <= room:
            fits[i] = True
            room -= count
    return fits


@njit(nogil=True)
def _measure_longest(offsets: Integers) -> int:
    """Return the length of the longest sequence of a block."""
    longest = 0
    for s in range(len(offsets) - 1):
        longest = max(longest, offsets[s + 1] - offsets[s])
    return longest


@njit(nogil=True)
def _count_occurrences(
    first: int, stop: int, block: BlockSequences, tables: KmerTables, counts: Integers, has_kmer: Flags
) -> None:
    """Add the counts of each k-mer in some repertoires, (repertoires, n); flag the sequences that have one."""
    residues, offsets, repertoire_offsets = block
    chunk, no_selection = make_chunk(_measure_longest(offsets), tables), np.empty(0, np.int64)
    for b in range(first, stop):
        at = repertoire_offsets[b]
        while at < repertoire_offsets[b + 1]:
            end = fill_chunk(chunk, residues, offsets, no_selection, at, repertoire_offsets[b + 1])
            n_found = look_up(chunk, end - at, tables)
            for i in range(n_found):
                counts[b, chunk.kmer[i]] += 1
                has_kmer[at + chunk.sequence[i]] = True
            at = end


@njit(nogil=True)
def _write_occurrences(
    first: int,
    stop: int,
    block: BlockSequences,
    searched: _SearchedSequences,
    tables: KmerTables,
    starts: Integers,
    sequence: Integers,
    kmer: NDArray[np.int32],
) -> None:
    """Write the sequence and the k-mer of each occurrence in some repertoires, (m,) each, from starts[b] on.

    Only the `searched` sequences are read.
    """
    chunk = make_chunk(_measure_longest(block.offsets), tables)
    for b in range(first, stop):
        i_out, at = starts[b], searched.offsets[b]
        while at < searched.offsets[b + 1]:
            end = fill_chunk(chunk, block.residues, block.offsets, searched.indices, at, searched.offsets[b + 1])
            n_found = look_up(chunk, end - at, tables)
            for i in range(n_found):
                sequence[i_out], kmer[i_out] = searched.indices[at + chunk.sequence[i]], chunk.kmer[i]
                i_out += 1
            at = end


@njit(nogil=True)
def _flag_sequences(
    first: int,
    stop: int,
    residues: NDArray[np.uint8],
    offsets: Integers,
    spacing: Spacing,
    code: int,
    has_kmer: Flags,
) -> None:
    """Set the flag of each of some sequences that has a k-mer."""
    for s in range(first, stop):
        for start in range(offsets[s], offsets[s + 1] - spacing[-1]):
            if encode_kmer(residues, start, spacing) == code:
                has_kmer[s] = True
