"""Compiled loops of `cross_fitted_clone_counts`: which clones pass a threshold if some folds are left out.

Letters: B training repertoires, D different ones among them, U units (see `CountedUnits`), E carriers, F folds, S
selections (sets of folds on which clones are selected), T thresholds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.association_tests import AssociationTest
from deeprc.baselines.carrier_counts import MIN_CARRIERS, CountedUnits
from deeprc.compilation import njit
from deeprc.datasets.clones.grouping import CloneCarriers
from deeprc.datasets.dataset import RepertoireDataset

__all__ = [
    "CarriersByClone",
    "FoldedRepertoires",
    "PassingRule",
    "WorkArrays",
    "count_by_strictest_threshold",
    "find_passing",
]


class CarriersByClone(NamedTuple):
    """The carriers of some clones.

    Attributes
    ----------
    offsets, repertoires
        Clone m is in the repertoires `repertoires[offsets[m]:offsets[m + 1]]` of the container, (M + 1,) and (E,).
    forms
        Forms in which each carrier has the clone, as bits, (E,). If it is empty, every clone has two forms everywhere.
    """

    offsets: NDArray[np.int64]
    repertoires: NDArray[np.int32]
    forms: NDArray[np.uint32]

    @classmethod
    def of(cls, clones: CloneCarriers, forms: NDArray[np.uint32] | None = None) -> CarriersByClone:
        """Return the carriers of clones, with their forms if these count.

        Offsets and carriers from the cache are read-only. Here they always are, because numba would compile a function
        for both kinds.
        """
        offsets, repertoires = clones.offsets.view(), clones.carriers.view()
        offsets.flags.writeable = repertoires.flags.writeable = False
        return cls(offsets, repertoires, np.zeros(0, np.uint32) if forms is None else forms)


class FoldedRepertoires(NamedTuple):
    """The D different training repertoires.

    Attributes
    ----------
    index_of
        Index of each repertoire of the container among the different training repertoires, or -1.
    fold, unit
        Fold of each of these repertoires, and the index of its unit, (D,) each.
    label_sum, weight
        Sum of the labels of each unit, and how often it counts, (U,) each.
    labels, label_folds
        Labels as tests take them, see `CountedUnits.labels`, and fold of each label.
    """

    index_of: NDArray[np.int64]
    fold: NDArray[np.int64]
    unit: NDArray[np.int32]
    label_sum: NDArray[np.int32]
    weight: NDArray[np.int32]
    labels: NDArray[np.int64]
    label_folds: NDArray[np.int64]

    @classmethod
    def of(cls, X: RepertoireDataset, units: CountedUnits, folds: NDArray[np.int64]) -> FoldedRepertoires:
        """Return the different repertoires among X, from their units and folds, (B,); no fold divides a unit."""
        rows, inverse = np.unique(X.repertoire_indices, return_inverse=True)
        index = np.full(len(X.container.repertoire_ids), -1)
        index[rows] = np.arange(len(rows))
        fold, unit = np.zeros(len(rows), np.int64), units.unit_of[rows]
        fold[inverse] = folds
        fold_of_unit = np.zeros(len(units.weight), np.int64)
        fold_of_unit[unit] = fold
        label_folds = np.repeat(fold_of_unit, units.weight)
        return cls(index, fold, unit, units.label_sum, units.weight, units.labels(), label_folds)


class PassingRule(NamedTuple):
    """When a clone passes a threshold of the p-value.

    Attributes
    ----------
    left_out
        Whether each selection leaves out each fold, (S, F).
    critical_sums
        Sum of labels that a clone needs for each threshold, by its number of carriers, (S, T, labels + 1).
    least
        Smallest critical sum.
    """

    left_out: NDArray[np.bool_]
    critical_sums: NDArray[np.int64]
    least: int

    @classmethod
    def of(
        cls,
        left_out: NDArray[np.bool_],
        repertoires: FoldedRepertoires,
        thresholds: Sequence[float] | NDArray[np.float64],
        test: AssociationTest,
    ) -> PassingRule:
        """Return the rule of a test for thresholds in falling order, (T,), from the folds that are left out, (S, F)."""
        sums = np.full((len(left_out), len(thresholds), len(repertoires.labels) + 1), np.iinfo(np.int64).max)
        for selection, without in enumerate(left_out):
            kept = repertoires.labels[~without[repertoires.label_folds]]
            sums[selection, :, : len(kept) + 1] = test.critical(thresholds, kept)
        return cls(left_out, sums, int(sums.min()))


class WorkArrays(NamedTuple):
    """Arrays that compiled code uses for each clone; it would take longer to compile if it made them itself.

    Attributes
    ----------
    sums
        What `_sum_by_fold` writes, (4, F).
    passed
        What `_count_passed` writes, (S,).
    last_seen
        What `_sum_by_fold` remembers of each unit, (U,): the start of the last clone, -1 before the first one.
    """

    sums: NDArray[np.int64]
    passed: NDArray[np.int64]
    last_seen: NDArray[np.int64]

    @classmethod
    def allocate(cls, repertoires: FoldedRepertoires, left_out: NDArray[np.bool_]) -> WorkArrays:
        """Return the arrays for these repertoires, and for selections that leave out some of the folds, (S, F)."""
        n_selections, n_folds = left_out.shape
        n_units = len(repertoires.weight)
        return cls(np.zeros((4, n_folds), np.int64), np.zeros(n_selections, np.int64), np.full(n_units, -1, np.int64))


@njit(nogil=True)
def _sum_by_fold(
    clones: CarriersByClone, clone: int, repertoires: FoldedRepertoires, last_seen: NDArray[Any], sums: NDArray[Any]
) -> int:
    """Write, for one clone in each fold: sum of labels, numbers of carriers and of different ones, and forms, (4, F).

    Return the sum of labels over all folds. `last_seen` is that of `WorkArrays`.
    """
    total = 0
    start, stop = clones.offsets[clone], clones.offsets[clone + 1]
    has_forms = len(clones.forms) > 0
    for fold in range(sums.shape[1]):
        sums[0, fold] = sums[1, fold] = sums[2, fold] = 0
        sums[3, fold] = 0 if has_forms else 3
    for i in range(start, stop):
        row = repertoires.index_of[clones.repertoires[i]]
        if row >= 0 and has_forms:
            sums[3, repertoires.fold[row]] |= clones.forms[i]
        if row >= 0 and last_seen[repertoires.unit[row]] != start:
            fold, unit = repertoires.fold[row], repertoires.unit[row]
            last_seen[unit] = start
            sums[0, fold] += repertoires.label_sum[unit]
            sums[1, fold] += repertoires.weight[unit]
            sums[2, fold] += 1
            total += repertoires.label_sum[unit]
    return total


@njit(nogil=True)
def _count_passed(sums: NDArray[np.int64], rule: PassingRule, passed: NDArray[Any]) -> int:
    """Write how many thresholds a clone passes in each selection, (S,), from its `_sum_by_fold`; return the maximum."""
    largest = 0
    for selection in range(len(rule.left_out)):
        total = n = different = forms = 0
        for fold in range(rule.left_out.shape[1]):
            if not rule.left_out[selection, fold]:
                total += sums[0, fold]
                n += sums[1, fold]
                different += sums[2, fold]
                forms |= sums[3, fold]
        count = 0
        if different >= MIN_CARRIERS and forms & (forms - 1) != 0:
            while count < rule.critical_sums.shape[1] and total >= rule.critical_sums[selection, count, n]:
                count += 1
        passed[selection] = count
        if count > largest:  # `max` would be compiled, too
            largest = count
    return largest


@njit(nogil=True)
def find_passing(
    clones: CarriersByClone,
    repertoires: FoldedRepertoires,
    rule: PassingRule,
    work: WorkArrays,
    indices: NDArray[np.int64],
    passed: NDArray[np.uint8],
) -> int:
    """Write the clones that pass any threshold to `indices`, and how many pass in each selection to `passed`.

    Return the number of these clones; if it is larger than the arrays, only as many as they hold are written.
    """
    n = 0
    for clone in range(len(clones.offsets) - 1):
        total = _sum_by_fold(clones, clone, repertoires, work.last_seen, work.sums)
        if total >= rule.least and _count_passed(work.sums, rule, work.passed) > 0:
            if n < len(indices):
                indices[n] = clone
                for selection in range(len(work.passed)):
                    passed[n, selection] = work.passed[selection]
            n += 1
    return n


@njit(nogil=True)
def count_by_strictest_threshold(
    clones: CarriersByClone,
    repertoires: FoldedRepertoires,
    rule: PassingRule,
    selection_of: NDArray[np.int64],
    work: WorkArrays,
    counts: NDArray[np.int64],
) -> None:
    """Add to `counts`, (D, F + 1, T), each clone of a repertoire at the strictest threshold that it passes.

    `selection_of` is that of `Selections`.
    """
    for clone in range(len(clones.offsets) - 1):
        total = _sum_by_fold(clones, clone, repertoires, work.last_seen, work.sums)
        if total < rule.least or _count_passed(work.sums, rule, work.passed) == 0:
            continue
        for i in range(clones.offsets[clone], clones.offsets[clone + 1]):
            row = repertoires.index_of[clones.repertoires[i]]
            if row >= 0:
                for held_out in range(len(selection_of)):
                    strictest = work.passed[selection_of[held_out, repertoires.fold[row]]] - 1
                    if strictest >= 0:
                        counts[row, held_out, strictest] += 1
