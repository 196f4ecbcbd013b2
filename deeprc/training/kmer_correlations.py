"""How often k-mers with gaps occur in repertoires, and how that goes with labels: streamed, in few passes.

Letters: B repertoires, M k-mers of a pattern of places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.alphabet import AMINO_ACIDS, offsets_of
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.kmers import kmer_code

__all__ = [
    "Occurrences",
    "SparseFrequencies",
    "carriers",
    "correlations",
    "flagged",
    "frequencies",
    "occurrences",
    "size_weights",
    "standardised",
]

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]
Flags = NDArray[np.bool_]

_N_LETTERS = len(AMINO_ACIDS)
_BLOCK = 128  # repertoires counted at a time, and their sequences
_SEQUENCES = 4_000_000
_MOST_OCCURRENCES = 10_000_000  # that are kept in memory
_SPARSE = 2  # where there are that many times more k-mers than residues, only those that occur are counted
_CONSTANT = 1e-12  # length of what does not vary
_MEMORY = 400_000_000  # bytes of the products with labels that are summed at a time; the peak is about twice that


def correlations(
    dataset: RepertoireDataset,
    patterns: Sequence[Sequence[int]],
    targets: Floats,
    weights: Floats,
    left_out: Flags | None = None,
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield each pattern's number and its k-mers' weighted correlations with the columns of the targets, (columns, M).

    As many patterns are counted in one pass over the repertoires as the memory allows. See `frequencies`.

    Parameters
    ----------
    dataset, patterns, left_out
        See `frequencies`.
    targets
        (B, columns).
    weights
        Of the repertoires, (B,).
    """
    rows_of = np.ascontiguousarray((weights[:, None] * standardised(targets, weights)).T, np.float32)  # (columns, B)
    n_columns = len(rows_of)
    numbers = list(range(len(patterns)))
    while numbers:
        together = [numbers.pop(0)]
        size = _size(patterns[together[0]])
        while numbers and (size + _size(patterns[numbers[0]])) * n_columns * 4 <= _MEMORY:
            size += _size(patterns[numbers[0]])
            together.append(numbers.pop(0))
        sums = [_Sums.of(_size(patterns[number]), n_columns) for number in together]
        for rows, one, counted in frequencies(dataset, [patterns[number] for number in together], left_out):
            sums[one].add(counted, rows_of[:, rows], weights[rows])
        while sums:
            yield together.pop(0), sums.pop(0).correlations(float(weights.sum()))  # frees each before the next pass


def size_weights(n_counted: Codes, sizes: Codes) -> Floats:
    """Return how much frequencies among so many sequences count, (B,), in repertoires of these sizes.

    A frequency varies by chance, the more the fewer sequences there are, and between people, however many there are.
    With a variance of 1/n + 1/m, m the median size, neither rules.
    """
    return np.asarray(n_counted / (n_counted + np.median(sizes)))


def standardised(columns: Floats, weights: Floats) -> Floats:
    """Return columns, (B, n), less their weighted mean and of weighted length 1; a constant one is 0 everywhere."""
    centred = columns - weights @ columns / weights.sum()
    length = np.sqrt(weights @ centred**2)
    return np.asarray(centred / np.where(length > _CONSTANT, length, np.inf))


def _size(places: Sequence[int]) -> int:
    """Return M."""
    return int(_N_LETTERS ** len(places))


@dataclass(frozen=True)
class _Sums:
    """Of k-mers' frequencies, (M,), weighted: their sum and squares, and products with targets, (columns, M)."""

    total: Floats
    squares: Floats
    products: NDArray[np.float32]

    @classmethod
    def of(cls, size: int, n_columns: int) -> _Sums:
        return cls(np.zeros(size), np.zeros(size), np.zeros((n_columns, size), np.float32))

    def add(
        self, frequencies: NDArray[np.float32] | SparseFrequencies, targets: NDArray[np.float32], weights: Floats
    ) -> None:
        """Add repertoires: their frequencies, (rows, M), weighted targets, (columns, rows), and weights."""
        if isinstance(frequencies, SparseFrequencies):
            _add_sparse_moments(*frequencies, weights, self.total, self.squares)
            _add_sparse_products(*frequencies, targets, self.products)
        else:
            _add_moments(frequencies, weights, self.total, self.squares)
            np.add(self.products, targets @ frequencies, out=self.products)

    def correlations(self, weight: float) -> NDArray[np.float32]:
        """Return them, (columns, M), of repertoires with this weight together, in the memory of the products."""
        variation = self.squares - self.total**2 / weight
        varies = variation > 1e-10 * self.squares
        self.products[:] *= np.where(varies, 1 / np.sqrt(np.where(varies, variation, 1)), 0).astype(np.float32)
        return self.products


