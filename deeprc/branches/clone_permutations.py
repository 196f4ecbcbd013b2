"""A permutation test of a search for clones: whether more clones are associated with the label than with permuted ones.

Cross-fitted scores are poor evidence in small cohorts: without a tenth of the repertoires, many clones have no longer
enough carriers. This test uses all training repertoires at once, as Emerson et al. (2017) do for their false discovery
rate, so it finds signals in cohorts of about a hundred repertoires that cross-fitted scores do not show.

Letters: M clones, U units, P permutations, V thresholds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from deeprc.arrays import Floats, Integers, find_first_occurrences
from deeprc.baselines.carrier_counts import MIN_CARRIERS, run_over_clones
from deeprc.branches.clones_searches import CloneSearch
from deeprc.datasets.clones.grouping import CloneCarriers
from deeprc.groups import index_groups
from deeprc.labels import find_canonical_order
from deeprc.permutations import permute_labels

__all__ = ["can_be_permuted", "exceeds_permutations"]

_N_PERMUTATIONS = 200
_MAX_P_VALUE = 0.01
_MAX_UNITS = 300  # with more units, cross-fitted scores are evidence enough, and this test would take long
_BLOCK = 4096  # number of clones that are counted at a time
_MIN_SPREAD = 0.5  # smallest standard deviation that a number of clones is compared with


def can_be_permuted(search: CloneSearch) -> bool:
    """Return whether the labels of a search can be permuted: it has at most 300 units, each of which counts once."""
    return len(search.units.weight) <= _MAX_UNITS and bool((search.units.weight == 1).all())


def exceeds_permutations(clones: CloneCarriers, search: CloneSearch, thresholds: Sequence[float]) -> bool:
    """Return whether more clones are associated with the labels than with permuted ones, at a level of 0.01.

    Donors exchange labels with donors that have about as many sequences, because larger repertoires share more clones.
    What is compared is the largest standardised number of associated clones over the thresholds. The result does not
    depend on the order of the repertoires. It is False if the labels cannot be permuted.

    Parameters
    ----------
    clones
        Clones that repertoires of the container share.
    search
        The search.
    thresholds
        Thresholds of the p-value below which a clone is associated, (V,).
    """
    units = search.units
    if not can_be_permuted(search):
        return False
    labels = _permute_labels(search).astype(np.float32)
    needed = search.test.find_critical_sums(list(thresholds), units.labels())

    def count(start: int, stop: int) -> Integers:
        counts = np.zeros((len(thresholds), labels.shape[1]), np.int64)
        for first in range(start, stop, _BLOCK):
            counts += _count_associated(clones, first, min(first + _BLOCK, stop), units.unit_of, labels, needed)
        return counts

    n_associated = np.zeros((len(thresholds), labels.shape[1]))
    for counts in run_over_clones(count, len(clones)):
        n_associated += counts
    # the true labels are one of the orders that are standardised, so all of them are treated alike
    spread = np.maximum(n_associated.std(axis=1, keepdims=True), _MIN_SPREAD)
    largest = ((n_associated - n_associated.mean(axis=1, keepdims=True)) / spread).max(axis=0)
    p_value = (1 + np.count_nonzero(largest[1:] >= largest[0])) / (1 + _N_PERMUTATIONS)
    return bool(p_value < _MAX_P_VALUE)


def _permute_labels(search: CloneSearch) -> Floats:
    """Return the labels of the units, and permutations of them between donors of about the same size, (U, 1 + P)."""
    rows = find_canonical_order(search.dataset, search.values[:, None])
    unit_of_row = search.units.unit_of[search.dataset.repertoire_indices[rows]]
    firsts = find_first_occurrences(unit_of_row)
    order = unit_of_row[firsts]
    sizes = np.bincount(unit_of_row, search.dataset.n_sequences[rows]).astype(np.int64)[order]
    donors = np.arange(len(order)) if search.groups is None else index_groups(search.groups[rows][firsts])
    labels = np.empty((len(order), 1 + _N_PERMUTATIONS))
    ordered = search.units.label_sum[order, None].astype(np.float64)
    labels[order] = permute_labels(ordered, sizes, donors, _N_PERMUTATIONS, np.random.default_rng(0))[:, 0]
    return labels


def _count_associated(
    clones: CloneCarriers,
    start: int,
    stop: int,
    unit_of: NDArray[np.int32],
    labels: NDArray[np.float32],
    needed: Integers,
) -> Integers:
    """Return how many of the clones from `start` to `stop` are associated with each column of labels, (V, 1 + P)."""
    offsets = clones.offsets[start : stop + 1]
    units = unit_of[clones.carriers[offsets[0] : offsets[-1]]]
    clone = np.repeat(np.arange(stop - start), np.diff(offsets))
    is_counted = units >= 0
    shape = stop - start, len(labels)
    carried = csr_matrix((np.ones(int(is_counted.sum()), np.float32), (clone[is_counted], units[is_counted])), shape)
    carried.sum_duplicates()
    carried.data[:] = 1
    n_carriers = np.diff(carried.indptr)
    can_be_associated = n_carriers * labels.max() >= np.min(needed, axis=0)[n_carriers]
    tested = np.flatnonzero((n_carriers >= MIN_CARRIERS) & can_be_associated)
    label_sums = carried[tested] @ labels  # (M, 1 + P)
    return np.stack([(label_sums >= least[n_carriers[tested], None]).sum(axis=0) for least in needed])
