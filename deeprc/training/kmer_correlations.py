"""Correlations of gapped k-mer frequencies with labels, computed in a few passes over the repertoires.

Letters: B repertoires, M k-mers of one spacing (one tuple of offsets), L true and permuted labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.blas import sgemm

from deeprc import ranks
from deeprc.arrays import Flags, Floats, Integers
from deeprc.compilation import njit, run_in_blocks, run_in_parts
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.progress import open_step
from deeprc.training.kmer_frequencies import (
    Frequencies,
    SparseFrequencies,
    count_kmers_of,
    find_longer_spacings,
    iterate_frequencies,
)
from deeprc.training.kmer_sets import Spacing

__all__ = ["KmerStatistics", "correlate", "correlate_columns", "standardise", "weigh_by_size"]

_COLUMNS_PER_THREAD = 4096  # largest number of columns whose sums a thread computes at a time
_MIN_LENGTH = 1e-12  # a centred column with a smaller weighted length is constant
_MIN_VARIATION = 1e-10  # a k-mer whose variation is a smaller share of its sum of squares is constant: this is rounding
# bytes of the sums of products in one pass, for all ranks of a machine; the peak of memory is about half more
_LARGE_MEMORY = 700_000_000  # with 100 permutations of one output, a single pass counts all 25 spacings
_SMALL_MEMORY = 300_000_000  # the same for a cohort that is read in a moment
_SMALL_COHORT = 20_000_000  # sequences


class KmerStatistics(NamedTuple):
    """Weighted moments of the k-mers of one spacing, and their correlations with labels.

    Attributes
    ----------
    spacing_index
        Index of the spacing.
    correlations
        Correlation of each k-mer's frequency with each label, (L, M).
    mean, variance
        Mean and variance of the frequencies, (M,).
    """

    spacing_index: int
    correlations: NDArray[np.float32]
    mean: Floats
    variance: Floats


def correlate(
    dataset: RepertoireDataset,
    spacings: Sequence[Spacing],
    labels: Floats,
    weights: Floats,
    excluded: Flags | None = None,
) -> Iterator[KmerStatistics]:
    """Yield for each spacing the moments of its k-mers' frequencies, and their correlations with labels.

    Each pass over the repertoires counts as many spacings as the memory allows. The next pass overwrites the memory of
    the correlations, because to allocate new memory takes longer than the sums.

    Parameters
    ----------
    dataset, spacings, excluded
        Repertoires, spacings of k-mers and flags of sequences to ignore, see `iterate_frequencies`.
    labels
        True and permuted labels, (B, L).
    weights
        Weights of the repertoires, (B,).
    """
    weighted_labels = np.ascontiguousarray((weights[:, None] * standardise(labels, weights)).T, np.float32)  # (L, B)
    n_labels = len(weighted_labels)
    sizes = [count_kmers_of(spacing) for spacing in spacings]
    bytes_per_kmer = np.dtype(np.float32).itemsize * n_labels * ranks.count_local_ranks()
    max_kmers = _choose_max_bytes(int(dataset.n_sequences.sum())) // bytes_per_kmer
    passes = _plan_passes(sizes, _order_spacings(spacings), max_kmers)
    largest_pass = max((sum(sizes[i] for i in indices) for indices in passes), default=0)  # k-mers
    buffer = np.empty(n_labels * largest_pass, np.float32)
    n_passes = "1 pass" if len(passes) == 1 else f"{len(passes)} passes"
    name = f"search for motifs: correlations, {n_passes} over {len(dataset)} repertoires"
    with open_step(name, len(passes) * int(dataset.n_sequences.sum())) as step:
        for spacing_indices in passes:
            sums = _make_sums(buffer, n_labels, [sizes[index] for index in spacing_indices])
            spacings_of_pass = [spacings[index] for index in spacing_indices]
            for block in iterate_frequencies(dataset, spacings_of_pass, step, excluded):
                labels_of_block = weighted_labels[:, block.repertoires]
                sums[block.spacing_index].add(block.frequencies, labels_of_block, weights[block.repertoires])
            for index, spacing_sums in zip(spacing_indices, sums, strict=True):
                yield spacing_sums.compute_statistics(index, float(weights.sum()))


def _choose_max_bytes(n_sequences: int) -> int:
    """Return the largest number of bytes of the sums of products in one pass over a cohort, on one machine."""
    return _SMALL_MEMORY if n_sequences <= _SMALL_COHORT else _LARGE_MEMORY


def _order_spacings(spacings: Sequence[Spacing]) -> list[int]:
    """Return the indices of the spacings, each followed by the shorter ones whose counts are sums of its own."""
    longer_spacings = find_longer_spacings(spacings)
    shorter_of: list[list[int]] = [[] for _ in spacings]
    for index, longer in enumerate(longer_spacings):
        if longer is not None:
            shorter_of[longer.spacing_index].append(index)
    order: list[int] = []

    def append_with_shorter(index: int) -> None:
        order.append(index)
        for shorter in shorter_of[index]:
            append_with_shorter(shorter)

    for index, longer in enumerate(longer_spacings):
        if longer is None:
            append_with_shorter(index)
    return order


def _plan_passes(sizes: Sequence[int], order: Sequence[int], max_kmers: int) -> list[list[int]]:
    """Return the indices of the spacings of each pass: one spacing, or several with at most `max_kmers` k-mers.

    Parameters
    ----------
    sizes
        Number of k-mers of each spacing.
    order
        Indices of all spacings, in the order of the passes.
    max_kmers
        Largest number of k-mers of a pass.
    """
    passes: list[list[int]] = []
    kmers_left = 0
    for index in order:
        if not passes or sizes[index] > kmers_left:
            passes.append([])
            kmers_left = max_kmers
        passes[-1].append(index)
        kmers_left -= sizes[index]
    return passes


def weigh_by_size(n_counted: Integers, sizes: Integers, donors: Integers) -> Floats:
    """Return the weight of each repertoire, (B,), when frequencies of k-mers are correlated with labels.

    A frequency varies by chance, more if a donor has fewer sequences, and it varies between people. So the weight of a
    donor with n sequences is 1 / (1/n + 1/m), where m is the median of n over donors: then neither variation dominates.
    The repertoires of a donor share this weight in proportion to their sequences, so it does not grow with the number
    of repertoires: n_b / (n + m) for n_b of the n sequences, without the factor m, which all weights have.

    Parameters
    ----------
    n_counted, sizes
        Number of sequences that are counted, and of all sequences, in each repertoire, (B,) each.
    donors
        Index of each repertoire's donor, (B,).
    """
    n_of_donor = np.bincount(donors, n_counted)
    median_size = np.median(np.bincount(donors, sizes))
    return np.asarray(n_counted / (n_of_donor[donors] + median_size))


def standardise(columns: Floats, weights: Floats) -> Floats:
    """Subtract the weighted mean of each column, (B, n), and scale it to weighted length 1; constant ones become 0."""
    centred = columns - weights @ columns / weights.sum()
    length = np.sqrt(weights @ centred**2)
    return np.asarray(centred / np.where(length > _MIN_LENGTH, length, np.inf))


def correlate_columns(a: Floats, b: Floats, weights: Floats) -> Floats:
    """Return the weighted correlation of each column of `a`, (B, m), with each of `b`, (B, n): (m, n)."""
    return np.asarray((weights[:, None] * standardise(a, weights)).T @ standardise(b, weights))


@dataclass(frozen=True)
class _Sums:
    """Weighted sums over repertoires, from which correlations are computed.

    Attributes
    ----------
    total, squares
        Sums of the frequencies of k-mers and of their squares, (M,) each.
    products
        Sums of the products of frequencies and weighted labels, (L, M).
    """

    total: Floats
    squares: Floats
    products: NDArray[np.float32]

    @classmethod
    def zero(cls, products: NDArray[np.float32]) -> _Sums:
        """Return sums of 0; `products`, (L, M), is used as memory."""
        products[:] = 0
        size = products.shape[1]
        return cls(np.zeros(size), np.zeros(size), products)

    def add(self, frequencies: Frequencies, labels: NDArray[np.float32], weights: Floats) -> None:
        """Add repertoires.

        Parameters
        ----------
        frequencies, labels, weights
            Frequencies of b repertoires, (b, M), their weighted labels, (L, b), and their weights, (b,).
        """
        if isinstance(frequencies, SparseFrequencies):
            _add_sparse_moments(frequencies, weights, self.total, self.squares)
            run_in_parts(_add_sparse_products, len(self.products), frequencies, labels, self.products)
        else:
            run_in_blocks(
                _add_moments, frequencies.shape[1], _COLUMNS_PER_THREAD, frequencies, weights, self.total, self.squares
            )
            # products += labels @ frequencies, in their memory: numpy would write the added products apart
            sgemm(1.0, frequencies.T, labels.T, 1.0, self.products.T, overwrite_c=True)

    def compute_statistics(self, index: int, weight: float) -> KmerStatistics:
        """Return the statistics; the correlations overwrite the products.

        Parameters
        ----------
        index
            Index of the spacing.
        weight
            Sum of the weights of all repertoires.
        """
        variation = self.squares - self.total**2 / weight  # sum of squared deviations from the mean
        varies = variation > _MIN_VARIATION * self.squares
        self.products[:] *= np.where(varies, 1 / np.sqrt(np.where(varies, variation, 1)), 0).astype(np.float32)
        return KmerStatistics(index, self.products, self.total / weight, np.where(varies, variation, 0) / weight)


def _make_sums(memory: NDArray[np.float32], n_labels: int, sizes: Sequence[int]) -> list[_Sums]:
    """Return sums of 0 for spacings with these numbers of k-mers, whose products lie end to end in the memory."""
    ends = np.cumsum([n_labels * size for size in sizes])
    return [_Sums.zero(products.reshape(n_labels, -1)) for products in np.split(memory[: ends[-1]], ends[:-1])]


@njit(nogil=True)
def _add_moments(
    first: int, stop: int, frequencies: NDArray[np.float32], weights: Floats, total: Floats, squares: Floats
) -> None:
    """Add the weighted sum and sum of squares of some columns of frequencies, (b, M)."""
    for i in range(len(frequencies)):
        for j in range(first, stop):
            value = np.float64(frequencies[i, j])
            total[j] += weights[i] * value
            squares[j] += weights[i] * value**2


@njit(nogil=True)
def _add_sparse_moments(frequencies: SparseFrequencies, weights: Floats, total: Floats, squares: Floats) -> None:
    """Add the weighted sums and sums of squares of `SparseFrequencies`."""
    kmers, repertoires, values = frequencies
    for i in range(len(kmers)):
        value = np.float64(values[i])
        total[kmers[i]] += weights[repertoires[i]] * value
        squares[kmers[i]] += weights[repertoires[i]] * value**2


@njit(nogil=True)
def _add_sparse_products(
    first: int,
    stop: int,
    frequencies: SparseFrequencies,
    labels: NDArray[np.float32],
    products: NDArray[np.float32],
) -> None:
    """Add the products of `SparseFrequencies` with some labels of their repertoires."""
    kmers, repertoires, values = frequencies
    for label in range(first, stop):
        i = 0
        while i < len(kmers):
            kmer = kmers[i]
            total = np.float32(0)
            while i < len(kmers) and kmers[i] == kmer:
                total += labels[label, repertoires[i]] * values[i]
                i += 1
            products[label, kmer] += total