def frequencies(
    dataset: RepertoireDataset, patterns: Sequence[Sequence[int]], left_out: Flags | None = None
) -> Iterator[tuple[slice, int, NDArray[np.float32] | SparseFrequencies]]:
    """Yield how often the k-mers of each pattern, named by its place, occur per sequence, some repertoires at a time.

    Each time these are the repertoires' rows, the pattern, and (rows, M), in reused memory, or `SparseFrequencies` of
    small repertoires, whose sequences hold few of all k-mers. Sequences that are `left_out`, a flag for each of all
    repertoires' sequences, count neither as occurrences nor among the sequences.
    """
    widest = max((_size(places) for places in patterns), default=0)
    memory = np.empty(min(_BLOCK, len(dataset)) * widest, np.float32)
    starts = offsets_of(dataset.n_sequences)
    for rows, residues, offsets, bounds in _blocks(dataset):
        n = len(offsets) - 1
        without = np.zeros(n, np.bool_) if left_out is None else left_out[starts[rows.start] :][:n]
        for number, places in enumerate(patterns):
            size, n_rows = _size(places), len(bounds) - 1
            if len(residues) * _SPARSE < size:
                cells, times = np.unique(_cells(residues, offsets, bounds, tuple(places), without), return_counts=True)
                kmer, row = np.divmod(cells, n_rows)
                n_counted = np.diff(bounds) - flagged(without, bounds)
                value = np.divide(times, n_counted[row], dtype=np.float32)
                yield rows, number, SparseFrequencies(kmer, row, value)
            else:
                counted = memory[: n_rows * size].reshape(n_rows, size)
                _count(residues, offsets, bounds, tuple(places), without, counted)
                yield rows, number, counted


class SparseFrequencies(NamedTuple):
    """The frequencies above 0 of a block of repertoires, by k-mer and then by row.

    Attributes
    ----------
    kmer, row
        Of each frequency, (n,).
    value
        The frequencies, (n,).
    """

    kmer: Codes
    row: Codes
    value: NDArray[np.float32]


@dataclass(frozen=True)
class Occurrences:
    """Where k-mers occur.

    Attributes
    ----------
    repertoire
        Of each occurrence, (m,) int32.
    sequence
        Of each, counted over all repertoires, (m,).
    which
        K-mer it is, (m,) int32.
    looked_for
        Whether each k-mer was, (n,).
    """

    repertoire: NDArray[np.int32]
    sequence: Codes
    which: NDArray[np.int32]
    looked_for: Flags


def occurrences(
    dataset: RepertoireDataset,
    patterns: Sequence[Sequence[int]],
    pattern: Codes,
    code: Codes,
    *,
    most: int | None = None,
) -> Occurrences:
    """Find k-mers; one that has more occurrences than those before it leave room for is not looked for.

    Parameters
    ----------
    dataset
        The repertoires.
    patterns
        Places of the k-mers' residues.
    pattern, code
        Of each k-mer: its pattern, and its place among the pattern's, (n,).
    most
        Occurrences that there is room for; None: ten million.
    """
    counts = np.zeros((len(dataset), len(code)), np.int64)
    for rows, residues, offsets, bounds in _blocks(dataset):
        for places, table in _tables(patterns, pattern, code):
            _tally(residues, offsets, bounds, places, table, counts[rows])
    looked_for = _fitting(counts.sum(axis=0), _MOST_OCCURRENCES if most is None else most)
    counts[:, ~looked_for] = 0
    n = int(counts.sum())
    repertoire, which = np.empty((2, n), np.int32)
    sequence = np.empty(n, np.int64)
    first = 0
    starts = offsets_of(dataset.n_sequences)
    for rows, residues, offsets, bounds in _blocks(dataset):
        for places, table in _tables(patterns, np.where(looked_for, pattern, -1), code):
            found = counts[rows][:, table[table >= 0]].sum(axis=1)
            ends = first + offsets_of(found)
            _find(residues, offsets, bounds, places, table, ends, sequence, which)
            part = slice(first, int(ends[-1]))
            sequence[part] += starts[rows.start]
            repertoire[part] = np.repeat(np.arange(rows.start, rows.stop), found)
            first = part.stop
    return Occurrences(repertoire, sequence, which, looked_for)


