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

from deeprc.compilation import njit, run_in_blocks, run_in_parts
from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.kmers import encode_kmer
from deeprc.progress import open_step
from deeprc.rank_calls import PackedFlags, compute_parts, divide_repertoires
from deeprc.training.kmer_frequencies import Codes, Flags, iterate_blocks
from deeprc.training.kmer_lookup import KmerTables, fill_chunk, look_up, make_chunk, make_tables

__all__ = ["Occurrences", "find_occurrences", "find_sequences_with_kmer"]

_N_LETTERS = len(AMINO_ACIDS)
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
    sequence: Codes
    kmer: NDArray[np.int32]
    was_searched: Flags

    @classmethod
    def none(cls) -> Occurrences:
        """Return the occurrences of no k-mers."""
        return cls(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.bool_))

    def take(self, kmers: Codes) -> Occurrences:
        """Return the occurrences of some k-mers, which get the indices 0, 1, 2 ... in this order."""
        index = np.full(len(self.was_searched), -1, np.int32)
        index[kmers] = np.arange(len(kmers))
        which = index[self.kmer]
        kept = which >= 0
        return Occurrences(self.repertoire[kept], self.sequence[kept], which[kept], self.was_searched[kmers])

    def tabulate(self, n_repertoires: int, rows: Codes | Flags) -> Codes:
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


def find_occurrences(
    dataset: RepertoireDataset,
    spacings: Sequence[Sequence[int]],
    spacing: Codes,
    code: Codes,
    *,
    max_occurrences: int | None = None,
) -> Occurrences:
    """Return all occurrences of some k-mers; a k-mer with more occurrences than still fit is left out.

    Parameters
    ----------
    dataset
        The repertoires.
    spacings
        Offsets of the residues of k-mers from the first one.
    spacing
        Index of each k-mer's spacing, (n,).
    code
        Index of each k-mer among those of its spacing, (n,).
    max_occurrences
        Largest number of occurrences of all k-mers together; None is ten million.
    """
    if len(code) == 0:
        return Occurrences.none()
    kmers = _Kmers(spacings, spacing, code)
    parts = divide_repertoires(dataset)
    found = compute_parts(partial(_count_part, kmers), parts)
    total = sum((counts.sum(axis=0) for counts, _ in found), np.zeros(len(code), np.int64))
    was_searched = _fit(total, _MAX_OCCURRENCES if max_occurrences is None else max_occurrences)
    if not total[was_searched].any():
        return replace(Occurrences.none(), was_searched=was_searched)
    for counts, _ in found:
        counts[:, ~was_searched] = 0
    searched = [_Searched(part, *of_part) for part, of_part in zip(parts, found, strict=True)]
    kmers = _Kmers(spacings, np.where(was_searched, spacing, -1), code)
    return _join(parts, compute_parts(partial(_find_part, kmers), searched), was_searched)


@dataclass(frozen=True)
class _Kmers:
    """The n given k-mers; see `find_occurrences`. A spacing of -1 leaves a k-mer out."""

    spacings: Sequence[Sequence[int]]
    spacing: Codes
    code: Codes

    def make_tables(self) -> KmerTables:
        """Return the k-mers as tables, in which compiled code looks them up."""
        return make_tables(self.spacings, self.spacing, self.code)


class _Searched(NamedTuple):
    """Some repertoires after the first pass.

    Attributes
    ----------
    dataset
        The repertoires.
    counts
        Count of each k-mer in each repertoire, (B, n).
    has_kmer
        Whether each sequence has any k-mer, (N,).
    """

    dataset: RepertoireDataset
    counts: Codes
    has_kmer: PackedFlags


def _count_part(kmers: _Kmers, dataset: RepertoireDataset) -> tuple[Codes, PackedFlags]:
    """Return the count of each k-mer in each repertoire, (B, n), and whether each sequence has any k-mer, (N,)."""
    counts = np.zeros((len(dataset), len(kmers.code)), np.int64)
    starts = compute_offsets(dataset.n_sequences)
    has_kmer = np.zeros(int(starts[-1]), np.bool_)
    tables = kmers.make_tables()
    with open_step("search for motifs: where candidates occur, pass 1 of 2", len(has_kmer)) as step:
        for rows, residues, offsets, bounds in iterate_blocks(dataset, step):
            some = has_kmer[starts[rows.start] : starts[rows.stop]]
            given = residues, offsets, bounds, _find_longest(offsets), tables
            run_in_parts(_count, len(bounds) - 1, *given, counts[rows], some)
    return counts, PackedFlags(has_kmer)


_Found = tuple[NDArray[np.int32], Codes, NDArray[np.int32]]


def _join(parts: Sequence[RepertoireDataset], found: Sequence[_Found], was_searched: Flags) -> Occurrences:
    """Join the occurrences in consecutive parts of the repertoires."""
    if len(found) == 1:
        return Occurrences(*found[0], was_searched)
    firsts = compute_offsets(np.array([len(part) for part in parts], np.int64))
    starts = compute_offsets(np.array([part.n_sequences.sum() for part in parts], np.int64))
    moved = [
        (repertoire + np.int32(first), sequence + start, which)
        for (repertoire, sequence, which), first, start in zip(found, firsts[:-1], starts[:-1], strict=True)
    ]
    repertoire, sequence, which = map(np.concatenate, zip(*moved, strict=True))
    return Occurrences(repertoire, sequence, which, was_searched)


