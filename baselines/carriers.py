"""Counting the carriers of clones among the training repertoires, a part of the clones at a time.

Only clones that at least two of the training repertoires carry are ever looked at: which clones of one repertoire occur
in others of the container, to be tested later, must make no difference.

Letters: B repertoires of the container, M clones, n some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from deeprc.compilation import njit
from deeprc.datasets.clones import Clones
from deeprc.datasets.dataset import RepertoireDataset

__all__ = ["Weights", "carrier_counts", "in_parts", "training_weights"]

_PART = 1 << 20  # clones
_LEAST = 2  # repertoires
_Result = TypeVar("_Result")
Weights = tuple[NDArray[np.int32], NDArray[np.int32]]
"""How often each repertoire of the container is among the positive training repertoires and among all, (B,) each."""


def training_weights(X: RepertoireDataset, positive: NDArray[np.bool_]) -> Weights:
    """Return the weights of training repertoires with these classes."""
    n = len(X.container.repertoire_ids)
    counts = (np.bincount(rows, minlength=n).astype(np.int32) for rows in (X.rows[positive], X.rows))
    return next(counts), next(counts)


def in_parts(work: Callable[[int, int], _Result], n: int) -> Iterator[_Result]:
    """Do something with each part of n clones, from one to before another, on all cores; give the results in order."""
    bounds: Iterable[tuple[int, int]] = pairwise([*range(0, n, _PART), n])
    with ThreadPoolExecutor(numba.get_num_threads()) as threads:
        yield from threads.map(lambda part: work(*part), bounds)


def carrier_counts(
    clones: Clones, start: int, stop: int, weights: Weights
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the clones from `start` to `stop` that at least two training repertoires carry.

    Returns
    -------
    tuple
        Their numbers among all clones, how many positive training repertoires carry each, and how many at all, (n,).
    """
    a, n, different = _counts(clones.offsets[start : stop + 1], clones.repertoires, *weights)
    found = np.flatnonzero(different >= _LEAST)
    return found + start, a[found], n[found]


@njit(nogil=True)
def _counts(
    offsets: NDArray[np.int64], repertoires: NDArray[np.int32], positive: NDArray[np.int32], every: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    m = len(offsets) - 1
    a, n, different = np.zeros(m, np.int64), np.zeros(m, np.int64), np.zeros(m, np.int64)
    for clone in range(m):
        for place in range(offsets[clone], offsets[clone + 1]):
            repertoire = repertoires[place]
            a[clone] += positive[repertoire]
            n[clone] += every[repertoire]
            different[clone] += every[repertoire] > 0
    return a, n, different
