"""Counting the carriers of clones among the training repertoires, a part of the clones at a time.

Only clones that at least two training repertoires carry are considered. So it makes no difference which clones of a
training repertoire also occur in the container's other repertoires, on which a method may be tested later.

Letters: B repertoires of the container, M clones, n some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.association import FISHER, AssociationTest
from deeprc.compilation import njit
from deeprc.datasets.clones import Clones
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.progress import track

__all__ = [
    "MIN_CARRIERS",
    "AssociatedClones",
    "Weights",
    "carrier_counts",
    "find_associated_clones",
    "in_parts",
    "training_weights",
]

MIN_CARRIERS = 2
"""Smallest number of different training repertoires that must carry a clone."""

_PART = 1 << 20  # clones that are read at a time
_Result = TypeVar("_Result")
Weights = tuple[NDArray[np.int32], NDArray[np.int32]]
"""The sum of the labels of each repertoire of the container, and how often it is a training repertoire, (B,) each."""


class AssociatedClones(NamedTuple):
    """The n clones whose association with the labels has a p-value below a threshold, in the order of all clones.

    Attributes
    ----------
    indices
        Their indices among all clones, (n,).
    label_sums, n_carriers
        The sum of the labels of the training repertoires that carry each, and the number of these, (n,) each.
    p_values
        The p-values, (n,).
    n_tested
        The number of clones that were tested.
    """

    indices: NDArray[np.int64]
    label_sums: NDArray[np.int64]
    n_carriers: NDArray[np.int64]
    p_values: NDArray[np.float64]
    n_tested: int


def find_associated_clones(
    clones: Clones, X: RepertoireDataset, labels: NDArray[Any], threshold: float, test: AssociationTest = FISHER
) -> AssociatedClones:
    """Return the clones that are associated with the labels, (B,), of training repertoires of the clones' container."""
    labels, weights = np.asarray(labels, np.int64), training_weights(X, labels)
    needed = test.critical([threshold], labels)[0]

    def find(start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
        indices, a, n = carrier_counts(clones, start, stop, weights)
        found = a >= needed[n]
        return indices[found], a[found], n[found], len(indices)

    parts = [(np.zeros(0, np.int64),) * 3 + (0,), *in_parts(find, len(clones))]
    indices, a, n = (np.concatenate([part[column] for part in parts]) for column in range(3))
    return AssociatedClones(indices, a, n, test.p_values(a, n, labels), sum(part[3] for part in parts))


def training_weights(X: RepertoireDataset, labels: NDArray[Any]) -> Weights:
    """Return the sum of the labels, (B,), of each repertoire of the container, and how often it is one of X."""
    label_sum, n_all = np.zeros((2, len(X.container.repertoire_ids)), np.int32)
    np.add.at(label_sum, X.rows, np.asarray(labels, np.int32))
    np.add.at(n_all, X.rows, 1)
    return label_sum, n_all


def in_parts(work: Callable[[int, int], _Result], n: int) -> Iterator[_Result]:
    """Call `work(start, stop)` for each part of n clones, on all cores; yield the results in order."""
    bounds = list(pairwise([*range(0, n, _PART), n]))
    with ThreadPoolExecutor(numba.get_num_threads()) as threads:
        found = threads.map(lambda part: work(*part), bounds)
        yield from track(found, "comparing clones with labels", len(bounds))


def carrier_counts(
    clones: Clones, start: int, stop: int, weights: Weights
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the clones from `start` to `stop` that at least two training repertoires carry.

    Returns
    -------
    tuple
        Their indices among all clones, the sum of the labels of the training repertoires that carry each, and the
        number of these, (n,) each.
    """
    a, n, different = _counts(clones.offsets[start : stop + 1], clones.repertoires, *weights)
    found = np.flatnonzero(different >= MIN_CARRIERS)
    return found + start, a[found], n[found]


@njit(nogil=True)
def _counts(
    offsets: NDArray[np.int64], repertoires: NDArray[np.int32], label_sum: NDArray[np.int32], n_all: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    m = len(offsets) - 1
    a, n, different = np.zeros(m, np.int64), np.zeros(m, np.int64), np.zeros(m, np.int64)
    for clone in range(m):
        for i in range(offsets[clone], offsets[clone + 1]):
            repertoire = repertoires[i]
            a[clone] += label_sum[repertoire]
            n[clone] += n_all[repertoire]
            different[clone] += n_all[repertoire] > 0
    return a, n, different
