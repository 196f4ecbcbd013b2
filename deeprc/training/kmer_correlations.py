"""Correlations of gapped k-mer frequencies with labels, computed in a few passes over the repertoires.

Letters: B repertoires, M k-mers of one pattern (one tuple of offsets).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.progress import open_step
from deeprc.training.kmer_frequencies import (
    Codes,
    Flags,
    Frequencies,
    SparseFrequencies,
    count_kmers_of,
    iterate_frequencies,
)

__all__ = ["KmerStatistics", "correlate", "standardise", "weigh_by_size"]

Floats = NDArray[np.float64]

_CONSTANT = 1e-12  # length of a column that does not vary
_MEMORY = 400_000_000  # bytes of the products with labels that are summed at a time; the peak is about twice that


class KmerStatistics(NamedTuple):
    """What is known of the k-mers of one pattern; repertoires have weights.

    Attributes
    ----------
    pattern
        Index of the pattern.
    r
        Correlations of the k-mers' frequencies with the targets, (columns, M).
    mean, variance
        Mean and variance of the frequencies, (M,).
    """

    pattern: int
    r: NDArray[np.float32]
    mean: Floats
    variance: Floats


def correlate(
    dataset: RepertoireDataset,
    patterns: Sequence[Sequence[int]],
    targets: Floats,
    weights: Floats,
    left_out: Flags | None = None,
) -> Iterator[KmerStatistics]:
    """Yield for each pattern how the frequencies of its k-mers vary, and how they correlate with the targets.

    As many patterns are counted in one pass over the repertoires as the memory allows. The correlations are in memory
    that the next pass uses again, because new memory takes longer than the sums.

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
    sizes = [count_kmers_of(kmer_offsets) for kmer_offsets in patterns]
    passes = _plan_passes(sizes, _MEMORY // (4 * n_columns))
    memory = np.empty(n_columns * max((sum(sizes[i] for i in each) for each in passes), default=0), np.float32)
    scratch = np.empty(n_columns * max(sizes, default=0), np.float32)
    name = f"search for motifs: correlations, passes over {len(dataset)} repertoires: {len(passes)}"
    with open_step(name, len(passes) * int(dataset.n_sequences.sum())) as step:
        for together in passes:
            ends = np.cumsum([n_columns * sizes[index] for index in together])
            parts = np.split(memory[: ends[-1]], ends[:-1])
            sums = [_Sums.zero(part.reshape(n_columns, -1)) for part in parts]
            used = [patterns[index] for index in together]
            for rows, one, counted in iterate_frequencies(dataset, used, step, left_out):
                sums[one].add(counted, rows_of[:, rows], weights[rows], scratch)
            for index, each in zip(together, sums, strict=True):
                yield each.statistics(index, float(weights.sum()))


def _plan_passes(sizes: Sequence[int], max_size: int) -> list[list[int]]:
    """Return the indices of the patterns of each pass: one pattern, or several with at most `max_size` k-mers."""
    passes: list[list[int]] = []
    room = 0
    for index, size in enumerate(sizes):
        if not passes or size > room:
            passes.append([])
            room = max_size
        passes[-1].append(index)
        room -= size
    return passes


def weigh_by_size(n_counted: Codes, sizes: Codes, donors: Codes) -> Floats:
    """Return the weights of frequencies among `n_counted` sequences in repertoires of these sizes, (B,).

    A frequency varies by chance, the more the fewer sequences there are, and between people, however many sequences
    there are. The weight of a donor follows from a variance of 1/n + 1/m, where n is the number of sequences of the
    donor and m the median of these numbers, so that neither part rules. The repertoires of a donor share this weight in
    proportion to their sequences: it does not grow with the number of repertoires.

    Parameters
    ----------
    n_counted, sizes
        The numbers of sequences that count, and of all sequences, (B,).
    donors
        Index of each repertoire's donor, (B,).
    """
    of_donor = np.bincount(donors, n_counted)
    return np.asarray(n_counted / (of_donor[donors] + np.median(np.bincount(donors, sizes))))


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
    def zero(cls, products: NDArray[np.float32]) -> _Sums:
        """Return sums of nothing, in the memory of the products, (columns, M)."""
        products[:] = 0
        size = products.shape[1]
        return cls(np.zeros(size), np.zeros(size), products)

    def add(
        self, frequencies: Frequencies, targets: NDArray[np.float32], weights: Floats, scratch: NDArray[np.float32]
    ) -> None:
        """Add repertoires.

        Parameters
        ----------
        frequencies, targets, weights
            Their frequencies, (rows, M), weighted targets, (columns, rows), and weights.
        scratch
            Memory for as many numbers as there are products.
        """
        if isinstance(frequencies, SparseFrequencies):
            _add_sparse_moments(*frequencies, weights, self.total, self.squares)
            _add_sparse_products(*frequencies, targets, self.products)
        else:
            _add_moments(frequencies, weights, self.total, self.squares)
            added = np.matmul(targets, frequencies, out=scratch[: self.products.size].reshape(self.products.shape))
            np.add(self.products, added, out=self.products)

    def statistics(self, index: int, weight: float) -> KmerStatistics:
        """Return the statistics, with the correlations in the memory of the products.

        Parameters
        ----------
        index
            Index of the pattern.
        weight
            Sum of the weights of all repertoires.
        """
        variation = self.squares - self.total**2 / weight
        varies = variation > 1e-10 * self.squares
        self.products[:] *= np.where(varies, 1 / np.sqrt(np.where(varies, variation, 1)), 0).astype(np.float32)
        return KmerStatistics(index, self.products, self.total / weight, np.where(varies, variation, 0) / weight)


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