def carriers(dataset: RepertoireDataset, places: Sequence[int], code: int) -> Flags:
    """Return which sequences, counted over all repertoires, hold a k-mer."""
    starts = offsets_of(dataset.n_sequences)
    carrying = np.zeros(int(starts[-1]), np.bool_)
    for rows, residues, offsets, _ in _blocks(dataset):
        _mark(residues, offsets, tuple(places), code, carrying[starts[rows.start] : starts[rows.stop]])
    return carrying


def flagged(flags: Flags, starts: Codes) -> Codes:
    """Return how many sequences of each repertoire have a flag, (B,); starts (B + 1,) are of their sequences."""
    return np.array([np.count_nonzero(flags[a:b]) for a, b in pairwise(starts)], np.int64)


def _fitting(counts: Codes, most: int) -> Flags:
    """Return which k-mers, one after the other, have no more occurrences than there is room left for."""
    fitting = np.zeros(len(counts), np.bool_)
    for i, count in enumerate(counts):
        if count <= most:
            fitting[i] = True
            most -= count
    return fitting


def _tables(
    patterns: Sequence[Sequence[int]], pattern: Codes, code: Codes
) -> Iterator[tuple[tuple[int, ...], NDArray[np.int32]]]:
    """Yield the places of each used pattern, and which k-mer each code is, (M,), -1 for none."""
    for number in np.unique(pattern[pattern >= 0]):
        table = np.full(_size(patterns[number]), -1, np.int32)
        table[code[pattern == number]] = np.flatnonzero(pattern == number)
        yield tuple(patterns[number]), table


def _blocks(dataset: RepertoireDataset) -> Iterator[tuple[slice, NDArray[np.uint8], Codes, Codes]]:
    """Yield some repertoires at a time: their rows, residues, sequences' offsets, and bounds among the sequences.

    They are limited in number and in sequences.
    """
    first = 0
    while first < len(dataset):
        within = np.cumsum(dataset.n_sequences[first : first + _BLOCK]) <= _SEQUENCES
        rows = slice(first, first + max(int(within.sum()), 1))
        parts = [dataset[number] for number in range(rows.start, rows.stop)]
        residues = np.concatenate([part.residues for part in parts])
        offsets = offsets_of(np.concatenate([part.lengths for part in parts]))
        yield rows, residues, offsets, offsets_of(np.array([len(part) for part in parts], np.int64))
        first = rows.stop


@njit(parallel=True, nogil=True)
def _tally(
    residues: NDArray[np.uint8],
    offsets: Codes,
    bounds: Codes,
    places: tuple[int, ...],
    table: NDArray[np.int32],
    counts: Codes,
) -> None:
    """Add how often each k-mer of a table occurs in each repertoire, (rows, n)."""
    for b in numba.prange(len(bounds) - 1):
        for s in range(bounds[b], bounds[b + 1]):
            for start in range(offsets[s], offsets[s + 1] - places[-1]):
                which = table[kmer_code(residues, start, places)]
                if which >= 0:
                    counts[b, which] += 1


