"""Count the associated clones of each training repertoire, if clones are selected without some of the folds.

One pass over the clones gives the counts for all folds and thresholds.

Letters: B training repertoires, D different ones among them, U units (see `CountedUnits`), F folds, S selections
(sets of folds on which clones are selected), T thresholds.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.association_tests import FISHER, AssociationTest
from deeprc.baselines.carrier_counts import MIN_CARRIERS, CountedUnits, run_over_clones
from deeprc.compilation import njit
from deeprc.datasets.clones.grouping import CloneCarriers
from deeprc.datasets.dataset import RepertoireDataset

__all__ = [
    "FoldedRepertoires",
    "Selections",
    "count_by_threshold",
    "count_clones_out_of_fold",
    "find_critical_sums",
    "find_passing_clones",
]


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


class Selections(NamedTuple):
    """The sets of folds on which clones are selected.

    Attributes
    ----------
    left_out
        Whether each selection leaves out each fold, (S, F).
    selection_of
        Index of the selection whose clones are counted, by the fold that is held out and the repertoire's own fold, (F
        + 1, F). The last row holds out no fold.
    """

    left_out: NDArray[np.bool_]
    selection_of: NDArray[np.int64]

    @classmethod
    def of(cls, n_folds: int, *, cross_fit: bool = True) -> Selections:
        """Return all selections that training repertoires in this number of folds need."""
        index_of: dict[frozenset[int], int] = {}
        selection_of = np.zeros((n_folds + 1, n_folds), np.int64)
        for held_out in range(n_folds + 1):
            for own_fold in range(n_folds):
                leaves_some = n_folds > 2 or held_out == n_folds  # without both of two folds, nothing would be left
                without = ({held_out} - {n_folds}) | ({own_fold} if cross_fit and leaves_some else set())
                selection_of[held_out, own_fold] = index_of.setdefault(frozenset(without), len(index_of))
        left_out = np.zeros((len(index_of), n_folds), bool)
        for without_folds, selection in index_of.items():
            left_out[selection, list(without_folds)] = True
        return cls(left_out, selection_of)


class _WorkArrays(NamedTuple):
    """Arrays that compiled code uses for each clone; it would take longer to compile if it made them itself.

    Attributes
    ----------
    sums
        What `_sum_by_fold` writes, (4, F).
    passed
        What `_count_passed` writes, (S,).
    last_seen
        What `_sum_by_fold` remembers of each unit, (U,); -1 before the first clone.
    """

    sums: NDArray[np.int64]
    passed: NDArray[np.int64]
    last_seen: NDArray[np.int64]

    @classmethod
    def allocate(cls, repertoires: FoldedRepertoires, left_out: NDArray[np.bool_]) -> _WorkArrays:
        """Return the arrays for these selections, (S, F)."""
        n_selections, n_folds = left_out.shape
        n_units = len(repertoires.weight)
        return cls(np.zeros((4, n_folds), np.int64), np.zeros(n_selections, np.int64), np.full(n_units, -1, np.int64))


def find_critical_sums(
    left_out: NDArray[np.bool_],
    repertoires: FoldedRepertoires,
    thresholds: Sequence[float] | NDArray[np.float64],
    test: AssociationTest,
) -> NDArray[np.int64]:
    """Return the sum of labels that a clone needs for each threshold, by its number of carriers, (S, T, labels + 1).

    `left_out` says whether each selection leaves out each fold, (S, F). The other parameters are as in
    `count_clones_out_of_fold`.
    """
    needed = np.full((len(left_out), len(thresholds), len(repertoires.labels) + 1), np.iinfo(np.int64).max)
    for selection, without in enumerate(left_out):
        kept = repertoires.labels[~without[repertoires.label_folds]]
        needed[selection, :, : len(kept) + 1] = test.critical(thresholds, kept)
    return needed


def count_clones_out_of_fold(
    clones: CloneCarriers,
    X: RepertoireDataset,
    units: CountedUnits,
    folds: NDArray[np.int64],
    thresholds: NDArray[np.float64],
    *,
    cross_fit: bool = True,
    test: AssociationTest = FISHER,
    forms: NDArray[np.uint32] | None = None,
) -> NDArray[np.int64]:
    """Return the number of associated clones that each repertoire carries, (T, B, F + 1).

    The last axis is the fold that is held out to test on; its last entry holds out no fold. Clones are selected without
    the held-out fold. With `cross_fit` they are also selected without the repertoire's own fold, so that no repertoire
    counts clones that were selected on it. (With two folds, the own fold stays if the other one is held out.)

    Parameters
    ----------
    clones
        Clones of the container of X.
    X, folds
        Training repertoires, and fold of each from 0, (B,).
    units
        Units of the training repertoires, with the labels of the test.
    thresholds
        Thresholds of the p-value, in falling order, (T,). A clone is associated if its p-value is below the threshold.
    test
        Test of association.
    forms
        Forms in which each carrier has the clone, as bits, (E,). If given, a clone counts only if its carriers among
        the repertoires on which it is selected have at least two forms.
    """
    carried_forms = np.zeros(0, np.uint32) if forms is None else forms
    selections = Selections.of(int(folds.max()) + 1, cross_fit=cross_fit)
    repertoires = FoldedRepertoires.of(X, units, folds)
    needed = find_critical_sums(selections.left_out, repertoires, thresholds, test)
    counts = np.zeros((len(repertoires.fold), len(selections.selection_of), len(thresholds)), np.int64)
    for block_counts in run_over_clones(
        partial(_count_block, clones, carried_forms, repertoires, selections, needed), len(clones)
    ):
        counts += block_counts
    return count_by_threshold(counts, repertoires, X)


def count_by_threshold(
    counts: NDArray[np.int64], repertoires: FoldedRepertoires, X: RepertoireDataset
) -> NDArray[np.int64]:
    """Return the number of clones of each repertoire that pass each threshold, (T, B, F + 1).

    Parameters
    ----------
    counts
        Number of clones of the D different repertoires by the strictest threshold that they pass, (D, F + 1, T).
    repertoires, X
        The D different repertoires, and all B training repertoires.
    """
    # a clone that passes a strict threshold also passes the looser ones
    passed = counts[:, :, ::-1].cumsum(axis=2)[:, :, ::-1]
    return np.ascontiguousarray(np.moveaxis(passed[repertoires.index_of[X.repertoire_indices]], 2, 0))


def find_passing_clones(
    clones: CloneCarriers, repertoires: FoldedRepertoires, left_out: NDArray[np.bool_], needed: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the clones that pass a threshold in any selection.

    Parameters
    ----------
    clones
        Clones of the container of the repertoires.
    repertoires, left_out
        Training repertoires, and whether each selection leaves out each fold, (S, F).
    needed
        Sums of labels that clones need; see `find_critical_sums`.

    Returns
    -------
    tuple
        Indices of n clones, (n,), and number of thresholds that each passes in each selection, (n, S).
    """
    blocks = [
        (np.zeros(0, np.int64), np.zeros((0, len(needed)), np.uint8)),
        *run_over_clones(partial(_find_passing_in_block, clones, repertoires, left_out, needed), len(clones)),
    ]
    return np.concatenate([indices for indices, _ in blocks]), np.concatenate([passed for _, passed in blocks])


