"""Compute k-mer counts and gene counts of repertoires, once for a container; they are cached beside it.

Letters: B repertoires, M k-mers, G genes.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.kmers import check_kmer_offsets, count_kmers
from deeprc.errors import InputError
from deeprc.progress import open_step, track
from deeprc.rank_calls import compute_parts, count_parts, divide_repertoires

__all__ = ["compute_kmer_frequencies", "compute_kmer_matrix", "count_genes"]

_MAX_DENSE = 20**4  # number of k-mers; most longer k-mers do not occur in a repertoire
_MAX_COUNTED_AT_ONCE = 20**5  # number of k-mers whose counts may be in memory once per thread
_AT_ONCE = 32  # number of repertoires that a rank counts, and whose counts it sends in one message
_MIN_DIVIDED = 100_000  # mean number of sequences of a repertoire from which ranks divide the counting


def compute_kmer_matrix(
    dataset: RepertoireDataset,
    kmer_offsets: Sequence[int] = (0, 1, 2, 3),
    *,
    weighted: bool = False,
    kmers: NDArray[np.int64] | None = None,
) -> NDArray[np.float32] | csr_matrix:
    """Return the number of occurrences of each k-mer in each repertoire, (B, M = 20 ** k) float32; see `count_kmers`.

    For up to 4 residues, this is a dense array, beyond that a sparse matrix. The counts of all repertoires of the
    container are computed at once and cached. They are exact up to 2 ** 24 and have a relative error of 6e-8 beyond.

    Parameters
    ----------
    dataset
        The repertoires.
    kmer_offsets
        The spacing: positions of a k-mer's residues, counted from its first. (0, 1, 3) leaves out the third position.
    weighted
        Whether each sequence counts as often as its `duplicate_count` says.
    kmers
        Indices of the k-mers to return, in this order; None: all. Few k-mers take far less time than all.
    """
    settings = {"places": check_kmer_offsets(kmer_offsets).tolist(), "weighted": weighted}

    def compute(all_repertoires: RepertoireDataset) -> Arrays:
        count = _count_dense if 20 ** len(kmer_offsets) <= _MAX_DENSE else _count_sparse
        return count(all_repertoires, kmer_offsets, weighted)

    arrays = load_or_compute(dataset, "kmers", settings, compute)
    if "counts" in arrays:
        chosen = dataset.repertoire_indices if kmers is None else np.ix_(dataset.repertoire_indices, kmers)
        return np.asarray(arrays["counts"][chosen])
    data = (arrays["data"], arrays["indices"], arrays["indptr"])
    all_counts = csr_matrix(data, shape=(len(arrays["indptr"]) - 1, 20 ** len(kmer_offsets)), copy=False)
    return all_counts[dataset.repertoire_indices] if kmers is None else all_counts[dataset.repertoire_indices][:, kmers]


def compute_kmer_frequencies(
    dataset: RepertoireDataset,
    kmer_offsets: Sequence[int] = (0, 1, 2, 3),
    *,
    weighted: bool = False,
    kmers: NDArray[np.int64] | None = None,
) -> NDArray[np.float32] | csr_matrix:
    """Return the k-mer representation u of each repertoire, (B, M) float32, sparse beyond 4 residues; paper line 8942.

    u is the mean number of occurrences of a k-mer in a sequence of the repertoire, over the sequences, or weighted by
    their counts. A repertoire without sequences has zeros. The parameters are those of `compute_kmer_matrix`.
    """
    rows = compute_kmer_matrix(dataset, kmer_offsets, weighted=weighted, kmers=kmers)
    sizes = np.array(list(dataset.map_repertoires(_sum_counts)), np.int64) if weighted else dataset.n_sequences
    divisor = np.maximum(sizes, 1).astype(np.float32)
    if isinstance(rows, np.ndarray):
        rows /= divisor[:, None]  # `compute_kmer_matrix` made a copy
    else:
        rows.data /= np.repeat(divisor, np.diff(rows.indptr))
    return rows


def _sum_counts(repertoire: Repertoire) -> int:
    return int(repertoire.counts.sum(dtype=np.int64))


def _count_repertoire_kmers(repertoire: Repertoire, spacing: Sequence[int], weighted: bool) -> NDArray[np.int64]:
    weights = repertoire.counts if weighted else None
    return count_kmers(repertoire.residues, repertoire.lengths, spacing, weights=weights)


def _count_dense(dataset: RepertoireDataset, spacing: Sequence[int], weighted: bool) -> Arrays:
    """Return the number of occurrences of every k-mer in each repertoire as a dense array."""
    work = partial(_count_in_repertoires, spacing=tuple(spacing), weighted=weighted)
    n_ranks = count_parts() if dataset.n_sequences.sum() >= _MIN_DIVIDED * len(dataset) else 1
    counts = np.zeros((len(dataset), 20 ** len(spacing)), np.float32)
    with open_step("counting k-mers", len(dataset)) as step:
        for start in range(0, len(dataset), _AT_ONCE * n_ranks):
            block = dataset[start : start + _AT_ONCE * n_ranks]
            counts_of_ranks = [work(block)] if n_ranks == 1 else compute_parts(work, divide_repertoires(block))
            counts[start : start + len(block)] = np.concatenate(counts_of_ranks)
            step.advance(len(block))
    return {"counts": counts}


def _count_in_repertoires(dataset: RepertoireDataset, spacing: Sequence[int], weighted: bool) -> NDArray[np.float32]:
    """Return the counts of the k-mers in some repertoires, (B, M)."""
    counts = np.zeros((len(dataset), 20 ** len(spacing)), np.float32)
    count = partial(_count_repertoire_kmers, spacing=spacing, weighted=weighted)
    for row, counts_of_repertoire in zip(counts, dataset.map_repertoires(count), strict=True):
        row[:] = counts_of_repertoire
    return counts


def _count_sparse(dataset: RepertoireDataset, spacing: Sequence[int], weighted: bool) -> Arrays:
    """Return the number of occurrences of every k-mer in each repertoire as the arrays of a sparse matrix."""

    def count(repertoire: Repertoire) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        counts = _count_repertoire_kmers(repertoire, spacing, weighted)
        occurring = np.flatnonzero(counts).astype(np.int32)
        return occurring, counts[occurring].astype(np.float32)

    is_small = 20 ** len(spacing) <= _MAX_COUNTED_AT_ONCE  # else each thread would need half a gigabyte
    counted = dataset.map_repertoires(count) if is_small else map(count, dataset)
    columns, values = [], []
    for occurring, counts in track(counted, "counting k-mers", len(dataset)):
        columns.append(occurring)
        values.append(counts)
    indptr = np.cumsum([0, *map(len, columns)], dtype=np.int64)
    empty = [np.zeros(0, np.int32)], [np.zeros(0, np.float32)]
    return {
        "indptr": indptr,
        "indices": np.concatenate(columns or empty[0]),
        "data": np.concatenate(values or empty[1]),
    }


def count_genes(dataset: RepertoireDataset, field: str = "v_call") -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the number of sequences of each repertoire with each gene, (B, G), and the names of the G genes, sorted.

    Sequences with an unknown gene are not counted.

    Parameters
    ----------
    dataset
        The repertoires.
    field
        `v_call` or `j_call`.

    Raises
    ------
    InputError
        If the container has no calls of this field.
    """
    table: list[dict[str, int]] = []
    for repertoire in dataset:
        calls = repertoire.genes.get(field)
        if calls is None:
            raise InputError(f"{dataset.container.path}: has no {field}")
        counts = calls.count_occurrences().tolist()
        table.append({n: c for n, c in zip(calls.vocabulary, counts, strict=True) if n and c})
    names = tuple(sorted({name for row in table for name in row}))
    matrix = np.array([[row.get(name, 0) for name in names] for row in table], np.int64)
    return matrix.reshape(len(table), len(names)), names
