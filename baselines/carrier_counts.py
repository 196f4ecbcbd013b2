"""Count the carriers of clones among the training repertoires, block by block.

What is counted, a unit, is a training repertoire. If the donors are known, the repertoires of one donor with the same
label are one unit, because they share clones. Tests that count them separately have p-values that are too small. The
carriers of a clone are the units that have it.

Only clones with at least two carriers are considered. So it makes no difference which clones a training repertoire
shares only with other repertoires of the container, on which a method may be tested later.

Letters: B repertoires of the container, U units, M clones, n some of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.association_tests import FISHER, AssociationTest
from deeprc.compilation import njit, open_threads
from deeprc.datasets.clones.grouping import CloneCarriers
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.progress import track

__all__ = [
    "MIN_CARRIERS",
    "AssociatedClones",
    "CountedClones",
    "CountedUnits",
    "count_clone_carriers",
    "find_associated_clones",
    "run_over_clones",
]

MIN_CARRIERS = 2
"""Smallest number of different carriers that a clone must have."""

_BLOCK = 1 << 20  # number of clones that are read at a time
_Result = TypeVar("_Result")


class CountedUnits(NamedTuple):
    """The U different units that tests count: training repertoires, or donors with one label each.

    Attributes
    ----------
    unit_of
        Index of the unit to which each repertoire of the container belongs, or -1, (B,) int32.
    label_sum, weight
        Sum of the labels of each unit, and how often it counts, (U,) each. A unit counts more than once only if a
        training repertoire is given several times and donors are not known.
    """

    unit_of: NDArray[np.int32]
    label_sum: NDArray[np.int32]
    weight: NDArray[np.int32]

    @classmethod
    def of(cls, X: RepertoireDataset, labels: NDArray[Any], groups: NDArray[np.int64] | None = None) -> CountedUnits:
        """Return the units of the training repertoires X, which have these labels and donors, one value each."""
        labels = np.asarray(labels, np.int64)
        unit_of = np.full(len(X.container.repertoire_ids), -1, np.int32)
        if groups is None:
            rows, unit = np.unique(X.repertoire_indices, return_inverse=True)
            label_sum, weight = np.zeros((2, len(rows)), np.int32)
            np.add.at(label_sum, unit, labels)
            np.add.at(weight, unit, 1)
        else:
            (_, unit_labels), unit = np.unique(np.stack([groups, labels]), axis=1, return_inverse=True)
            label_sum, weight = unit_labels.astype(np.int32), np.ones(len(unit_labels), np.int32)
        unit_of[X.repertoire_indices] = unit.ravel()
        return cls(unit_of, label_sum, weight)

    def labels(self) -> NDArray[np.int64]:
        """Return the labels as a test takes them: one for each time that a unit counts."""
        return np.repeat(self.label_sum // self.weight, self.weight).astype(np.int64)


class CountedClones(NamedTuple):
    """n clones with their carriers.

    Attributes
    ----------
    indices
        Indices of the clones among all clones, (n,).
    label_sums, n_carriers
        Sum of the labels of each clone's carriers, and number of these carriers, (n,) each.
    """

    indices: NDArray[np.int64]
    label_sums: NDArray[np.int64]
    n_carriers: NDArray[np.int64]

    def take(self, is_taken: NDArray[np.bool_]) -> CountedClones:
        """Return some of the clones, by a flag of each, (n,)."""
        return CountedClones(*(column[is_taken] for column in self))

    @classmethod
    def concatenate(cls, parts: Sequence[CountedClones]) -> CountedClones:
        """Join the clones of several parts, in their order."""
        if not parts:
            return cls(*np.zeros((3, 0), np.int64))
        return cls(*map(np.concatenate, zip(*parts, strict=True)))


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
    clones: CloneCarriers, units: CountedUnits, threshold: float, test: AssociationTest = FISHER
) -> AssociatedClones:
    """Return the clones that are associated with the labels of units; the clones are those of the units' container."""
    needed = test.find_critical_sums([threshold], units.labels())[0]

    def find(start: int, stop: int) -> tuple[CountedClones, int]:
        """Return the associated clones of a block, and how many clones were tested there."""
        tested = count_clone_carriers(clones, start, stop, units)
        return tested.take(tested.label_sums >= needed[tested.n_carriers]), len(tested.indices)

    blocks = list(run_over_clones(find, len(clones)))
    associated = CountedClones.concatenate([found for found, _ in blocks])
    p_values = test.compute_p_values(associated.label_sums, associated.n_carriers, units.labels())
    return AssociatedClones(*associated, p_values, n_tested=sum(n_tested for _, n_tested in blocks))


def run_over_clones(work: Callable[[int, int], _Result], n: int) -> Iterator[_Result]:
    """Call `work(start, stop)` for each block of n clones, on all cores; yield the results in order."""
    bounds = list(pairwise([*range(0, n, _BLOCK), n]))
    with open_threads() as threads:
        results = threads.map(lambda start_stop: work(*start_stop), bounds)
        yield from track(results, "comparing clones with labels", len(bounds))


def count_clone_carriers(clones: CloneCarriers, start: int, stop: int, units: CountedUnits) -> CountedClones:
    """Return the clones from `start` to `stop` that at least two different carriers have."""
    arrays = units.unit_of, units.label_sum, units.weight
    label_sums, n_carriers, n_different = _count_block(clones.offsets[start : stop + 1], clones.carriers, *arrays)
    counted = np.flatnonzero(n_different >= MIN_CARRIERS)
    return CountedClones(counted + start, label_sums[counted], n_carriers[counted])


@njit(nogil=True)
def _count_block(
    offsets: NDArray[np.int64],
    repertoires: NDArray[np.int32],
    unit_of: NDArray[np.int32],
    label_sum: NDArray[np.int32],
    weight: NDArray[np.int32],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the label sum, the weight and the number of the units that carry each clone, (M,) each."""
    n_clones = len(offsets) - 1
    label_sums, n_carriers = np.zeros(n_clones, np.int64), np.zeros(n_clones, np.int64)
    n_different = np.zeros(n_clones, np.int64)
    last_seen = np.full(len(weight), -1, np.int64)  # the last clone of each unit
    for clone in range(n_clones):
        for i in range(offsets[clone], offsets[clone + 1]):
            unit = unit_of[repertoires[i]]
            if unit >= 0 and last_seen[unit] != clone:
                last_seen[unit] = clone
                label_sums[clone] += label_sum[unit]
                n_carriers[clone] += weight[unit]
                n_different[clone] += 1
    return label_sums, n_carriers, n_different
