"""How abundant each 4-mer is in each repertoire, computed once and kept beside the container.

Letters: B repertoires, M 4-mers, N sequences, R residues.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numba
import numpy as np
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.alphabet import AMINO_ACIDS, offsets_of
from deeprc.datasets.cache import Arrays, cached
from deeprc.datasets.dataset import Repertoire, RepertoireDataset

__all__ = ["KmerAbundances", "kmer_abundances"]

_K, _N_LETTERS = 4, len(AMINO_ACIDS)
_N_KMERS = _N_LETTERS**_K
_BEGINNINGS = (_N_LETTERS**2, _N_LETTERS**3)  # how many there are of two and of three residues
_ABSENT = np.float32(1)  # no logarithm of a share is above 0
_LARGEST = 1 << 32  # above any count


class KmerAbundances(NamedTuple):
    """What a container's repertoires have of each 4-mer, in the order of `kmer_names`.

    Attributes
    ----------
    highest, lowest
        (B, M) float32: the largest and the smallest logarithm of the relative abundance among a 4-mer's instances; 1
        where there are none.
    highest_bounds, lowest_bounds
        (B, 400 + 8000) float32: the same over all 4-mers that begin with the same two residues, and the same three.
    letters
        (B, 4, 20): which share of a repertoire's distinct 4-mers has each amino acid at each place; 0 if it has none.
    moments
        (B, 2): the mean of `highest` and of its square over the distinct 4-mers.
    """

    highest: NDArray[np.float32]
    lowest: NDArray[np.float32]
    highest_bounds: NDArray[np.float32]
    lowest_bounds: NDArray[np.float32]
    letters: NDArray[np.float64]
    moments: NDArray[np.float64]


def kmer_abundances(
    dataset: RepertoireDataset, abundance: Literal["4mer", "tcrb"] = "4mer", *, trim: int = 0
) -> KmerAbundances:
    """Return what all repertoires of a dataset's container have of each 4-mer; computed once and cached.

    A repertoire takes 0.7 megabytes, with `tcrb` 1.3.

    Parameters
    ----------
    dataset
        A view of the container; which repertoires it shows does not matter.
    abundance
        `4mer`: an instance is a 4-mer, its abundance relative to all 4-mers of the repertoire; `tcrb`: an instance is
        a 4-mer in a sequence, its abundance that of the sequence, relative to all sequences of the repertoire. Both
        count a sequence as often as its `duplicate_count` says.
    trim
        Residues that are left out at both ends of each sequence.
    """

    def compute(whole: RepertoireDataset) -> Arrays:
        tcrb = abundance == "tcrb"
        highest = np.empty((len(whole), _N_KMERS), np.float32)
        lowest = np.empty_like(highest) if tcrb else highest
        for row, repertoire in enumerate(whole):
            highest[row], lowest[row] = _logarithms(repertoire, tcrb, trim)
        bounds = {"highest_bounds": _bounds(highest, np.maximum), "lowest_bounds": _bounds(lowest, np.minimum)}
        letters, moments = _statistics(highest)
        own = {"lowest": lowest} if tcrb else {}
        return {"highest": highest, **own, **bounds, "letters": letters, "moments": moments}

    arrays = cached(dataset, "kmer_abundances", {"abundance": abundance, "trim": int(trim)}, compute)
    return KmerAbundances(**{name: _read_only(arrays.get(name, arrays["highest"])) for name in KmerAbundances._fields})


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a view of one type, whether it is mapped or in memory, so that numba compiles for it once."""
    view = np.asarray(array).view()
    view.flags.writeable = False
    return view


def _logarithms(repertoire: Repertoire, tcrb: bool, trim: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the highest and lowest logarithm of the relative abundance of each 4-mer, (M,) each."""
    counts = np.maximum(repertoire.counts, 1).astype(np.int64)
    found = np.zeros((2 if tcrb else 1, numba.get_num_threads(), _N_KMERS), np.int64)
    _count(repertoire.residues, offsets_of(repertoire.lengths), counts, int(trim), tcrb, found[0], found[-1])
    if tcrb:
        both, total = [found[0].max(axis=0), _LARGEST - found[1].max(axis=0)], counts.sum()
    else:
        both = [found[0].sum(axis=0)]
        total = both[0].sum()
    present = both[0] > 0
    logarithms = np.full((2, _N_KMERS), _ABSENT)
    for row in range(2):
        logarithms[row, present] = np.minimum(np.log(both[min(row, len(both) - 1)][present] / total), 0)
    return logarithms[0], logarithms[1]


def _bounds(values: NDArray[np.float32], extreme: np.ufunc) -> NDArray[np.float32]:
    """Return the maximum or minimum of what is there among the 4-mers that begin alike, (B, 400 + 8000)."""
    neutral = -np.inf if extreme is np.maximum else np.inf
    parts = np.empty((len(values), sum(_BEGINNINGS)), np.float32)
    for row, each in enumerate(values):
        there = np.where(each <= 0, each, neutral)
        found = np.concatenate([extreme.reduce(there.reshape(n, -1), axis=1) for n in _BEGINNINGS])
        parts[row] = np.where(np.isfinite(found), found, _ABSENT)
    return parts


def _statistics(highest: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return `letters` and `moments`; see `KmerAbundances`."""
    letters, moments = np.zeros((len(highest), _K, _N_LETTERS)), np.zeros((len(highest), 2))
    for row, each in enumerate(highest):
        codes = np.flatnonzero(each <= 0)
        if not len(codes):
            continue
        for place in range(_K):
            letter = codes // _N_LETTERS ** (_K - 1 - place) % _N_LETTERS
            letters[row, place] = np.bincount(letter, minlength=_N_LETTERS) / len(codes)
        values = each[codes].astype(np.float64)
        moments[row] = values.mean(), (values**2).mean()
    return letters, moments


@njit(parallel=True, nogil=True)
def _count(
    residues: NDArray[np.uint8],
    offsets: NDArray[np.int64],
    counts: NDArray[np.int64],
    trim: int,
    tcrb: bool,
    high: NDArray[np.int64],
    low: NDArray[np.int64],
) -> None:
    """Give each thread a share of the sequences, and of the sums, or of the extremes, a row of its own.

    `high` are sums of counts, or maxima; `low` maxima of what a count lacks to `_LARGEST`; 0 where a 4-mer is not.
    """
    n_threads, n = len(high), len(offsets) - 1
    for thread in numba.prange(n_threads):
        for row in range(thread * n // n_threads, (thread + 1) * n // n_threads):
            for start in range(offsets[row] + trim, offsets[row + 1] - trim - _K + 1):
                code = 0
                for place in range(_K):
                    code = code * _N_LETTERS + residues[start + place]
                if tcrb:
                    high[thread, code] = max(high[thread, code], counts[row])
                    low[thread, code] = max(low[thread, code], _LARGEST - counts[row])
                else:
                    high[thread, code] += counts[row]
