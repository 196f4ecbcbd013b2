"""The compiled loops of `cross_fitted_clone_counts`: which clones pass a threshold if some folds are left out.

Letters: B training repertoires, D different ones among them, U units (see `CountedUnits`), E carriers, F folds, S
selections (sets of folds on which clones are selected), T thresholds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

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

_TWO_FORMS = 0b11


class CarriersByClone(NamedTuple):
    """The carriers of some clones.

    Attributes
    ----------
    offsets, repertoires
        Clone m is in the repertoires `repertoires[offsets[m]:offsets[m + 1]]` of the container, (M + 1,) and (E,).
    forms
        Forms in which each carrier has the clone, as bits, (E,), see `count_clones_out_of_fold`. If it is empty, every
        clone has two forms everywhere.
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
    smallest_critical_sum
        Smallest critical sum of all: a clone with a smaller sum passes nowhere.
    """

    left_out: NDArray[np.bool_]
    critical_sums: NDArray[np.int64]
    smallest_critical_sum: int

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
            sums[selection, :, : len(kept) + 1] = test.find_critical_sums(thresholds, kept)
        return cls(left_out, sums, int(sums.min()))


class WorkArrays(NamedTuple):
    """What compiled code knows of the clone that it looks at; arrays made in compiled code take longer to compile.

    Attributes
    ----------
    label_sums, n_carriers, n_different
        Sum of the labels of the clone's carriers in each fold, and number of these carriers: as often as each counts,
        and each once, (F,) each.
    forms
        Forms in which the clone occurs in each fold, as bits, (F,).
    n_passed
        Number of thresholds that the clone passes in each selection, (S,).
    last_seen
        For each unit, the offset of the last clone that it was seen to carry, (U,); -1 before the first one.
    """

    label_sums: NDArray[np.int64]
    n_carriers: NDArray[np.int64]
    n_different: NDArray[np.int64]
    forms: NDArray[np.int64]
    n_passed: NDArray[np.int64]
    last_seen: NDArray[np.int64]

    @classmethod
    def allocate(cls, repertoires: FoldedRepertoires, left_out: NDArray[np.bool_]) -> WorkArrays:
        """Return the arrays for these repertoires, and for selections that leave out some of the folds, (S, F)."""
        n_selections, n_folds = left_out.shape
        label_sums, n_carriers, n_different, forms = np.zeros((4, n_folds), np.int64)
        n_passed, last_seen = np.zeros(n_selections, np.int64), np.full(len(repertoires.weight), -1, np.int64)
        return cls(label_sums, n_carriers, n_different, forms, n_passed, last_seen)


@njit(nogil=True)
def _sum_by_fold(clones: CarriersByClone, clone: int, repertoires: FoldedRepertoires, work: WorkArrays) -> int:
    """Write the sums of one clone in each fold to the work arrays; return the sum of labels over all folds."""
    total = 0
    start, stop = clones.offsets[clone], clones.offsets[clone + 1]
    has_forms = len(clones.forms) > 0
    for fold in range(len(work.label_sums)):
        work.label_sums[fold] = work.n_carriers[fold] = work.n_different[fold] = 0
        work.forms[fold] = 0 if has_forms else _TWO_FORMS
    for i in range(start, stop):
        row = repertoires.index_of[clones.repertoires[i]]
        if row < 0:
            continue
        fold, unit = repertoires.fold[row], repertoires.unit[row]
        if has_forms:
            work.forms[fold] |= clones.forms[i]
        if work.last_seen[unit] != start:
            work.last_seen[unit] = start
            work.label_sums[fold] += repertoires.label_sum[unit]
            work.n_carriers[fold] += repertoires.weight[unit]
            work.n_different[fold] += 1
            total += repertoires.label_sum[unit]
    return total


@njit(nogil=True)
def _count_passed_thresholds(rule: PassingRule, work: WorkArrays) -> int:
    """Write how many thresholds a clone passes in each selection, from its sums by fold; return the maximum."""
    largest = 0
    for selection in range(len(rule.left_out)):
        label_sum = n_carriers = n_different = forms = 0
        for fold in range(rule.left_out.shape[1]):
            if not rule.left_out[selection, fold]:
                label_sum += work.label_sums[fold]
                n_carriers += work.n_carriers[fold]
                n_different += work.n_different[fold]
                forms |= work.forms[fold]
        n_passed = 0
        has_several_forms = forms & (forms - 1) != 0  # more than one bit
        if n_different >= MIN_CARRIERS and has_several_forms:
            critical_sums = rule.critical_sums[selection]
            while n_passed < len(critical_sums) and label_sum >= critical_sums[n_passed, n_carriers]:
                n_passed += 1
        work.n_passed[selection] = n_passed
        if n_passed > largest:  # `max` would be compiled, too
            largest = n_passed
    return largest


@njit(nogil=True)
def _passes_any_threshold(
    clones: CarriersByClone, clone: int, repertoires: FoldedRepertoires, rule: PassingRule, work: WorkArrays
) -> bool:
    """Return whether a clone passes a threshold in any selection; the work arrays then say which it passes."""
    label_sum = _sum_by_fold(clones, clone, repertoires, work)
    return bool(label_sum >= rule.smallest_critical_sum and _count_passed_thresholds(rule, work) > 0)


@njit(nogil=True)
def find_passing(
    clones: CarriersByClone,
    repertoires: FoldedRepertoires,
    rule: PassingRule,
    work: WorkArrays,
    indices: NDArray[np.int64],
    n_passed: NDArray[np.uint8],
) -> int:
    """Write the clones that pass any threshold to `indices`, and how many they pass in each selection to `n_passed`.

    Return the number of these clones; if it is larger than the arrays, only as many as they hold are written.
    """
    n = 0
    for clone in range(len(clones.offsets) - 1):
        if _passes_any_threshold(clones, clone, repertoires, rule, work):
            if n < len(indices):
                indices[n] = clone
                for selection in range(len(work.n_passed)):
                    n_passed[n, selection] = work.n_passed[selection]
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
        if not _passes_any_threshold(clones, clone, repertoires, rule, work):
            continue
        for i in range(clones.offsets[clone], clones.offsets[clone + 1]):
            row = repertoires.index_of[clones.repertoires[i]]
            if row >= 0:
                for held_out in range(len(selection_of)):
                    strictest = work.n_passed[selection_of[held_out, repertoires.fold[row]]] - 1
                    if strictest >= 0:
                        counts[row, held_out, strictest] += 1
