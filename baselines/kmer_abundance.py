"""The abundance of each 4-mer in each repertoire, computed once and cached beside the container.

Letters: B repertoires, M 4-mers, N sequences, R residues.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.alphabet import AMINO_ACIDS, compute_offsets
from deeprc.datasets.cache import Arrays, load_or_compute
from deeprc.datasets.dataset import Repertoire, RepertoireDataset
from deeprc.datasets.kmers import encode_kmer

__all__ = ["KmerAbundances", "load_kmer_abundances"]

_K, _N_LETTERS = 4, len(AMINO_ACIDS)
_N_KMERS = _N_LETTERS**_K
_KMER_OFFSETS = tuple(range(_K))
_N_PREFIXES = (_N_LETTERS**2, _N_LETTERS**3)  # numbers of prefixes of two and of three residues
_ABSENT = np.float32(1)  # marks an absent 4-mer; the logarithm of a share is at most 0
_ABOVE_COUNTS = 1 << 32  # larger than any count


class KmerAbundances(NamedTuple):
    """Abundances of the 4-mers in a container's repertoires; 4-mers are in the order of `list_kmers`.

    Attributes
    ----------
    highest, lowest
        Largest and smallest logarithm of the relative abundance among the instances of each 4-mer, (B, M) float32; 1 if
        the repertoire does not have the 4-mer.
    highest_bounds, lowest_bounds
        The same extremes over all 4-mers with the same first two, and the same first three, residues, (B, 400 + 8000)
        float32.
    letters
        Share of a repertoire's distinct 4-mers that have each amino acid at each position, (B, 4, 20); 0 if it has no
        4-mer.
    moments
        Mean of `highest` and of its square over the distinct 4-mers, (B, 2).
    """

    highest: NDArray[np.float32]
    lowest: NDArray[np.float32]
    highest_bounds: NDArray[np.float32]
    lowest_bounds: NDArray[np.float32]
    letters: NDArray[np.float64]
    moments: NDArray[np.float64]


def load_kmer_abundances(
    dataset: RepertoireDataset, abundance: Literal["4mer", "tcrb"] = "4mer", *, trim: int = 0
) -> KmerAbundances:
    """Return the abundances of the 4-mers in all repertoires of a container; they are computed once and cached.

    The arrays take 0.7 megabytes for each repertoire, or 1.3 with `tcrb`.

    Parameters
    ----------
    dataset
        Any view of the container; the result has all its repertoires.
    abundance
        `4mer`: an instance is a 4-mer, and its abundance is relative to all 4-mers of the repertoire. `tcrb`: an
        instance is a 4-mer in a sequence, and its abundance is that of the sequence, relative to all sequences of the
        repertoire. Both count a sequence as often as its `duplicate_count` says.
    trim
        Number of residues that are left out at both ends of each sequence.
    """
    compute = partial(_compute_abundances, tcrb=abundance == "tcrb", trim=trim)
    arrays = load_or_compute(dataset, "kmer_abundances", {"abundance": abundance, "trim": int(trim)}, compute)
    return KmerAbundances(
        **{name: _make_read_only(arrays.get(name, arrays["highest"])) for name in KmerAbundances._fields}
    )


def _compute_abundances(all_repertoires: RepertoireDataset, *, tcrb: bool, trim: int) -> Arrays:
    """Return the fields of `KmerAbundances` by name; `lowest` is left out if it equals `highest`."""
    highest = np.empty((len(all_repertoires), _N_KMERS), np.float32)
    lowest = np.empty_like(highest) if tcrb else highest
    for row, repertoire in enumerate(all_repertoires):
        highest[row], lowest[row] = _compute_log_abundances(repertoire, tcrb, trim)
    bounds = {
        "highest_bounds": _compute_bounds(highest, np.maximum),
        "lowest_bounds": _compute_bounds(lowest, np.minimum),
    }
    letters, moments = _compute_statistics(highest)
    separate_lowest = {"lowest": lowest} if tcrb else {}
    return {"highest": highest, **separate_lowest, **bounds, "letters": letters, "moments": moments}


def _make_read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view; mapped arrays and those in memory then have one type, for which numba compiles once."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def _compute_log_abundances(
    repertoire: Repertoire, tcrb: bool, trim: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the highest and lowest logarithm of the relative abundance of each 4-mer, (M,) each."""
    counts = np.maximum(repertoire.counts, 1).astype(np.int64)
    counted = np.zeros((2 if tcrb else 1, numba.get_num_threads(), _N_KMERS), np.int64)
    _count_kmers(
        repertoire.residues, compute_offsets(repertoire.lengths), counts, int(trim), tcrb, counted[0], counted[-1]
    )
    if tcrb:
        highest_and_lowest = [counted[0].max(axis=0), _ABOVE_COUNTS - counted[1].max(axis=0)]
        total = counts.sum()
    else:
        highest_and_lowest = [counted[0].sum(axis=0)] * 2
        total = highest_and_lowest[0].sum()
    present = highest_and_lowest[0] > 0
    logarithms = np.full((2, _N_KMERS), _ABSENT)
    for row, kmer_counts in enumerate(highest_and_lowest):
        logarithms[row, present] = np.minimum(np.log(kmer_counts[present] / total), 0)
    return logarithms[0], logarithms[1]