def _count_block(
    clones: CloneCarriers,
    forms: NDArray[np.uint32],
    repertoires: FoldedRepertoires,
    selections: Selections,
    needed: NDArray[np.int64],
    start: int,
    stop: int,
) -> NDArray[np.int64]:
    """Return the number of clones of a block in each repertoire, (D, F + 1, T); see `count_by_threshold`."""
    counts = np.zeros((len(repertoires.fold), len(selections.selection_of), needed.shape[1]), np.int64)
    offsets = clones.offsets[start : stop + 1]
    left_out, selection_of = selections.left_out, selections.selection_of
    work = _WorkArrays.allocate(repertoires, left_out)
    _count(offsets, clones.carriers, forms, repertoires, left_out, needed, needed.min(), selection_of, work, counts)
    return counts


def _find_passing_in_block(
    clones: CloneCarriers,
    repertoires: FoldedRepertoires,
    left_out: NDArray[np.bool_],
    needed: NDArray[np.int64],
    start: int,
    stop: int,
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    offsets, capacity = clones.offsets[start : stop + 1], 1 << 12
    while True:
        indices, passed = np.empty(capacity, np.int64), np.empty((capacity, len(left_out)), np.uint8)
        work = _WorkArrays.allocate(repertoires, left_out)
        carried = clones.carriers, np.zeros(0, np.uint32)
        n = _find_passing(offsets, *carried, repertoires, left_out, needed, needed.min(), work, indices, passed)
        if n <= capacity:
            return indices[:n] + start, passed[:n]
        capacity = n


@njit(nogil=True)
def _sum_by_fold(
    repertoire_indices: NDArray[np.int32],
    forms: NDArray[np.uint32],
    start: int,
    stop: int,
    repertoires: FoldedRepertoires,
    last_seen: NDArray[np.int64],
    sums: NDArray[np.int64],
) -> int:
    """Write, for one clone in each fold: sum of labels, numbers of carriers and of different ones, and forms, (4, F).

    Return the sum of labels over all folds. The repertoires that have the clone are `repertoire_indices[start:stop]`.
    `last_seen` holds the start of the last clone of each unit, (U,). Without `forms`, a clone has two everywhere.
    """
    total = 0
    for fold in range(sums.shape[1]):
        sums[0, fold] = sums[1, fold] = sums[2, fold] = 0
        sums[3, fold] = 0 if len(forms) > 0 else 3
    for i in range(start, stop):
        row = repertoires.index_of[repertoire_indices[i]]
        if row >= 0 and len(forms) > 0:
            sums[3, repertoires.fold[row]] |= forms[i]
        if row >= 0 and last_seen[repertoires.unit[row]] != start:
            fold, unit = repertoires.fold[row], repertoires.unit[row]
            last_seen[unit] = start
            sums[0, fold] += repertoires.label_sum[unit]
            sums[1, fold] += repertoires.weight[unit]
            sums[2, fold] += 1
            total += repertoires.label_sum[unit]
    return total


@njit(nogil=True)
def _count_passed(
    sums: NDArray[np.int64], left_out: NDArray[np.bool_], needed: NDArray[np.int64], passed: NDArray[Any]
) -> int:
    """Write how many thresholds a clone passes in each selection, (S,), from its `_sum_by_fold`; return the maximum."""
    largest = 0
    for selection in range(len(left_out)):
        total = n = different = forms = 0
        for fold in range(left_out.shape[1]):
            if not left_out[selection, fold]:
                total += sums[0, fold]
                n += sums[1, fold]
                different += sums[2, fold]
                forms |= sums[3, fold]
        count = 0
        if different >= MIN_CARRIERS and forms & (forms - 1) != 0:
            while count < needed.shape[1] and total >= needed[selection, count, n]:
                count += 1
        passed[selection] = count
        if count > largest:  # `max` would be compiled, too
            largest = count
    return largest


@njit(nogil=True)
def _find_passing(
    offsets: NDArray[np.int64],
    repertoire_indices: NDArray[np.int32],
    forms: NDArray[np.uint32],
    repertoires: FoldedRepertoires,
    left_out: NDArray[np.bool_],
    needed: NDArray[np.int64],
    least: int,
    work: _WorkArrays,
    indices: NDArray[np.int64],
    passed: NDArray[np.uint8],
) -> int:
    """Write the clones that pass any threshold to `indices`, and how many pass in each selection to `passed`; return n.

    `least` is the minimum of `needed`.
    """
    n = 0
    sums, n_passed, last_seen = work
    for clone in range(len(offsets) - 1):
        span = offsets[clone], offsets[clone + 1]
        total = _sum_by_fold(repertoire_indices, forms, *span, repertoires, last_seen, sums)
        if total >= least and _count_passed(sums, left_out, needed, n_passed) > 0:
            if n < len(indices):
                indices[n] = clone
                for selection in range(len(n_passed)):
                    passed[n, selection] = n_passed[selection]
            n += 1
    return n


@njit(nogil=True)
def _count(
    offsets: NDArray[np.int64],
    repertoire_indices: NDArray[np.int32],
    forms: NDArray[np.uint32],
    repertoires: FoldedRepertoires,
    left_out: NDArray[np.bool_],
    needed: NDArray[np.int64],
    least: int,
    selection_of: NDArray[np.int64],
    work: _WorkArrays,
    counts: NDArray[np.int64],
) -> None:
    """Add to `counts`, (D, F + 1, T), each clone at the strictest threshold that it passes.

    The repertoires that have a clone are `repertoire_indices[offsets[clone] : offsets[clone + 1]]`. `least` is the
    minimum of `needed`.
    """
    sums, passed, last_seen = work
    for clone in range(len(offsets) - 1):
        span = offsets[clone], offsets[clone + 1]
        total = _sum_by_fold(repertoire_indices, forms, *span, repertoires, last_seen, sums)
        if total < least or _count_passed(sums, left_out, needed, passed) == 0:
            continue
        for i in range(offsets[clone], offsets[clone + 1]):
            row = repertoires.index_of[repertoire_indices[i]]
            if row >= 0:
                for held_out in range(len(selection_of)):
                    strictest = passed[selection_of[held_out, repertoires.fold[row]]] - 1
                    if strictest >= 0:
                        counts[row, held_out, strictest] += 1
