"""Count the associated clones of each training repertoire, if clones are selected without some of the folds.

One pass over the clones gives the counts for all folds and thresholds.

Letters: B training repertoires, D different ones among them, U units (see `CountedUnits`), F folds, S selections
(sets of folds on which clones are selected), T thresholds.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.baselines.association_tests import FISHER, AssociationTest
from deeprc.baselines.carrier_counts import CountedUnits, run_over_clones
from deeprc.baselines.cross_fitted_clone_loops import (
    CarriersByClone,
    FoldedRepertoires,
    PassingRule,
    WorkArrays,
    count_by_strictest_threshold,
    find_passing,
)
from deeprc.datasets.clones.grouping import CloneCarriers
from deeprc.datasets.dataset import RepertoireDataset

__all__ = ["Selections", "count_by_threshold", "count_clones_out_of_fold", "find_passing_clones"]


class Selections(NamedTuple):
    """The selections of clones: each selects clones on some of the folds, and leaves out the others.

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
                without = set() if held_out == n_folds else {held_out}
                if cross_fit and (n_folds > 2 or not without):  # without both of two folds, nothing would be left
                    without.add(own_fold)
                selection_of[held_out, own_fold] = index_of.setdefault(frozenset(without), len(index_of))
        left_out = np.zeros((len(index_of), n_folds), bool)
        for without_folds, selection in index_of.items():
            left_out[selection, list(without_folds)] = True
        return cls(left_out, selection_of)


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
        Forms in which each carrier has the clone, as bits, (E,). The forms of a wildcard clone are the residues at its
        wildcard. If they are given, a clone counts only if it has at least two forms among the repertoires on which it
        is selected.
    """
    selections = Selections.of(int(folds.max()) + 1, cross_fit=cross_fit)
    repertoires = FoldedRepertoires.of(X, units, folds)
    rule = PassingRule.of(selections.left_out, repertoires, thresholds, test)
    carriers = CarriersByClone.of(clones, forms)
    counts = np.zeros((len(repertoires.fold), len(selections.selection_of), len(thresholds)), np.int64)
    count = partial(_count_block, carriers, repertoires, rule, selections.selection_of)
    for block_counts in run_over_clones(count, len(clones)):
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
    clones: CloneCarriers, repertoires: FoldedRepertoires, rule: PassingRule
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the clones that pass a threshold in any selection.

    Parameters
    ----------
    clones
        Clones of the container of the repertoires.
    repertoires
        Training repertoires.
    rule
        When a clone passes.

    Returns
    -------
    tuple
        Indices of n clones, (n,), and number of thresholds that each passes in each selection, (n, S).
    """
    carriers = CarriersByClone.of(clones)
    blocks = [
        (np.zeros(0, np.int64), np.zeros((0, len(rule.left_out)), np.uint8)),
        *run_over_clones(partial(_find_passing_in_block, carriers, repertoires, rule), len(clones)),
    ]
    return np.concatenate([indices for indices, _ in blocks]), np.concatenate([n_passed for _, n_passed in blocks])


def _count_block(
    carriers: CarriersByClone,
    repertoires: FoldedRepertoires,
    rule: PassingRule,
    selection_of: NDArray[np.int64],
    start: int,
    stop: int,
) -> NDArray[np.int64]:
    """Return the number of clones of a block in each repertoire, (D, F + 1, T); see `count_by_threshold`."""
    counts = np.zeros((len(repertoires.fold), len(selection_of), rule.critical_sums.shape[1]), np.int64)
    block = carriers._replace(offsets=carriers.offsets[start : stop + 1])
    work = WorkArrays.allocate(repertoires, rule.left_out)
    count_by_strictest_threshold(block, repertoires, rule, selection_of, work, counts)
    return counts


def _find_passing_in_block(
    carriers: CarriersByClone, repertoires: FoldedRepertoires, rule: PassingRule, start: int, stop: int
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Return the clones from `start` to `stop` that pass in any selection; see `find_passing_clones`."""
    block, capacity = carriers._replace(offsets=carriers.offsets[start : stop + 1]), 1 << 12
    while True:
        indices, n_passed = np.empty(capacity, np.int64), np.empty((capacity, len(rule.left_out)), np.uint8)
        work = WorkArrays.allocate(repertoires, rule.left_out)
        n = find_passing(block, repertoires, rule, work, indices, n_passed)
        if n <= capacity:
            return indices[:n] + start, n_passed[:n]
        capacity = n
