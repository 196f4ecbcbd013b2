"""The MinMax and the Jaccard kernel between the k-mer representations of repertoires.

The CPU computes the sum of minima directly, CUDA as the sum of (a + b - |a - b|) / 2.
Letters: A and B repertoires, M k-mers, P pairs of repertoires, W words of 64 bits.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TypeAlias

import numba
import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from deeprc.arrays import Floats
from deeprc.compilation import njit
from deeprc.datasets.cache import Arrays, digest_container, load_or_compute
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.datasets.kmers import check_kmer_offsets
from deeprc.datasets.linked_container import StoredContainer
from deeprc.datasets.representations import compute_kmer_frequencies
from deeprc.errors import InputError

__all__ = [
    "KERNELS",
    "Rows",
    "are_of_same_container",
    "compute_cross_kernel",
    "compute_dataset_kernel",
    "compute_gram",
    "compute_torch_kernel",
]

KERNELS = ("minmax", "jaccard")
"""Names of the kernels."""

Rows: TypeAlias = "NDArray[np.float32] | csr_matrix"
"""k-mer representations of repertoires, one row each: dense or sparse."""

_BLOCK = 1024  # k-mers whose minima are summed in 32 bits; the sums of blocks are added in 64
_TILE = 32  # repertoires: the blocks of two tiles stay in a core's cache while all their pairs are formed
_CHUNK_BYTES = 1 << 28  # bytes of the representations in memory at a time; two such blocks are there at once
_PIECE = 1 << 25  # entries of a sparse matrix that are made dense at a time
_CUDA_PIECE = 512  # k-mers whose distances are summed in 32 bits on CUDA


def compute_gram(
    dataset: RepertoireDataset, kernel: str, kmer_offsets: Sequence[int] = (0, 1, 2, 3), *, weighted: bool = False
) -> Floats:
    """Return the kernel between every two repertoires of a dataset, (B, B), symmetric and 1 on the diagonal.

    The Gram matrix of the whole container is computed once and cached; the result is a part of it.

    Parameters
    ----------
    dataset
        The repertoires.
    kernel
        `minmax` or `jaccard`; see `compute_cross_kernel`.
    kmer_offsets, weighted
        See `compute_kmer_frequencies`. The Jaccard kernel has no weights.

    Raises
    ------
    InputError
        If there is no such kernel, or the offsets are not those of a k-mer.
    """
    indices = dataset.repertoire_indices
    return _load_container_gram(dataset, kernel, kmer_offsets, weighted)[np.ix_(indices, indices)]


def compute_dataset_kernel(
    first: RepertoireDataset,
    second: RepertoireDataset,
    kernel: str,
    kmer_offsets: Sequence[int] = (0, 1, 2, 3),
    *,
    weighted: bool = False,
) -> Floats:
    """Return the kernel between the A and the B repertoires of two datasets, (A, B), cached if they share a container.

    For the other parameters see `compute_cross_kernel` and `compute_kmer_frequencies`.
    """
    if are_of_same_container(first, second):
        container_kernel = _load_container_gram(second, kernel, kmer_offsets, weighted)
        return container_kernel[np.ix_(first.repertoire_indices, second.repertoire_indices)]
    a, b = (compute_kmer_frequencies(dataset, kmer_offsets, weighted=weighted) for dataset in (first, second))
    return compute_cross_kernel(a, b, kernel)


def are_of_same_container(first: RepertoireDataset, second: RepertoireDataset) -> bool:
    """Return whether two datasets are views of the same container, which may have been opened twice."""
    a, b = first.container, second.container
    if isinstance(a, StoredContainer) and isinstance(b, StoredContainer):
        return a is b or digest_container(a) == digest_container(b)
    return a is b


def _load_container_gram(
    dataset: RepertoireDataset, kernel: str, kmer_offsets: Sequence[int], weighted: bool
) -> Floats:
    """Return the kernel between all repertoires of the container, from the cache if it is there."""
    weighted = weighted and _validate_kernel(kernel) == "minmax"  # weights do not change whether a k-mer occurs
    settings = {"kind": kernel, "places": check_kmer_offsets(kmer_offsets).tolist(), "weighted": weighted}

    def compute(all_repertoires: RepertoireDataset) -> Arrays:
        n, step = len(all_repertoires), _choose_chunk_size(all_repertoires, 20 ** len(kmer_offsets))
        matrix = np.empty((n, n))
        for i in range(0, n, step):
            rows = compute_kmer_frequencies(all_repertoires[i : i + step], kmer_offsets, weighted=weighted)
            matrix[i : i + step, i : i + step] = compute_cross_kernel(rows, rows, kernel)
            for j in range(i + step, n, step):
                others = compute_kmer_frequencies(all_repertoires[j : j + step], kmer_offsets, weighted=weighted)
                block = compute_cross_kernel(rows, others, kernel)
                matrix[i : i + step, j : j + step], matrix[j : j + step, i : i + step] = block, block.T
        return {"kernel": matrix}

    return load_or_compute(dataset, f"gram-{kernel}", settings, compute)["kernel"]


def _choose_chunk_size(all_repertoires: RepertoireDataset, n_kmers: int) -> int:
    """Return the number of repertoires whose representations are held in memory at a time."""
    n_residues = 16 * int(all_repertoires.n_sequences.max(initial=1))  # about; no more k-mers than residues occur
    n_bytes = min(4 * n_kmers, 8 * n_residues)  # a sparse matrix holds a number and its column
    return max(_TILE, _CHUNK_BYTES // n_bytes)


def compute_cross_kernel(rows_a: Rows, rows_b: Rows, kernel: str) -> Floats:
    """Return the kernel between every two representations, (A, B), in [0, 1].

    MinMax is the sum of minima divided by the sum of maxima (Ralaivola et al. 2005, paper line 8947). Jaccard is MinMax
    of presence and absence (paper line 8953). Both are 1 between equal representations. A representation of zeros has
    the kernel 1 with another one of zeros, and 0 with all others. MinMax has a relative error of about 1e-7. The value
    of a pair depends neither on the other pairs, nor on their order, nor on the number of threads. A CUDA device is
    used if there is one.

    Parameters
    ----------
    rows_a, rows_b
        Representations, (A, M) and (B, M) float32 without negative entries: dense or CSR matrices.
    kernel
        `minmax` or `jaccard`.

    Raises
    ------
    InputError
        If there is no such kernel, or the rows differ in their number of k-mers.
    """
    _validate_kernel(kernel)
    if rows_a.shape[1] != rows_b.shape[1]:
        found = f"{rows_a.shape[1]} and {rows_b.shape[1]}"
        raise InputError(f"kernel: expected the same number of k-mers in both, found {found}")
    if _has_cuda():
        return compute_torch_kernel(rows_a, rows_b, kernel, device="auto")
    return _divide_by_union(*_sum_overlaps(rows_a, rows_b, kernel))


def _validate_kernel(kernel: str) -> str:
    if kernel not in KERNELS:
        raise InputError(f"kernel: expected one of {', '.join(KERNELS)}, found {kernel!r}")
    return kernel


def _divide_by_union(common: Floats, size_a: Floats, size_b: Floats) -> Floats:
    """Return intersection over union for every two repertoires, (A, B); `common` are the intersections, (A, B)."""
    union = size_a[:, None] + size_b - common
    return np.divide(common, union, out=np.ones_like(common), where=union > 0)


def _list_pairs(n_a: int, n_b: int, *, upper: bool) -> NDArray[np.int32]:
    """Return pairs of rows, (P, 2), tile by tile; with `upper` only those whose first row is not above the second."""
    tiles = [np.zeros((0, 2), np.int64)]
    for i in range(0, n_a, _TILE):
        for j in range(i if upper else 0, n_b, _TILE):
            tile = np.indices((min(_TILE, n_a - i), min(_TILE, n_b - j))).reshape(2, -1).T + np.array([i, j])
            tiles.append(tile[tile[:, 0] <= tile[:, 1]] if upper else tile)
    return np.concatenate(tiles).astype(np.int32)


def _list_diagonal_pairs(n: int) -> NDArray[np.int32]:
    """Return the pair of each row with itself, (n, 2)."""
    return np.repeat(np.arange(n, dtype=np.int32), 2).reshape(n, 2)


def _sum_overlaps(rows_a: Rows, rows_b: Rows, kernel: str) -> list[Floats]:
    """Return sums of minima, or numbers of common k-mers: of all pairs, (A, B), and of each row, (A,) and (B,)."""
    n_a, n_b = rows_a.shape[0], rows_b.shape[0]
    pairs = _list_pairs(n_a, n_b, upper=rows_a is rows_b)
    own_a, own_b = _list_diagonal_pairs(n_a), _list_diagonal_pairs(n_b)
    dtype, add = (np.float64, _add_minima) if kernel == "minmax" else (np.int64, _add_common)
    sums, sizes_a, sizes_b = np.zeros(len(pairs), dtype), np.zeros(n_a, dtype), np.zeros(n_b, dtype)
    for piece_a, piece_b in _iterate_pieces(rows_a, rows_b, _choose_width(rows_a, rows_b)):
        a, b = (piece_a, piece_b) if kernel == "minmax" else (_pack_bits(piece_a), _pack_bits(piece_b))
        add(a, b, pairs, sums)
        add(a, a, own_a, sizes_a)
        add(b, b, own_b, sizes_b)
    common = np.empty((n_a, n_b))
    i, j = pairs.T
    common[i, j] = sums
    if rows_a is rows_b:
        common[j, i] = sums
    return [common, sizes_a.astype(np.float64), sizes_b.astype(np.float64)]


def _choose_width(rows_a: Rows, rows_b: Rows) -> int:
    """Return the number of k-mers to read at a time: all if both are dense, else a multiple of a block."""
    if isinstance(rows_a, np.ndarray) and isinstance(rows_b, np.ndarray):
        return max(1, int(rows_a.shape[1]))
    n_rows = int(rows_a.shape[0] + rows_b.shape[0])
    return max(1, _PIECE // max(1, n_rows) // _BLOCK) * _BLOCK


def _iterate_pieces(
    rows_a: Rows, rows_b: Rows, width: int
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Yield both matrices as dense arrays of `width` k-mers at a time, (A, width) and (B, width)."""
    a = _iterate_dense_pieces(rows_a, width)
    if rows_a is rows_b:
        yield from ((piece, piece) for piece in a)
    else:
        yield from zip(a, _iterate_dense_pieces(rows_b, width), strict=True)


