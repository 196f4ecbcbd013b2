"""Search for the sequences in which given gapped k-mers occur; several ranks divide the repertoires among them.

Letters: B repertoires, n given k-mers, m occurrences, M k-mers of one pattern (one tuple of offsets).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.kmers import encode_kmer
from deeprc.progress import open_step
from deeprc.rank_calls import PackedFlags, compute_parts, divide_repertoires
from deeprc.training.kmer_frequencies import Codes, Flags, count_kmers_of, iterate_blocks, run_by_repertoire

__all__ = ["Occurrences", "find_carriers", "find_occurrences"]

_N_LETTERS = len(AMINO_ACIDS)
_MAX_OCCURRENCES = 10_000_000  # largest number that is kept in memory
_MAX_BEGINNINGS = 0.1  # if a larger share of the 400 pairs of residues begin a k-mer, first pairs are not checked


@dataclass(frozen=True)
class Occurrences:
    """Occurrences of k-mers in sequences.

    Attributes
    ----------
    repertoire
        Index of the repertoire of each occurrence, (m,) int32.
    sequence
        Index of the sequence of each occurrence among the sequences of all repertoires, (m,).
    which
        Index of the k-mer of each occurrence, (m,) int32.
    looked_for
        Whether each k-mer was searched for, (n,).
    """

    repertoire: NDArray[np.int32]
    sequence: Codes
    which: NDArray[np.int32]
    looked_for: Flags

    @classmethod
    def none(cls) -> Occurrences:
        """Return the occurrences of no k-mers."""
        return cls(np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.bool_))

    def take(self, kmers: Codes) -> Occurrences:
        """Return the occurrences of some k-mers, which get the indices 0, 1, 2 ... in this order."""
        index = np.full(len(self.looked_for), -1, np.int32)
        index[kmers] = np.arange(len(kmers))
        which = index[self.which]
        kept = which >= 0
        return Occurrences(self.repertoire[kept], self.sequence[kept], which[kept], self.looked_for[kmers])

    def append(self, other: Occurrences) -> Occurrences:
        """Join two sets of occurrences; the k-mers of `other` follow those of this one."""
        return Occurrences(
            np.concatenate([self.repertoire, other.repertoire]),
            np.concatenate([self.sequence, other.sequence]),
            np.concatenate([self.which, other.which + np.int32(len(self.looked_for))]),
            np.concatenate([self.looked_for, other.looked_for]),
        )


def find_occurrences(
    dataset: RepertoireDataset,
    patterns: Sequence[Sequence[int]],
    pattern: Codes,
    code: Codes,
    *,
    max_occurrences: int | None = None,
) -> Occurrences:
    """Return all occurrences of some k-mers; a k-mer with more occurrences than still fit is left out.

    Parameters
    ----------
    dataset
        The repertoires.
    patterns
        Offsets of the residues of k-mers from the first one.
    pattern
        Index of each k-mer's pattern, (n,).
    code
        Index of each k-mer among those of its pattern, (n,).
    max_occurrences
        Largest number of occurrences of all k-mers together; None is ten million.
    """
    kmers = _Kmers(patterns, pattern, code)
    parts = divide_repertoires(dataset)
    found = compute_parts(partial(_count_part, kmers), parts)
    total = sum((counts.sum(axis=0) for counts, _ in found), np.zeros(len(code), np.int64))
    looked_for = _fit(total, _MAX_OCCURRENCES if max_occurrences is None else max_occurrences)
    for counts, _ in found:
        counts[:, ~looked_for] = 0
    searched = [_Searched(part, *of_part) for part, of_part in zip(parts, found, strict=True)]
    kmers = _Kmers(patterns, np.where(looked_for, pattern, -1), code)
    return _join(parts, compute_parts(partial(_find_part, kmers), searched), looked_for)


@dataclass(frozen=True)
class _Kmers:
    """The n given k-mers; see `find_occurrences`. A pattern of -1 leaves a k-mer out."""

    patterns: Sequence[Sequence[int]]
    pattern: Codes
    code: Codes

    def tables(self) -> Iterator[tuple[tuple[int, ...], NDArray[np.int32]]]:
        """Yield the offsets of each used pattern, and for each code the index of the k-mer or -1, (M,)."""
        for index in np.unique(self.pattern[self.pattern >= 0]):
            table = np.full(count_kmers_of(self.patterns[index]), -1, np.int32)
            table[self.code[self.pattern == index]] = np.flatnonzero(self.pattern == index)
            yield tuple(self.patterns[index]), table


class _Searched(NamedTuple):
    """Some repertoires after the first pass.

    Attributes
    ----------
    dataset
        The repertoires.
    counts
        Count of each k-mer in each repertoire, (B, n).
    holding
        Whether each sequence has any k-mer, (N,).
    """

    dataset: RepertoireDataset
    counts: Codes
    holding: PackedFlags


def _count_part(kmers: _Kmers, dataset: RepertoireDataset) -> tuple[Codes, PackedFlags]:
    """Return the count of each k-mer in each repertoire, (B, n), and whether each sequence has any k-mer, (N,)."""
    counts = np.zeros((len(dataset), len(kmers.code)), np.int64)
    starts = compute_offsets(dataset.n_sequences)
    holding = np.zeros(int(starts[-1]), np.bool_)
    with open_step("search for motifs: where candidates occur, pass 1 of 2", len(holding)) as step:
        for rows, residues, offsets, bounds in iterate_blocks(dataset, step):
            some = holding[starts[rows.start] : starts[rows.stop]]
            for kmer_offsets, table in kmers.tables():
                begins = _mark_beginnings(table)
                arguments = residues, offsets, bounds, kmer_offsets, table, begins, counts[rows], some
                run_by_repertoire(_count_kmers, len(bounds) - 1, *arguments)
    return counts, PackedFlags(holding)


_Found = tuple[NDArray[np.int32], Codes, NDArray[np.int32]]


def _join(parts: Sequence[RepertoireDataset], found: Sequence[_Found], looked_for: Flags) -> Occurrences:
    """Join the occurrences in consecutive parts of the repertoires."""
    if len(found) == 1:
        return Occurrences(*found[0], looked_for)
    firsts = compute_offsets(np.array([len(part) for part in parts], np.int64))
    starts = compute_offsets(np.array([part.n_sequences.sum() for part in parts], np.int64))
    moved = [
        (repertoire + np.int32(first), sequence + start, which)
        for (repertoire, sequence, which), first, start in zip(found, firsts[:-1], starts[:-1], strict=True)
    ]
    repertoire, sequence, which = map(np.concatenate, zip(*moved, strict=True))
    return Occurrences(repertoire, sequence, which, looked_for)


def _find_part(kmers: _Kmers, searched: _Searched) -> _Found:
    """Return the repertoire, the sequence and the k-mer of each occurrence in some repertoires, (m,) each."""
    dataset, counts, holding = searched.dataset, searched.counts, searched.holding.flags
    starts = compute_offsets(dataset.n_sequences)
    n = int(counts.sum())
    repertoire, which = np.empty((2, n), np.int32)
    sequence = np.empty(n, np.int64)
    first = 0
    with open_step("search for motifs: where candidates occur, pass 2 of 2", len(holding)) as step:
        for rows, residues, offsets, bounds in iterate_blocks(dataset, step):
            sequences = np.flatnonzero(holding[starts[rows.start] : starts[rows.stop]])
            bounds_of_some = np.searchsorted(sequences, bounds)
            for kmer_offsets, table in kmers.tables():
                found = counts[rows][:, table[table >= 0]].sum(axis=1)
                ends = first + compute_offsets(found)
                arguments = residues, offsets, sequences, bounds_of_some, kmer_offsets, table, ends, sequence, which
                run_by_repertoire(_find, len(bounds) - 1, *arguments)
                part = slice(first, int(ends[-1]))
                sequence[part] += starts[rows.start]
                repertoire[part] = np.repeat(np.arange(rows.start, rows.stop), found)
                first = part.stop
    return repertoire, sequence, which


def find_carriers(dataset: RepertoireDataset, kmer_offsets: Sequence[int], code: int) -> Flags:
    """Return whether each sequence of all repertoires has a k-mer."""
    found = compute_parts(partial(_mark_part, tuple(kmer_offsets), code), divide_repertoires(dataset))
    return found[0].flags if len(found) == 1 else np.concatenate([part.flags for part in found])


def _mark_part(kmer_offsets: tuple[int, ...], code: int, dataset: RepertoireDataset) -> PackedFlags:
    """Return whether each sequence of some repertoires has a k-mer."""
    starts = compute_offsets(dataset.n_sequences)
    carrying = np.zeros(int(starts[-1]), np.bool_)
    with open_step("search for motifs: sequences with a motif", len(carrying)) as step:
        for rows, residues, offsets, bounds in iterate_blocks(dataset, step):
            some = carrying[starts[rows.start] : starts[rows.stop]]
            run_by_repertoire(_mark, len(bounds) - 1, residues, offsets, bounds, kmer_offsets, code, some)
    return PackedFlags(carrying)


def _fit(counts: Codes, room: int) -> Flags:
    """Return whether the occurrences of each k-mer, taken in their order, fit into the room that is left."""
    fitting = np.zeros(len(counts), np.bool_)
    for i, count in enumerate(counts):
        if count <= room:
            fitting[i] = True
            room -= count
    return fitting


def _mark_beginnings(table: NDArray[np.int32]) -> Flags:
    """Return whether a k-mer of a table begins with each pair of residues, (400,); all True if many pairs do.

    To check the first pair is faster if few pairs begin a k-mer.
    """
    begins = (table.reshape(_N_LETTERS**2, -1) >= 0).any(axis=1)
    return np.asarray(begins | (begins.mean() > _MAX_BEGINNINGS))


@njit(nogil=True)
def _count_kmers(
    first: int,
    stop: int,
    residues: NDArray[np.uint8],
    offsets: Codes,
    bounds: Codes,
    kmer_offsets: tuple[int, ...],
    table: NDArray[np.int32],
    begins: Flags,
    counts: Codes,
    holding: Flags,
) -> None:
    """Add the counts of each k-mer of a table in some repertoires, (rows, n); flag the sequences that have one."""
    for b in range(first, stop):
        for s in range(bounds[b], bounds[b + 1]):
            for start in range(offsets[s], offsets[s + 1] - kmer_offsets[-1]):
                if begins[encode_kmer(residues, start, kmer_offsets[:2])]:
                    which = table[encode_kmer(residues, start, kmer_offsets)]
                    if which >= 0:
                        counts[b, which] += 1
                        holding[s] = True


@njit(nogil=True)
def _find(
    first: int,
    stop: int,
    residues: NDArray[np.uint8],
    offsets: Codes,
    sequences: Codes,
    bounds: Codes,
    kmer_offsets: tuple[int, ...],
    table: NDArray[np.int32],
    ends: Codes,
    sequence: Codes,
    which: NDArray[np.int32],
) -> None:
    """Write the sequence and the k-mer of each occurrence, (m,) each, in some repertoires; those of b begin at ends[b].

    Only `sequences` are searched; those of repertoire b are sequences[bounds[b] : bounds[b + 1]].
    """
    for b in range(first, stop):
        n = ends[b]
        for s in sequences[bounds[b] : bounds[b + 1]]:
            for start in range(offsets[s], offsets[s + 1] - kmer_offsets[-1]):
                found = table[encode_kmer(residues, start, kmer_offsets)]
                if found >= 0:
                    sequence[n], which[n] = s, found
                    n += 1


@njit(nogil=True)
def _mark(
    first: int,
    stop: int,
    residues: NDArray[np.uint8],
    offsets: Codes,
    bounds: Codes,
    kmer_offsets: tuple[int, ...],
    code: int,
    carrying: Flags,
) -> None:
    """Set the flag of each sequence of some repertoires that has a k-mer."""
    for s in range(bounds[first], bounds[stop]):
        for start in range(offsets[s], offsets[s + 1] - kmer_offsets[-1]):
            if encode_kmer(residues, start, kmer_offsets) == code:
                carrying[s] = True
