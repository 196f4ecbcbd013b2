"""k-mers: how often each combination of k residues occurs, side by side or with gaps.

Letters: N sequences, R residues.
"""

from __future__ import annotations

from collections.abc import Sequence

import numba
import numpy as np
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.alphabet import AMINO_ACIDS, offsets_of
from deeprc.errors import InputError

__all__ = ["count_kmers", "kmer_code", "kmer_names"]

_N_LETTERS = len(AMINO_ACIDS)
_LONGEST = 6  # 20 ** 6 counts take half a gigabyte


def count_kmers(
    residues: NDArray[np.uint8],
    lengths: NDArray[np.int64],
    places: Sequence[int] = (0, 1, 2, 3),
    *,
    weights: NDArray[np.uint32] | None = None,
) -> NDArray[np.int64]:
    """Count the k-mers within sequences, on all cores.

    Parameters
    ----------
    residues, lengths
        The sequences end to end, (R,) and (N,).
    places
        The residues of a k-mer, counted from its first: (0, 1, 2, 3) are 4-mers, (0, 1, 3, 4) leave a gap of one.
    weights
        How much each sequence counts, (N,): its abundance, say; None: 1.

    Returns
    -------
    (20 ** k,) int64: k-mers in the order of their letters, A before C; see `kmer_names`.

    Raises
    ------
    InputError
        If the places do not rise from 0, or are more than 6.
    """
    at = np.asarray(places, np.int64)
    if not 1 <= len(at) <= _LONGEST or at[0] != 0 or np.any(np.diff(at) < 1):
        raise InputError(f"k-mers: expected 1 to {_LONGEST} places that rise from 0, found {list(places)}")
    counts = np.zeros((numba.get_num_threads(), _N_LETTERS ** len(at)), np.int64)
    every = np.ones(0, np.uint32) if weights is None else np.asarray(weights, np.uint32)
    _count(residues, offsets_of(lengths), at, every, counts)
    return np.asarray(counts.sum(axis=0))


def kmer_names(k: int) -> list[str]:
    """Return the 20 ** k k-mers in the order of their counts."""
    names = [""]
    for _ in range(k):
        names = [name + letter for name in names for letter in AMINO_ACIDS]
    return names


@njit(inline="always")  # a call in the loop would take twice the time
def kmer_code(residues: NDArray[np.uint8], start: int, places: NDArray[np.int64] | tuple[int, ...]) -> int:
    """Return the number of the k-mer at a residue, for compiled code; see `count_kmers` for places and numbers."""
    code = 0
    for place in places:
        code = code * _N_LETTERS + residues[start + place]
    return code


@njit(parallel=True, nogil=True)
def _count(
    residues: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    places: NDArray[np.int64],
    weights: NDArray[np.uint32],
    counts: NDArray[np.int64],
) -> None:
    """Give each thread a share of the sequences and counts of its own."""
    n_threads, n = len(counts), len(offsets) - 1
    span = places[-1] + 1
    for thread in numba.prange(n_threads):
        for row in range(thread * n // n_threads, (thread + 1) * n // n_threads):
            weight = np.int64(weights[row]) if len(weights) else np.int64(1)
            for start in range(offsets[row], offsets[row + 1] - span + 1):
                counts[thread, kmer_code(residues, start, places)] += weight