def _find_part(kmers: _Kmers, searched: _Searched) -> _Found:
    """Return the repertoire, the sequence and the k-mer of each occurrence in some repertoires, (m,) each."""
    dataset, counts, has_kmer = searched.dataset, searched.counts, searched.has_kmer.flags
    starts = compute_offsets(dataset.n_sequences)
    found = counts.sum(axis=1)  # (B,)
    repertoire = np.repeat(np.arange(len(dataset), dtype=np.int32), found)
    sequence, which = np.empty(len(repertoire), np.int64), np.empty(len(repertoire), np.int32)
    firsts = compute_offsets(found)
    tables = kmers.make_tables()
    with open_step("search for motifs: where candidates occur, pass 2 of 2", len(has_kmer)) as step:
        for rows, residues, offsets, bounds in iterate_blocks(dataset, step):
            sequences = np.flatnonzero(has_kmer[starts[rows.start] : starts[rows.stop]])
            part = slice(firsts[rows.start], firsts[rows.stop])
            own_bounds = np.searchsorted(sequences, bounds)
            given = residues, offsets, sequences, own_bounds, _find_longest(offsets), tables
            places = firsts[rows.start : rows.stop] - part.start
            run_in_parts(_find, len(bounds) - 1, *given, places, sequence[part], which[part])
            sequence[part] += starts[rows.start]
    return repertoire, sequence, which


def find_sequences_with_kmer(dataset: RepertoireDataset, kmer_offsets: Sequence[int], code: int) -> Flags:
    """Return whether each sequence of all repertoires has a k-mer."""
    found = compute_parts(partial(_mark_part, tuple(kmer_offsets), code), divide_repertoires(dataset))
    return found[0].flags if len(found) == 1 else np.concatenate([part.flags for part in found])


def _mark_part(kmer_offsets: tuple[int, ...], code: int, dataset: RepertoireDataset) -> PackedFlags:
    """Return whether each sequence of some repertoires has a k-mer."""
    starts = compute_offsets(dataset.n_sequences)
    carrying = np.zeros(int(starts[-1]), np.bool_)
    with open_step("search for motifs: sequences with a motif", len(carrying)) as step:
        for rows, residues, offsets, _ in iterate_blocks(dataset, step):
            some = carrying[starts[rows.start] : starts[rows.stop]]
            run_in_blocks(_mark, len(some), _BLOCK, residues, offsets, kmer_offsets, code, some)
    return PackedFlags(carrying)


def _find_longest(offsets: Codes) -> int:
    """Return the length of the longest sequence of a block."""
    return int(np.diff(offsets).max(initial=0))


def _fit(counts: Codes, room: int) -> Flags:
    """Return whether the occurrences of each k-mer, taken in their order, fit into the room that is left."""
    fitting = np.zeros(len(counts), np.bool_)
    for i, count in enumerate(counts):
        if count <= room:
            fitting[i] = True
            room -= count
    return fitting


@njit(nogil=True)
def _count(
    first: int,
    stop: int,
    residues: NDArray[np.uint8],
    offsets: Codes,
    bounds: Codes,
    longest: int,
    tables: KmerTables,
    counts: Codes,
    has_kmer: Flags,
) -> None:
    """Add the counts of each k-mer in some repertoires, (rows, n); flag the sequences that have one."""
    chunk, every = make_chunk(longest, tables), np.empty(0, np.int64)
    for b in range(first, stop):
        at = bounds[b]
        while at < bounds[b + 1]:
            end = fill_chunk(chunk, residues, offsets, every, at, bounds[b + 1])
            n_found = look_up(chunk, end - at, tables)
            for i in range(n_found):
                counts[b, chunk.kmer[i]] += 1
                has_kmer[at + chunk.sequence[i]] = True
            at = end


@njit(nogil=True)
def _find(
    first: int,
    stop: int,
    residues: NDArray[np.uint8],
    offsets: Codes,
    sequences: Codes,
    bounds: Codes,
    longest: int,
    tables: KmerTables,
    firsts: Codes,
    sequence: Codes,
    which: NDArray[np.int32],
) -> None:
    """Write the sequence and the k-mer of each occurrence in some repertoires, (m,) each, from firsts[b] on.

    Only `sequences` are searched; those of repertoire b are sequences[bounds[b] : bounds[b + 1]].
    """
    chunk = make_chunk(longest, tables)
    for b in range(first, stop):
        place, at = firsts[b], bounds[b]
        while at < bounds[b + 1]:
            end = fill_chunk(chunk, residues, offsets, sequences, at, bounds[b + 1])
            n_found = look_up(chunk, end - at, tables)
            for i in range(n_found):
                sequence[place], which[place] = sequences[at + chunk.sequence[i]], chunk.kmer[i]
                place += 1
            at = end


@njit(nogil=True)
def _mark(
    first: int,
    stop: int,
    residues: NDArray[np.uint8],
    offsets: Codes,
    kmer_offsets: tuple[int, ...],
    code: int,
    carrying: Flags,
) -> None:
    """Set the flag of each of some sequences that has a k-mer."""
    for s in range(first, stop):
        for start in range(offsets[s], offsets[s + 1] - kmer_offsets[-1]):
            if encode_kmer(residues, start, kmer_offsets) == code:
                carrying[s] = True
