"""How the frequencies of k-mers with gaps correlate with labels: streamed, in few passes over the repertoires.

Letters: B repertoires, M k-mers of one pattern (one tuple of offsets).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numba
import numpy as np
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.training.kmer_frequencies import (
    Codes,
    Flags,
    Frequencies,
    SparseFrequencies,
    count_kmers_of,
    iterate_frequencies,
)

__all__ = ["correlate", "standardise", "weigh_by_size"]

Floats = NDArray[np.float64]

_CONSTANT = 1e-12  # length of a column that does not vary
_MEMORY = 400_000_000  # bytes of the products with labels that are summed at a time; the peak is about twice that


def correlate(
    dataset: RepertoireDataset,
    patterns: Sequence[Sequence[int]],
    targets: Floats,
    weights: Floats,
    left_out: Flags | None = None,
) -> Iterator[tuple[int, NDArray[np.float32]]]:
    """Yield for each pattern its index and the weighted correlations of its k-mers with the targets, (columns, M).

    As many patterns are counted in one pass over the repertoires as the memory allows.

    Parameters
    ----------
    dataset, patterns, left_out
        See `iterate_frequencies`.
    targets
        One column for each label, as it is or permuted, (B, columns).
    weights
        Weights of the repertoires, (B,).
    """
    weighted = weights[:, None] * standardise(targets, weights)  # (B, columns)
    rows_of = np.ascontiguousarray(weighted.T, np.float32)  # (columns, B)
    n_columns = len(rows_of)
    remaining = list(range(len(patterns)))
    while remaining:
        together = [remaining.pop(0)]
        size = count_kmers_of(patterns[together[0]])
        while remaining and (size + count_kmers_of(patterns[remaining[0]])) * n_columns * 4 <= _MEMORY:
            size += count_kmers_of(patterns[remaining[0]])
            together.append(remaining.pop(0))
        sums = [_Sums.zero(count_kmers_of(patterns[index]), n_columns) for index in together]
        for rows, one, counted in iterate_frequencies(dataset, [patterns[index] for index in together], left_out):
            sums[one].add(counted, rows_of[:, rows], weights[rows])
        while sums:
            yield together.pop(0), sums.pop(0).correlations(float(weights.sum()))  # frees each before the next pass


def weigh_by_size(n_counted: Codes, sizes: Codes) -> Floats:
    """Return the weights of frequencies among `n_counted` sequences in repertoires of these sizes, (B,).

    A frequency varies by chance, the more the fewer sequences there are, and between people, however many sequences
    there are. The weights follow from a variance of 1/n + 1/m, where m is the median size, so that neither part rules.
    """
    return np.asarray(n_counted / (n_counted + np.median(sizes)))


def standardise(columns: Floats, weights: Floats) -> Floats:
    """Return the columns, (B, n), less their weighted mean and with weighted length 1; a constant one becomes 0."""
    centred = columns - weights @ columns / weights.sum()
    length = np.sqrt(weights @ centred**2)
    return np.asarray(centred / np.where(length > _CONSTANT, length, np.inf))


@dataclass(frozen=True)
class _Sums:
    """Weighted sums over repertoires, from which correlations follow.

    Attributes
    ----------
    total, squares
        Sums of the k-mers' frequencies and of their squares, (M,).
    products
        Sums of the products of frequencies and targets, (columns, M).
    """

    total: Floats
    squares: Floats
    products: NDArray[np.float32]

    @classmethod
    def zero(cls, size: int, n_columns: int) -> _Sums:
        return cls(np.zeros(size), np.zeros(size), np.zeros((n_columns, size), np.float32))

    def add(self, frequencies: Frequencies, targets: NDArray[np.float32], weights: Floats) -> None:
        """Add repertoires: their frequencies, (rows, M), weighted targets, (columns, rows), and weights."""
        if isinstance(frequencies, SparseFrequencies):
            _add_sparse_moments(*frequencies, weights, self.total, self.squares)
            _add_sparse_products(*frequencies, targets, self.products)
        else:
            _add_moments(frequencies, weights, self.total, self.squares)
            np.add(self.products, targets @ frequencies, out=self.products)

    def correlations(self, weight: float) -> NDArray[np.float32]:
        """Return the correlations, (columns, M), in the memory of the products.

        Parameters
        ----------
        weight
            Sum of the weights of all repertoires.
        """
        variation = self.squares - self.total**2 / weight
        varies = variation > 1e-10 * self.squares
        self.products[:] *= np.where(varies, 1 / np.sqrt(np.where(varies, variation, 1)), 0).astype(np.float32)
        return self.products


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
