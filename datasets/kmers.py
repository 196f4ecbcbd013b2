"""Count k-mers: combinations of k residues, side by side or with gaps.

Letters: N sequences, R residues.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from numbers import Integral
from typing import Any

import numba
import numpy as np
from numba import uint64
from numpy.typing import NDArray

from deeprc.compilation import njit, run_in_blocks
from deeprc.datasets.alphabet import AMINO_ACIDS, MAX_LENGTH, compute_offsets
from deeprc.documents import abbreviate, to_plain
from deeprc.errors import InputError

__all__ = ["check_kmer_offsets", "count_kmers", "encode_kmer", "list_kmers"]

_N_LETTERS = len(AMINO_ACIDS)
_MAX_K = 6  # 20 ** 6 counts take half a gigabyte
_MIN_SIZE_FOR_THREADS = 1 << 20  # number of residues below which starting threads takes as long as counting


def count_kmers(
    residues: NDArray[np.uint8],
    lengths: NDArray[np.int64],
    kmer_offsets: Sequence[int] = (0, 1, 2, 3),
    *,
    weights: NDArray[np.uint32] | None = None,
) -> NDArray[np.int64]:
    """Count the k-mers within sequences, on all cores.

    Parameters
    ----------
    residues, lengths
        Sequences end to end, (R,), and their lengths, (N,).
    kmer_offsets
        The spacing: positions of a k-mer's residues, counted from its first. (0, 1, 2, 3) are 4-mers, (0, 1, 3, 4) have
        a gap.
    weights
        Weight of each sequence, (N,), such as its abundance; None: 1.

    Returns
    -------
    The counts, (20 ** k,) int64, of the k-mers in the order of their letters, A before C; see `list_kmers`.

    Raises
    ------
    InputError
        If the offsets do not rise from 0, are more than 6, or are longer than any sequence.
    """
    spacing = check_kmer_offsets(kmer_offsets)
    n_shares = 1 if len(residues) < _MIN_SIZE_FOR_THREADS else numba.get_num_threads()
    counts = np.zeros((n_shares, _N_LETTERS ** len(spacing)), np.int64)
    weights_or_empty = np.ones(0, np.uint32) if weights is None else np.asarray(weights, np.uint32)
    run_in_blocks(_count_in_shares, n_shares, 1, residues, compute_offsets(lengths), spacing, weights_or_empty, counts)
    return np.asarray(counts[0] if n_shares == 1 else counts.sum(axis=0))


def check_kmer_offsets(kmer_offsets: object) -> NDArray[np.int64]:
    """Return offsets as an array, (k,); raise InputError if they do not rise from 0, are more than 6, or too large."""
    if isinstance(kmer_offsets, Sequence | np.ndarray) and 1 <= len(kmer_offsets) <= _MAX_K:
        offsets = list(kmer_offsets)
        is_whole = all(isinstance(offset, Integral) and not isinstance(offset, bool) for offset in offsets)
        if is_whole and offsets[0] == 0 and all(a < b < MAX_LENGTH for a, b in pairwise(offsets)):
            return np.array(offsets, np.int64)
    expected = f"expected 1 to {_MAX_K} whole numbers that rise from 0"
    raise InputError(f"kmer_offsets: {expected}, found {abbreviate(to_plain(kmer_offsets))}")


def list_kmers(k: int) -> list[str]:
    """Return the 20 ** k k-mers in the order of `count_kmers`."""
    names = [""]
    for _ in range(k):
        names = [name + letter for name in names for letter in AMINO_ACIDS]
    return names


@njit(inline="always")  # a call in the loop would take twice the time
def encode_kmer(residues: NDArray[np.uint8], start: int, spacing: NDArray[np.int64] | tuple[int, ...]) -> Any:
    """Return the index of the k-mer with this spacing that starts at a residue, uint64; see `count_kmers`.

    For compiled code. Indices are unsigned, because the code that numba adds for negative ones takes as long as all the
    rest.
    """
    first, code = uint64(start), uint64(0)
    for offset in spacing:
        code = code * uint64(_N_LETTERS) + residues[first + uint64(offset)]
    return code


@njit(nogil=True)
def _count_in_shares(
    first_share: int,
    stop: int,
    residues: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    spacing: NDArray[np.int64],
    weights: NDArray[np.uint32],
    counts: NDArray[np.int64],
) -> None:
    """Count the k-mers of the sequences in some of the equal shares, separately for each share, (n_shares, M)."""
    n_shares, n = len(counts), len(offsets) - 1
    span = spacing[-1] + 1
    for share in range(first_share, stop):
        counts_of_share = counts[share]
        for row in range(share * n // n_shares, (share + 1) * n // n_shares):
            weight = np.int64(weights[row]) if len(weights) else np.int64(1)
            for start in range(offsets[row], offsets[row + 1] - span + 1):
                counts_of_share[encode_kmer(residues, start, spacing)] += weight
