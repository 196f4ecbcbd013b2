"""Count the carriers of clones among the training repertoires, part by part.

Only clones of at least two carriers are considered. So it makes no difference which clones of a training repertoire
also occur in the container's other repertoires, on which a method may be tested later.

A carrier is a training repertoire. If the donors are known, the repertoires of one donor with the same label are one
carrier, because they share clones: tests that count them separately have p-values that are too small.

Letters: B repertoires of the container, C carriers, M clones, n some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.association import FISHER, AssociationTest
from deeprc.compilation import njit, open_threads
from deeprc.datasets.clone_groups import Clones
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.progress import track

__all__ = [
    "MIN_CARRIERS",
    "AssociatedClones",
    "Carriers",
    "count_clone_carriers",
    "find_associated_clones",
    "run_over_clones",
]

MIN_CARRIERS = 2
"""Smallest number of different carriers that a clone must have."""

_PART = 1 << 20  # number of clones that are read at a time
_Result = TypeVar("_Result")


class Carriers(NamedTuple):
    """The C different carriers that tests count.

    Attributes
    ----------
    index_of
        Index of the carrier to which each repertoire of the container belongs, or -1, (B,) int32.
    label_sum, n_all
        Sum of the labels of each carrier, and how often it counts, (C,) each. A carrier counts more than once only if a
        training repertoire is given several times and donors are not known.
    """

    index_of: NDArray[np.int32]
    label_sum: NDArray[np.int32]
    n_all: NDArray[np.int32]

    @classmethod
    def of(cls, X: RepertoireDataset, labels: NDArray[Any], groups: NDArray[np.int64] | None = None) -> Carriers:
        """Return the carriers of the training repertoires X, which have these labels and donors, one value each."""
        labels = np.asarray(labels, np.int64)
        index_of = np.full(len(X.container.repertoire_ids), -1, np.int32)
        if groups is None:
            rows, carrier = np.unique(X.rows, return_inverse=True)
            label_sum, n_all = np.zeros((2, len(rows)), np.int32)
            np.add.at(label_sum, carrier, labels)
            np.add.at(n_all, carrier, 1)
        else:
            (_, own), carrier = np.unique(np.stack([groups, labels]), axis=1, return_inverse=True)
            label_sum, n_all = own.astype(np.int32), np.ones(len(own), np.int32)
        index_of[X.rows] = carrier.ravel()
        return cls(index_of, label_sum, n_all)

    def labels(self) -> NDArray[np.int64]:
        """Return the labels as a test takes them: one for each time that a carrier counts."""
        return np.repeat(self.label_sum // self.n_all, self.n_all).astype(np.int64)


class AssociatedClones(NamedTuple):
    """The n clones whose association with the labels has a p-value below a threshold, in the order of all clones.

    Attributes
    ----------
    indices
        Indices of the clones among all clones, (n,).
    label_sums, n_carriers
        Sum of the labels of each clone's carriers, and number of these carriers, (n,) each.
    p_values
        P-value of each clone, (n,).
    n_tested
        Number of clones that were tested.
    """

    indices: NDArray[np.int64]
    label_sums: NDArray[np.int64]
    n_carriers: NDArray[np.int64]
    p_values: NDArray[np.float64]
    n_tested: int


def find_associated_clones(
    clones: Clones, carriers: Carriers, threshold: float, test: AssociationTest = FISHER
) -> AssociatedClones:
    """Return the clones that are associated with the labels of carriers of the clones' container."""
    needed = test.critical([threshold], carriers.labels())[0]

    def find(start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], int]:
        indices, a, n = count_clone_carriers(clones, start, stop, carriers)
        found = a >= needed[n]
        return indices[found], a[found], n[found], len(indices)

    parts = [(np.zeros(0, np.int64),) * 3 + (0,), *run_over_clones(find, len(clones))]
    indices, a, n = (np.concatenate([part[column] for part in parts]) for column in range(3))
    return AssociatedClones(indices, a, n, test.p_values(a, n, carriers.labels()), sum(part[3] for part in parts))


def run_over_clones(work: Callable[[int, int], _Result], n: int) -> Iterator[_Result]:
    """Call `work(start, stop)` for each part of n clones, on all cores; yield the results in order."""
    bounds = list(pairwise([*range(0, n, _PART), n]))
    with open_threads() as threads:
        found = threads.map(lambda part: work(*part), bounds)
        yield from track(found, "comparing clones with labels", len(bounds))


def count_clone_carriers(
    clones: Clones, start: int, stop: int, carriers: Carriers
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the clones from `start` to `stop` that at least two different carriers have.

    Returns
    -------
    tuple
        Indices among all clones, sum of the labels of each clone's carriers, and number of these carriers, (n,) each.
    """
    arrays = carriers.index_of, carriers.label_sum, carriers.n_all
    a, n, different = _count_part(clones.offsets[start : stop + 1], clones.repertoires, *arrays)
    found = np.flatnonzero(different >= MIN_CARRIERS)
    return found + start, a[found], n[found]


@njit(nogil=True)
def _count_part(
    offsets: NDArray[np.int64],
    repertoires: NDArray[np.int32],
    index_of: NDArray[np.int32],
    label_sum: NDArray[np.int32],
    n_all: NDArray[np.int32],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    m = len(offsets) - 1
    a, n, different = np.zeros(m, np.int64), np.zeros(m, np.int64), np.zeros(m, np.int64)
    last_seen = np.full(len(n_all), -1, np.int64)  # the last clone of each carrier
    for clone in range(m):
        for i in range(offsets[clone], offsets[clone + 1]):
            carrier = index_of[repertoires[i]]
            if carrier >= 0 and last_seen[carrier] != clone:
                last_seen[carrier] = clone
                a[clone] += label_sum[carrier]
                n[clone] += n_all[carrier]
                different[clone] += 1
    return a, n, different