def _compute_bounds(values: NDArray[np.float32], extreme: np.ufunc) -> NDArray[np.float32]:
    """Return the maximum or minimum over the present 4-mers with the same prefix, (B, 400 + 8000)."""
    neutral = -np.inf if extreme is np.maximum else np.inf
    bounds = np.empty((len(values), sum(_N_PREFIXES)), np.float32)
    for row, logarithms in enumerate(values):
        present = np.where(logarithms <= 0, logarithms, neutral)
        extremes = np.concatenate([extreme.reduce(present.reshape(n, -1), axis=1) for n in _N_PREFIXES])
        bounds[row] = np.where(np.isfinite(extremes), extremes, _ABSENT)
    return bounds


def _compute_statistics(highest: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the fields `letters` and `moments` of `KmerAbundances`."""
    letters, moments = np.zeros((len(highest), _K, _N_LETTERS)), np.zeros((len(highest), 2))
    for row, position_values in enumerate(highest):
        codes = np.flatnonzero(position_values <= 0)
        if not len(codes):
            continue
        for position in range(_K):
            letter = codes // _N_LETTERS ** (_K - 1 - position) % _N_LETTERS
            letters[row, position] = np.bincount(letter, minlength=_N_LETTERS) / len(codes)
        values = position_values[codes].astype(np.float64)
        moments[row] = values.mean(), (values**2).mean()
    return letters, moments


@njit(parallel=True, nogil=True)
def _count_kmers(
    residues: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    counts: NDArray[np.int64],
    trim: int,
    has_extremes: bool,
    high: NDArray[np.int64],
    low: NDArray[np.int64],
) -> None:
    """Add up the counts of each 4-mer, or find their extremes; each thread has its own row of `high` and `low`.

    Without `has_extremes`, `high` becomes the sum of counts. With `has_extremes`, `high` becomes the largest count and
    `low` the largest `_ABOVE_COUNTS` - count. Both are 0 for an absent 4-mer.
    """
    n_threads, n = len(high), len(offsets) - 1
    for thread in numba.prange(n_threads):
        for row in range(thread * n // n_threads, (thread + 1) * n // n_threads):
            for start in range(offsets[row] + trim, offsets[row + 1] - trim - _K + 1):
                code = encode_kmer(residues, start, _KMER_OFFSETS)
                if has_extremes:
                    high[thread, code] = max(high[thread, code], counts[row])
                    low[thread, code] = max(low[thread, code], _ABOVE_COUNTS - counts[row])
                else:
                    high[thread, code] += counts[row]
