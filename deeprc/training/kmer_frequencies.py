"""Frequencies of gapped k-mers in repertoires, a block of repertoires at a time.

Letters: B repertoires, N sequences of a block, R residues of a block, M k-mers of one spacing (one tuple of offsets).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.compilation import njit, open_threads, run_in_parts
from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.kmers import encode_kmer
from deeprc.progress import Step

__all__ = [
    "Block",
    "Codes",
    "Flags",
    "Frequencies",
    "LongerSpacing",
    "SparseFrequencies",
    "count_flagged",
    "count_kmers_of",
    "find_longer_spacings",
    "iterate_blocks",
    "iterate_frequencies",
]

Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]

_N_LETTERS = len(AMINO_ACIDS)
_MAX_REPERTOIRES = 128  # largest number in a block
_MAX_SEQUENCES = 8_000_000  # largest number in a block, if it has several repertoires
_SPARSE = 2  # if a block has this factor fewer residues than there are k-mers, only its own k-mers are counted


class Block(NamedTuple):
    """Some consecutive repertoires, with their sequences end to end.

    Attributes
    ----------
    rows
        Indices of the repertoires in the dataset.
    residues
        Amino-acid indices, (R,) uint8.
    offsets
        Offsets of the sequences in the residues, (N + 1,).
    bounds
        Offsets of the repertoires in the sequences, (B + 1,).
    """

    rows: slice
    residues: NDArray[np.uint8]
    offsets: Codes
    bounds: Codes


class SparseFrequencies(NamedTuple):
    """Frequencies above 0 in a block of repertoires, sorted by k-mer and then by row.

    Attributes
    ----------
    kmer
        Index of the k-mer of each frequency, (n,).
    row
        Index of the repertoire of each frequency in the block, (n,).
    value
        The frequencies, (n,).
    """

    kmer: Codes
    row: Codes
    value: NDArray[np.float32]


Frequencies = NDArray[np.float32] | SparseFrequencies


def count_kmers_of(kmer_offsets: Sequence[int]) -> int:
    """Return M, the number of k-mers with these offsets."""
    return int(_N_LETTERS ** len(kmer_offsets))


def count_flagged(flags: Flags, starts: Codes) -> Codes:
    """Return the number of flagged sequences of each repertoire, (B,); `starts`, (B + 1,), are their offsets."""
    return np.array([np.count_nonzero(flags[a:b]) for a, b in pairwise(starts)], np.int64)


def iterate_blocks(dataset: RepertoireDataset, step: Step) -> Iterator[Block]:
    """Yield the repertoires in blocks with a limited number of repertoires and of sequences.

    After each block, the step advances by the number of its sequences.
    """
    first = 0
    while first < len(dataset):
        within = np.cumsum(dataset.n_sequences[first : first + _MAX_REPERTOIRES]) <= _MAX_SEQUENCES
        rows = slice(first, first + max(int(within.sum()), 1))
        block = _read_block(dataset[rows], rows)
        yield block
        step.advance(len(block.offsets) - 1)
        first = rows.stop


def _read_block(dataset: RepertoireDataset, rows: slice) -> Block:
    """Return the repertoires of a dataset as a block, copied by all threads: one would take as long as the counting."""
    parts = list(dataset.map_repertoires(lambda part: (part.residues, part.lengths)))
    bounds = compute_offsets(dataset.n_sequences)
    starts = compute_offsets(np.array([len(residues) for residues, _ in parts], np.int64))
    residues, offsets = np.empty(starts[-1], np.uint8), np.zeros(bounds[-1] + 1, np.int64)

    def copy(b: int) -> None:
        own_residues, lengths = parts[b]
        residues[starts[b] : starts[b + 1]] = own_residues
        own_offsets = offsets[bounds[b] + 1 : bounds[b + 1] + 1]
        np.cumsum(lengths, out=own_offsets)
        own_offsets += starts[b]

    with open_threads() as threads:
        list(threads.map(copy, range(len(parts))))
    return Block(rows, residues, offsets, bounds)


def iterate_frequencies(
    dataset: RepertoireDataset, spacings: Sequence[Sequence[int]], step: Step, excluded: Flags | None = None
) -> Iterator[tuple[slice, int, Frequencies]]:
    """Yield the frequencies of the k-mers of each spacing (occurrences per sequence), block by block.

    Parameters
    ----------
    dataset
        The repertoires.
    spacings
        Offsets of the residues of k-mers from the first one, see `deeprc.datasets.kmers.count_kmers`.
    step
        Step that advances by the number of sequences.
    excluded
        Whether each sequence of the dataset is ignored; None ignores none.

    Yields
    ------
    The rows of the repertoires of the block; the index of the spacing; and the frequencies, (rows, M). They are in
    memory that is overwritten later, or are `SparseFrequencies` if the repertoires are so small that they have only few
    of all k-mers.
    """
    widest = max((count_kmers_of(kmer_offsets) for kmer_offsets in spacings), default=0)
    memory = np.empty(min(_MAX_REPERTOIRES, len(dataset)) * widest, np.float32)
    starts = compute_offsets(dataset.n_sequences)
    longer = find_longer_spacings(spacings)
    for block in iterate_blocks(dataset, step):
        n = len(block.offsets) - 1
        without = np.zeros(n, np.bool_) if excluded is None else excluded[starts[block.rows.start] :][:n]
        counting = _BlockCounting(block, without, spacings, longer, memory)
        for index, found in enumerate(longer):
            if found is None or counting.is_sparse(found.spacing):
                for each, frequencies in counting.count(index):
                    yield block.rows, each, frequencies


class LongerSpacing(NamedTuple):
    """A spacing of k-mers that have one more residue, between the first and the last.

    Attributes
    ----------
    spacing
        Index of the spacing.
    position
        Index of the residue that it has more.
    """

    spacing: int
    position: int


def find_longer_spacings(spacings: Sequence[Sequence[int]]) -> list[LongerSpacing | None]:
    """Return for each spacing one of the others from whose counts its own follow; None if there is none.

    A k-mer with a gap occurs as often as all longer k-mers together that have one of the 20 residues at a place in the
    gap. This is exact, because these places are within the sequence wherever the k-mer is.
    """
    known = {tuple(kmer_offsets): index for index, kmer_offsets in enumerate(spacings)}
    found: list[LongerSpacing | None] = [None] * len(spacings)
    for index, kmer_offsets in enumerate(spacings):
        for position in range(1, len(kmer_offsets)):
            for offset in range(kmer_offsets[position - 1] + 1, kmer_offsets[position]):
                longer = (*kmer_offsets[:position], offset, *kmer_offsets[position:])
                if longer in known:
                    found[index] = LongerSpacing(known[longer], position)
    return found


class _BlockCounting:
    """Counting of the k-mers of a block; the parameters are those of `iterate_frequencies`.

    Parameters
    ----------
    block
        The repertoires.
    without
        Whether each of their sequences is ignored, (N,).
    spacings, longer
        The spacings, and what `find_longer_spacings` returns for them.
    memory
        Memory for the counts of one spacing.
    """

    def __init__(
        self,
        block: Block,
        without: Flags,
        spacings: Sequence[Sequence[int]],
        longer: Sequence[LongerSpacing | None],
        memory: NDArray[np.float32],
    ) -> None:
        self._block, self._without, self._memory = block, without, memory
        self._spacings = [tuple(kmer_offsets) for kmer_offsets in spacings]
        self._longer = longer
        self._n_counted = np.diff(block.bounds) - count_flagged(without, block.bounds)

    def is_sparse(self, index: int) -> bool:
        """Return whether only the k-mers of a spacing that occur are counted."""
        return len(self._block.residues) * _SPARSE < count_kmers_of(self._spacings[index])

    def count(self, index: int) -> Iterator[tuple[int, Frequencies]]:
        """Yield the frequencies of a spacing, and of those that follow from its counts, with their indices."""
        if self.is_sparse(index):
            yield index, self._count_sparse(self._spacings[index])
            return
        n_rows, size = len(self._n_counted), count_kmers_of(self._spacings[index])
        counts = self._memory[: n_rows * size].reshape(n_rows, size)
        _, residues, offsets, bounds = self._block
        run_in_parts(_count, n_rows, residues, offsets, bounds, self._spacings[index], self._without, counts)
        yield from self._divide(index, counts)

    def _divide(self, index: int, counts: NDArray[np.float32]) -> Iterator[tuple[int, Frequencies]]:
        """Yield the frequencies from the counts of a spacing, (rows, M), those of shorter ones first."""
        n_residues = len(self._spacings[index])
        for shorter, longer in enumerate(self._longer):
            if longer is not None and longer.spacing == index:
                places = (_N_LETTERS**longer.position, _N_LETTERS, _N_LETTERS ** (n_residues - 1 - longer.position))
                summed = counts.reshape(len(counts), *places).sum(axis=2).reshape(len(counts), -1)
                yield from self._divide(shorter, summed)
        counts /= np.maximum(self._n_counted, 1).astype(np.float32)[:, None]
        yield index, counts

    def _count_sparse(self, kmer_offsets: tuple[int, ...]) -> SparseFrequencies:
        _, residues, offsets, bounds = self._block
        cells = _encode_cells(residues, offsets, bounds, kmer_offsets, self._without)
        cells, times = np.unique(cells, return_counts=True)
        kmer, row = np.divmod(cells, len(self._n_counted))
        return SparseFrequencies(kmer, row, np.divide(times, self._n_counted[row], dtype=np.float32))


@njit(nogil=True)
def _encode_cells(
    residues: NDArray[np.uint8], offsets: Codes, bounds: Codes, kmer_offsets: tuple[int, ...], excluded: Flags
) -> Codes:
    """Return (index of the k-mer) * rows + (index of the repertoire) for each occurrence, (n,)."""
    cells = np.empty(len(residues), np.int64)
    n, n_rows = 0, len(bounds) - 1
    for b in range(n_rows):
        for s in range(bounds[b], bounds[b + 1]):
            if not excluded[s]:
                for start in range(offsets[s], offsets[s + 1] - kmer_offsets[-1]):
                    cells[n] = np.int64(encode_kmer(residues, start, kmer_offsets)) * n_rows + b
                    n += 1
    return cells[:n]


@njit(nogil=True)
def _count(
    first: int,
    stop: int,
    residues: NDArray[np.uint8],
    offsets: Codes,
    bounds: Codes,
    kmer_offsets: tuple[int, ...],
    excluded: Flags,
    counts: NDArray[np.float32],
) -> None:
    """Write the counts of the k-mers of some repertoires, (rows, M), without the ignored sequences."""
    span = kmer_offsets[-1] + 1
    for b in range(first, stop):
        row = counts[b]
        row[:] = 0
        for sequence in range(bounds[b], bounds[b + 1]):
            if not excluded[sequence]:
                for start in range(offsets[sequence], offsets[sequence + 1] - span + 1):
                    row[encode_kmer(residues, start, kmer_offsets)] += 1