def _iterate_dense_pieces(rows: Rows, width: int) -> Iterator[NDArray[np.float32]]:
    """Yield the columns of a dense or sparse matrix, `width` at a time, as dense arrays."""
    n, n_kmers = rows.shape
    starts = range(0, n_kmers, width)
    if isinstance(rows, np.ndarray):
        # Arrays of one kind, so that one form of the loops below is compiled.
        yield from (np.require(rows[:, start : start + width], np.float32, ["C", "A", "W"]) for start in starts)
        return
    if not rows.has_sorted_indices:
        rows = rows.sorted_indices()
    columns = [rows.indices[first:stop] for first, stop in zip(rows.indptr[:-1], rows.indptr[1:], strict=True)]
    bounds = [
        first + np.searchsorted(c, [*starts, n_kmers]) for first, c in zip(rows.indptr[:-1], columns, strict=True)
    ]
    for index, start in enumerate(starts):
        piece = np.zeros((n, min(width, n_kmers - start)), np.float32)
        for row, bound in enumerate(bounds):
            entries = slice(bound[index], bound[index + 1])
            piece[row, rows.indices[entries] - start] = rows.data[entries]
        yield piece


def _pack_bits(piece: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Return whether each k-mer occurs, (B, W) words with a bit for each k-mer."""
    packed = np.packbits(piece > 0, axis=1)
    words = np.zeros((len(packed), -(-packed.shape[1] // 8) * 8), np.uint8)
    words[:, : packed.shape[1]] = packed
    return words.view(np.uint64)


@njit(parallel=True, nogil=True, fastmath={"reassoc", "contract"})
def _add_minima(a: NDArray[np.float32], b: NDArray[np.float32], pairs: NDArray[np.int32], sums: Floats) -> None:
    """Add the sum of minima of each pair of rows to `sums`, (P,).

    All sums are computed by this one loop, so that a row's sum with itself is exactly its sum with an equal row.
    """
    chunk = _TILE * _TILE
    for chunk_index in numba.prange((len(pairs) + chunk - 1) // chunk):
        for start in range(0, a.shape[1], _BLOCK):
            stop = min(start + _BLOCK, a.shape[1])
            for pair in range(chunk_index * chunk, min((chunk_index + 1) * chunk, len(pairs))):
                x, y = a[pairs[pair, 0], start:stop], b[pairs[pair, 1], start:stop]
                block = np.float32(0)
                for at in range(stop - start):
                    block += min(x[at], y[at])
                sums[pair] += block


@njit(parallel=True, nogil=True)
def _add_common(
    a: NDArray[np.uint64], b: NDArray[np.uint64], pairs: NDArray[np.int32], numbers: NDArray[np.int64]
) -> None:
    """Add the number of bits that each pair of rows has in common to `numbers`, (P,)."""
    chunk = _TILE * _TILE
    for chunk_index in numba.prange((len(pairs) + chunk - 1) // chunk):
        for pair in range(chunk_index * chunk, min((chunk_index + 1) * chunk, len(pairs))):
            x, y = a[pairs[pair, 0]], b[pairs[pair, 1]]
            total = np.uint64(0)
            for at in range(len(x)):
                total += _count_bits(x[at] & y[at])
            numbers[pair] += np.int64(total)


@njit(nogil=True)
def _count_bits(x: np.uint64) -> np.uint64:
    """Return the number of bits that are set; LLVM compiles this form to one instruction."""
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (x * np.uint64(0x0101010101010101)) >> np.uint64(56)


@cache
def _has_cuda() -> bool:
    """Return whether there is a CUDA device; torch, which is slow to import, is asked only if there is a driver."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    import torch

    return torch.cuda.is_available()


def compute_torch_kernel(rows_a: Rows, rows_b: Rows, kernel: str, *, device: str = "auto") -> Floats:
    """Return the kernel of `compute_cross_kernel`, (A, B), computed by torch on a device.

    MinMax is (s - d) / (s + d), where s is the sum of both rows and d the sum of |a - b|. Its absolute error is about
    2e-7.
    """
    import torch

    from deeprc.device import resolve_device

    torch_device = resolve_device(device)
    n_a, n_b = rows_a.shape[0], rows_b.shape[0]
    common = torch.zeros(n_a, n_b, dtype=torch.float64, device=torch_device)
    size_a, size_b = (torch.zeros(n, dtype=torch.float64, device=torch_device) for n in (n_a, n_b))
    for pieces in _iterate_pieces(rows_a, rows_b, _CUDA_PIECE):
        a, b = (torch.tensor(piece, device=torch_device) for piece in pieces)
        if _validate_kernel(kernel) == "jaccard":
            a, b = (a > 0).float(), (b > 0).float()
        sum_a, sum_b = a.double().sum(1), b.double().sum(1)
        if kernel == "jaccard":
            common += (a @ b.T).double()  # exact: whole numbers below 2 ** 24
        else:
            common += (sum_a[:, None] + sum_b - torch.cdist(a, b, p=1).double()) / 2
        size_a += sum_a
        size_b += sum_b
    return _divide_by_union(*(part.cpu().numpy() for part in (common, size_a, size_b)))
