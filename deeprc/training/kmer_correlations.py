"""How often k-mers with gaps occur in repertoires, and how that goes with labels: streamed, in few passes.

Letters: B repertoires, M k-mers of a pattern of places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from deeprc.datasets.alphabet import AMINO_ACIDS, offsets_of
from deeprc.datasets.dataset import RepertoireDataset

__all__ = ["add_strengths", "correlations", "frequencies"]

Floats = NDArray[np.float64]

_N_LETTERS = len(AMINO_ACIDS)
_BLOCK = 128  # repertoires counted at a time, and their sequences
_SEQUENCES = 4_000_000
_MEMORY = 400_000_000  # bytes of the products with labels that are summed at a time


def correlations(
    dataset: RepertoireDataset, patterns: Sequence[Sequence[int]], targets: Floats
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield each pattern's number and its k-mers' correlations with the columns of the targets, (columns, M).

    As many patterns are counted in one pass over the repertoires as the memory allows.
    """
    rows_of = np.ascontiguousarray(targets.T, np.float32)  # (number of columns, B)
    n_columns = len(rows_of)
    numbers = list(range(len(patterns)))
    while numbers:
        together = [numbers.pop(0)]
        size = _size(patterns[together[0]])
        while numbers and (size + _size(patterns[numbers[0]])) * n_columns * 4 <= _MEMORY:
            size += _size(patterns[numbers[0]])
            together.append(numbers.pop(0))
        sums = [_Sums.of(_size(patterns[number]), n_columns) for number in together]
        for rows, one, counted in frequencies(dataset, [patterns[number] for number in together]):
            sums[one].add(counted, rows_of[:, rows])
        for number, each in zip(together, sums, strict=True):
            yield number, each.correlations(len(dataset))


def _size(places: Sequence[int]) -> int:
    """Return M."""
    return int(_N_LETTERS ** len(places))


@dataclass(frozen=True)
class _Sums:
    """Of k-mers' frequencies, (M,): their sum and squares, and products with targets, (number of columns, M)."""

    total: Floats
    squares: Floats
    products: NDArray[np.float32]

    @classmethod
    def of(cls, size: int, n_columns: int) -> _Sums:
        return cls(np.zeros(size), np.zeros(size), np.zeros((n_columns, size), np.float32))

    def add(self, frequencies: NDArray[np.float32], targets: NDArray[np.float32]) -> None:
        """Add repertoires: their frequencies, (rows, M), and targets, (number of columns, rows)."""
        _add_moments(frequencies, self.total, self.squares)
        np.add(self.products, targets @ frequencies, out=self.products)

    def correlations(self, n: int) -> NDArray[np.float32]:
        """Return them, (number of columns, M), of n repertoires, in the memory of the products."""
        variation = self.squares - self.total**2 / n
        varies = variation > 1e-10 * self.squares
        self.products[:] *= np.where(varies, 1 / np.sqrt(np.where(varies, variation, 1)), 0).astype(np.float32)
        return self.products


def frequencies(
    dataset: RepertoireDataset, patterns: Sequence[Sequence[int]]
) -> Iterator[tuple[slice, int, NDArray[np.float32]]]:
    """Yield how often the k-mers of each pattern, named by its place, occur per sequence, some repertoires at a time.

    These are (rows, M), in reused memory.
    """
    widest = max((_size(places) for places in patterns), default=0)
    memory = np.zeros(min(_BLOCK, len(dataset)) * widest, np.float32)
    for rows in _blocks(dataset.n_sequences):
        parts = [dataset[number] for number in range(rows.start, rows.stop)]
        residues = np.concatenate([part.residues for part in parts])
        offsets = offsets_of(np.concatenate([part.lengths for part in parts]))
        bounds = offsets_of(np.array([len(part) for part in parts], np.int64))
        for number, places in enumerate(patterns):
            counted = memory[: len(parts) * _size(places)].reshape(len(parts), -1)
            _count(residues, offsets, bounds, tuple(places), counted)
            yield rows, number, counted


def _blocks(sizes: NDArray[np.int64]) -> Iterator[slice]:
    """Yield which repertoires are read at a time: limited in number and in sequences."""
    first = 0
    while first < len(sizes):
        within = np.cumsum(sizes[first : first + _BLOCK]) <= _SEQUENCES
        last = first + max(int(within.sum()), 1)
        yield slice(first, last)
        first = last


@numba.njit(parallel=True, cache=True, nogil=True)
def _count(
    residues: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    bounds: NDArray[np.int64],
    places: tuple[int, ...],
    frequencies: NDArray[np.float32],
) -> None:
    """Count the k-mers of sequences bounds[b] to bounds[b + 1] in row b and divide by their number."""
    span = places[-1] + 1
    for b in numba.prange(len(frequencies)):
        row = frequencies[b]
        row[:] = 0
        for sequence in range(bounds[b], bounds[b + 1]):
            for start in range(offsets[sequence], offsets[sequence + 1] - span + 1):
                code = 0
                for place in places:
                    code = code * _N_LETTERS + residues[start + place]
                row[code] += 1
        if bounds[b + 1] > bounds[b]:
            row /= np.float32(bounds[b + 1] - bounds[b])


@numba.njit(parallel=True, cache=True, nogil=True)
def _add_moments(rows: NDArray[np.float32], total: Floats, squares: Floats) -> None:
    """Add the sums and the sums of squares of each column."""
    size = rows.shape[1]
    for block in numba.prange((size + 4095) // 4096):
        for row in rows:
            for j in range(block * 4096, min(size, (block + 1) * 4096)):
                total[j] += row[j]
                squares[j] += np.float64(row[j]) ** 2


@numba.njit(cache=True, nogil=True)
def add_strengths(r: NDArray[np.float32], scale: float, counts: NDArray[np.int64]) -> None:
    """Count correlations, (M,), by their absolute value times the scale, rounded down, in counts (n,)."""
    for value in r:
        counts[min(int(abs(value) * scale), len(counts) - 1)] += 1