@njit(parallel=True, nogil=True)
def _find(
    residues: NDArray[np.uint8],
    offsets: Codes,
    bounds: Codes,
    places: tuple[int, ...],
    table: NDArray[np.int32],
    ends: Codes,
    sequence: Codes,
    which: NDArray[np.int32],
) -> None:
    """Write the sequence of each occurrence, and which k-mer it is: those of repertoire b from place ends[b] on."""
    for b in numba.prange(len(bounds) - 1):
        n = ends[b]
        for s in range(bounds[b], bounds[b + 1]):
            for start in range(offsets[s], offsets[s + 1] - places[-1]):
                found = table[kmer_code(residues, start, places)]
                if found >= 0:
                    sequence[n], which[n] = s, found
                    n += 1


@njit(parallel=True, nogil=True)
def _mark(residues: NDArray[np.uint8], offsets: Codes, places: tuple[int, ...], code: int, carrying: Flags) -> None:
    """Note which sequences hold a k-mer."""
    for s in numba.prange(len(carrying)):
        for start in range(offsets[s], offsets[s + 1] - places[-1]):
            if kmer_code(residues, start, places) == code:
                carrying[s] = True


@njit(nogil=True)
def _cells(
    residues: NDArray[np.uint8], offsets: Codes, bounds: Codes, places: tuple[int, ...], left_out: Flags
) -> Codes:
    """Return the k-mer of each occurrence times the number of rows, plus its row."""
    cells = np.empty(len(residues), np.int64)
    n, n_rows = 0, len(bounds) - 1
    for b in range(n_rows):
        for s in range(bounds[b], bounds[b + 1]):
            if not left_out[s]:
                for start in range(offsets[s], offsets[s + 1] - places[-1]):
                    cells[n] = kmer_code(residues, start, places) * n_rows + b
                    n += 1
    return cells[:n]


@njit(parallel=True, nogil=True)
def _count(
    residues: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    bounds: NDArray[np.int64],
    places: tuple[int, ...],
    left_out: Flags,
    frequencies: NDArray[np.float32],
) -> None:
    """Count the k-mers of sequences bounds[b] to bounds[b + 1] in row b, and divide by how many are not left out."""
    span = places[-1] + 1
    for b in numba.prange(len(frequencies)):
        row = frequencies[b]
        row[:] = 0
        n = 0
        for sequence in range(bounds[b], bounds[b + 1]):
            if not left_out[sequence]:
                n += 1
                for start in range(offsets[sequence], offsets[sequence + 1] - span + 1):
                    row[kmer_code(residues, start, places)] += 1
        if n > 0:
            row /= np.float32(n)


@njit(parallel=True, nogil=True)
def _add_moments(rows: NDArray[np.float32], weights: Floats, total: Floats, squares: Floats) -> None:
    """Add the weighted sums and sums of squares of each column."""
    size = rows.shape[1]
    for block in numba.prange((size + 4095) // 4096):
        for i in range(len(rows)):
            for j in range(block * 4096, min(size, (block + 1) * 4096)):
                value = np.float64(rows[i, j])
                total[j] += weights[i] * value
                squares[j] += weights[i] * value**2


@njit(nogil=True)
def _add_sparse_moments(
    kmers: Codes, rows: Codes, frequencies: NDArray[np.float32], weights: Floats, total: Floats, squares: Floats
) -> None:
    """Add the weighted sums and sums of squares of `SparseFrequencies`."""
    for i in range(len(kmers)):
        value = np.float64(frequencies[i])
        total[kmers[i]] += weights[rows[i]] * value
        squares[kmers[i]] += weights[rows[i]] * value**2


@njit(parallel=True, nogil=True)
def _add_sparse_products(
    kmers: Codes,
    rows: Codes,
    frequencies: NDArray[np.float32],
    targets: NDArray[np.float32],
    products: NDArray[np.float32],
) -> None:
    """Add the products of `SparseFrequencies` with each row's targets."""
    for column in numba.prange(len(products)):
        i = 0
        while i < len(kmers):
            kmer = kmers[i]
            total = np.float32(0)
            while i < len(kmers) and kmers[i] == kmer:
                total += targets[column, rows[i]] * frequencies[i]
                i += 1
            products[column, kmer] += total
