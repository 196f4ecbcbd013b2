"""Counting the carriers of clones among the training repertoires, a part of the clones at a time.

Only clones that at least two training repertoires carry are considered. So it makes no difference which clones of a
training repertoire also occur in the container's other repertoires, on which a method may be tested later.

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

__all__ = ["MIN_CARRIERS", "Weights", "carrier_counts", "in_parts", "training_weights"]

MIN_CARRIERS = 2
"""Smallest number of different training repertoires that must carry a clone."""

_PART = 1 << 20  # clones that are read at a time
_Result = TypeVar("_Result")
Weights = tuple[NDArray[np.int32], NDArray[np.int32]]
"""How often each repertoire of the container is among the positive and among all training repertoires, (B,) each."""


def training_weights(X: RepertoireDataset, positive: NDArray[np.bool_]) -> Weights:
    """Return how often each repertoire of the container is among the positive and among all training repertoires."""
    n = len(X.container.repertoire_ids)
    counts = (np.bincount(rows, minlength=n).astype(np.int32) for rows in (X.rows[positive], X.rows))
    return next(counts), next(counts)


def in_parts(work: Callable[[int, int], _Result], n: int) -> Iterator[_Result]:
    """Call `work(start, stop)` for each part of n clones, on all cores; yield the results in order."""
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
        Their indices among all clones, the number of positive training repertoires that carry each, and the number of
        all training repertoires that do, (n,) each.
    """
    a, n, different = _counts(clones.offsets[start : stop + 1], clones.repertoires, *weights)
    found = np.flatnonzero(different >= MIN_CARRIERS)
    return found + start, a[found], n[found]


@njit(nogil=True)
def _counts(
    offsets: NDArray[np.int64], repertoires: NDArray[np.int32], n_positive: NDArray[np.int32], n_all: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    m = len(offsets) - 1
    a, n, different = np.zeros(m, np.int64), np.zeros(m, np.int64), np.zeros(m, np.int64)
    for clone in range(m):
        for i in range(offsets[clone], offsets[clone + 1]):
            repertoire = repertoires[i]
            a[clone] += n_positive[repertoire]
            n[clone] += n_all[repertoire]
            different[clone] += n_all[repertoire] > 0
    return a, n, different
