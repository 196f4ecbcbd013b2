"""Frequencies of gapped k-mers in repertoires, a block of repertoires at a time.

Letters: B repertoires, N sequences of a block, R residues of a block, M k-mers of one spacing (one tuple of offsets).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Flags, Integers
from deeprc.compilation import njit, open_threads, run_in_parts
from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.kmers import encode_kmer
from deeprc.progress import Step
from deeprc.training.kmer_sets import Spacing

__all__ = [
    "Block",
    "BlockSequences",
    "Frequencies",
    "FrequenciesOfBlock",
    "LongerSpacing",
    "SparseFrequencies",
    "count_flagged",
    "count_kmers_of",
    "find_longer_spacings",
    "iterate_blocks",
    "iterate_frequencies",
]

_N_LETTERS = len(AMINO_ACIDS)
_MAX_REPERTOIRES = 128  # largest number in a block
_MAX_SEQUENCES = 8_000_000  # largest number in a block, if it has several repertoires
_SPARSE_FACTOR = 2  # if a block has this factor fewer residues than there are k-mers, only its own k-mers are counted


class BlockSequences(NamedTuple):
    """The sequences of some repertoires, end to end, for compiled code.

    Attributes
    ----------
    residues
        Amino-acid indices, (R,) uint8.
    offsets
        Offsets of the sequences in the residues, (N + 1,).
    repertoire_offsets
        Offsets of the repertoires in the sequences, (B + 1,).
    """

    residues: NDArray[np.uint8]
    offsets: Integers
    repertoire_offsets: Integers


class Block(NamedTuple):
    """Some consecutive repertoires, as a slice of the dataset, and their sequences."""

    repertoires: slice
    sequences: BlockSequences


class SparseFrequencies(NamedTuple):
    """Frequencies above 0 in a block of repertoires, sorted by k-mer and then by repertoire.

    Attributes
    ----------
    kmer
        Index of the k-mer of each frequency, (n,).
    repertoire
        Index of the repertoire of each frequency in the block, (n,).
    value
        The frequencies, (n,).
    """

    kmer: Integers
    repertoire: Integers
    value: NDArray[np.float32]


Frequencies = NDArray[np.float32] | SparseFrequencies


def count_kmers_of(spacing: Spacing) -> int:
    """Return M, the number of k-mers with this spacing."""
    return int(_N_LETTERS ** len(spacing))


def count_flagged(flags: Flags, repertoire_offsets: Integers) -> Integers:
    """Return the number of flagged sequences of each repertoire, (B,), from the offsets of repertoires, (B + 1,)."""
    return np.array([np.count_nonzero(flags[start:stop]) for start, stop in pairwise(repertoire_offsets)], np.int64)


def iterate_blocks(dataset: RepertoireDataset, step: Step) -> Iterator[Block]:
    """Yield the repertoires in blocks with a limited number of repertoires and of sequences.

    After each block, the step advances by the number of its sequences.
    """
    first = 0
    while first < len(dataset):
        fits = np.cumsum(dataset.n_sequences[first : first + _MAX_REPERTOIRES]) <= _MAX_SEQUENCES
        repertoires = slice(first, first + max(int(fits.sum()), 1))
        block = _read_block(dataset[repertoires], repertoires)
        yield block
        step.advance(len(block.sequences.offsets) - 1)
        first = repertoires.stop


def _read_block(dataset: RepertoireDataset, repertoires: slice) -> Block:
    """Return the repertoires of a dataset as a block, copied by all threads: one would take as long as the counting."""
    parts = list(dataset.map_repertoires(lambda part: (part.residues, part.lengths)))
    repertoire_offsets = compute_offsets(dataset.n_sequences)
    starts = compute_offsets(np.array([len(residues) for residues, _ in parts], np.int64))
    residues, offsets = np.empty(starts[-1], np.uint8), np.zeros(repertoire_offsets[-1] + 1, np.int64)

    def copy(b: int) -> None:
        own_residues, lengths = parts[b]
        residues[starts[b] : starts[b + 1]] = own_residues
        own_offsets = offsets[repertoire_offsets[b] + 1 : repertoire_offsets[b + 1] + 1]
        np.cumsum(lengths, out=own_offsets)
        own_offsets += starts[b]

    with open_threads() as threads:
        list(threads.map(copy, range(len(parts))))
    return Block(repertoires, BlockSequences(residues, offsets, repertoire_offsets))


class FrequenciesOfBlock(NamedTuple):
    """The frequencies of the k-mers of one spacing in a block of repertoires.

    Attributes
    ----------
    repertoires
        Repertoires of the block, as a slice of the dataset.
    spacing_index
        Index of the spacing.
    frequencies
        Frequencies, (repertoires, M), in memory that is overwritten later; or `SparseFrequencies` if the repertoires
        are so small that they have only few of all k-mers.
    """

    repertoires: slice
    spacing_index: int
    frequencies: Frequencies


def iterate_frequencies(
    dataset: RepertoireDataset, spacings: Sequence[Spacing], step: Step, excluded: Flags | None = None
) -> Iterator[FrequenciesOfBlock]:
    """Yield the frequencies of the k-mers of each spacing (occurrences per sequence), block by block.

    Parameters
    ----------
    dataset
        The repertoires.
    spacings
        Spacings of the k-mers.
    step
        Step that advances by the number of sequences.
    excluded
        Whether each sequence of the dataset is ignored; None ignores none.
    """
    max_kmers = max((count_kmers_of(spacing) for spacing in spacings), default=0)
    buffer = np.empty(min(_MAX_REPERTOIRES, len(dataset)) * max_kmers, np.float32)
    repertoire_offsets = compute_offsets(dataset.n_sequences)
    longer_spacings = find_longer_spacings(spacings)
    for block in iterate_blocks(dataset, step):
        n, first = len(block.sequences.offsets) - 1, repertoire_offsets[block.repertoires.start]
        own_excluded = np.zeros(n, np.bool_) if excluded is None else excluded[first : first + n]
        counter = _BlockCounter(block.sequences, own_excluded, spacings, longer_spacings, buffer)
        for spacing_index, longer in enumerate(longer_spacings):
            follows_from_longer = longer is not None and not counter.is_sparse(longer.spacing_index)
            if not follows_from_longer:
                for index, frequencies in counter.count(spacing_index):
                    yield FrequenciesOfBlock(block.repertoires, index, frequencies)


class LongerSpacing(NamedTuple):
    """A spacing of k-mers that have one more residue, between the first and the last.

    Attributes
    ----------
    spacing_index
        Index of the spacing.
    inserted
        Index of the additional residue among its residues.
    """

    spacing_index: int
    inserted: int


def find_longer_spacings(spacings: Sequence[Spacing]) -> list[LongerSpacing | None]:
    """Return for each spacing a longer one whose counts sum to the counts of this spacing; None if there is none.

    Take all longer k-mers that have one of the 20 residues at a place in the gap of a k-mer: together they occur as
    often as the k-mer. This is exact, because these places are within the sequence wherever the k-mer is. For example,
    the counts of the spacing (0, 2) are sums of those of (0, 1, 2).
    """
    index_of = {spacing: index for index, spacing in enumerate(spacings)}
    longer_spacings: list[LongerSpacing | None] = [None] * len(spacings)
    for index, spacing in enumerate(spacings):
        for i in range(1, len(spacing)):
            for offset in range(spacing[i - 1] + 1, spacing[i]):
                longer = (*spacing[:i], offset, *spacing[i:])
                if longer in index_of:
                    longer_spacings[index] = LongerSpacing(index_of[longer], i)
    return longer_spacings


class _BlockCounter:
    """A counter of the k-mers in a block.

    Parameters
    ----------
    sequences
        Sequences of the block.
    excluded
        Whether each of them is ignored, (N,).
    spacings, longer_spacings
        The spacings, and what `find_longer_spacings` returns for them.
    buffer
        Memory for the counts of one spacing.
    """

    def __init__(
        self,
        sequences: BlockSequences,
        excluded: Flags,
        spacings: Sequence[Spacing],
        longer_spacings: Sequence[LongerSpacing | None],
        buffer: NDArray[np.float32],
    ) -> None:
        self._sequences, self._excluded, self._buffer = sequences, excluded, buffer
        self._spacings, self._longer_spacings = spacings, longer_spacings
        offsets = sequences.repertoire_offsets
        self._n_counted = np.diff(offsets) - count_flagged(excluded, offsets)

    def is_sparse(self, index: int) -> bool:
        """Return whether a block is so small that of the k-mers of a spacing, only those that occur are counted."""
        return len(self._sequences.residues) * _SPARSE_FACTOR < count_kmers_of(self._spacings[index])

    def count(self, index: int) -> Iterator[tuple[int, Frequencies]]:
        """Yield the frequencies of a spacing, and of those that follow from its counts, with their indices."""
        if self.is_sparse(index):
            yield index, self._count_sparse(self._spacings[index])
            return
        n_repertoires, size = len(self._n_counted), count_kmers_of(self._spacings[index])
        counts = self._buffer[: n_repertoires * size].view(np.uint32).reshape(n_repertoires, size)
        run_in_parts(_count_kmers, n_repertoires, self._sequences, self._spacings[index], self._excluded, counts)
        yield from self._divide_counts(index, counts)

    def _divide_counts(self, index: int, counts: NDArray[np.uint32]) -> Iterator[tuple[int, Frequencies]]:
        """Yield the frequencies from the counts of a spacing, (repertoires, M), those of shorter ones first.

        The frequencies overwrite the counts.
        """
        n_residues = len(self._spacings[index])
        for shorter_index, longer in enumerate(self._longer_spacings):
            if longer is not None and longer.spacing_index == index:
                n_before, n_after = longer.inserted, n_residues - 1 - longer.inserted  # residues of the k-mer
                by_inserted = counts.reshape(len(counts), _N_LETTERS**n_before, _N_LETTERS, _N_LETTERS**n_after)
                shorter_counts = by_inserted.sum(axis=2, dtype=np.uint32).reshape(len(counts), -1)
                yield from self._divide_counts(shorter_index, shorter_counts)
        run_in_parts(_write_frequencies, len(counts), counts, np.maximum(self._n_counted, 1).astype(np.float32))
        yield index, counts.view(np.float32)

    def _count_sparse(self, spacing: Spacing) -> SparseFrequencies:
        """Return the frequencies of the k-mers of a spacing that occur."""
        occurrences = _encode_cells(self._sequences, spacing, self._excluded)
        cells, counts = np.unique(occurrences, return_counts=True)
        kmer, repertoire = np.divmod(cells, len(self._n_counted))
        return SparseFrequencies(kmer, repertoire, np.divide(counts, self._n_counted[repertoire], dtype=np.float32))


@njit(nogil=True)
def _encode_cells(sequences: BlockSequences, spacing: Spacing, excluded: Flags) -> Integers:
    """Return the cell of each occurrence in the table of k-mers by repertoires, as a flat index, (n,)."""
    residues, offsets, repertoire_offsets = sequences
    cells = np.empty(len(residues), np.int64)
    n, n_repertoires = 0, len(repertoire_offsets) - 1
    for b in range(n_repertoires):
        for s in range(repertoire_offsets[b], repertoire_offsets[b + 1]):
            if not excluded[s]:
                for start in range(offsets[s], offsets[s + 1] - spacing[-1]):
                    cells[n] = np.int64(encode_kmer(residues, start, spacing)) * n_repertoires + b
                    n += 1
    return cells[:n]


@njit(nogil=True)
def _count_kmers(
    first: int, stop: int, sequences: BlockSequences, spacing: Spacing, excluded: Flags, counts: NDArray[np.uint32]
) -> None:
    """Write the counts of the k-mers of some repertoires, (repertoires, M), without the ignored sequences.

    Counts are integers, because a floating-point number of 32 bits cannot count beyond 16,777,216.
    """
    residues, offsets, repertoire_offsets = sequences
    for b in range(first, stop):
        row = counts[b]
        row[:] = 0
        for s in range(repertoire_offsets[b], repertoire_offsets[b + 1]):
            if not excluded[s]:
                for start in range(offsets[s], offsets[s + 1] - spacing[-1]):
                    row[encode_kmer(residues, start, spacing)] += 1


def _write_frequencies(first: int, stop: int, counts: NDArray[np.uint32], n_counted: NDArray[np.float32]) -> None:
    """Write the frequencies of some repertoires, (repertoires, M) float32, over their counts."""
    for row, n in zip(counts[first:stop], n_counted[first:stop], strict=True):
        np.divide(row.astype(np.float32), n, out=row.view(np.float32))
