"""The exact test of carriers by class, over strata, for millions of clones and many permutations of the labels.

If the number of donors of each stratum that carry a clone, and the number that are of the class, are given, the number
of carriers of the class is a sum of hypergeometric numbers, one for each stratum. The p-value is its upper tail:
Fisher's exact test if there is one stratum, otherwise the exact form of the test of Cochran, Mantel and Haenszel.

Letters: U units (donors with one class, see `DonorsByClass`), K strata, P permutations, M clones, n of them with a low
p-value, Z bins of p-values, from the largest p-values to the smallest.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from itertools import chain
from math import log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats, Integers
from deeprc.baselines.association_tests import log_factorials, log_pmf
from deeprc.baselines.carrier_counts import MIN_CARRIERS, run_over_clones
from deeprc.compilation import njit
from deeprc.datasets.clones.grouping import CloneCarriers

__all__ = [
    "ClassTest",
    "TestedClones",
    "compare_carriers",
    "compute_permutation_q_values",
    "compute_stratified_p_values",
    "join_tested_clones",
]

_BINS_PER_DECADE, _DECADES = 50, 100  # bins of p-values; smaller p-values are in the last bin
_N_BINS = _BINS_PER_DECADE * _DECADES
_ROUNDING = 1e-9  # relative difference of ratios that are equal but for rounding


class ClassTest(NamedTuple):
    """The data of the test whether donors of a class carry a clone more often than other donors.

    Attributes
    ----------
    unit_of
        Index of the unit of each repertoire of the container, or -1.
    strata
        Index of the stratum of each unit, (U,).
    is_of_class
        Whether each unit is of the class, 0 or 1, with the true labels and in each permutation, (U, 1 + P) uint8.
    sizes, class_sizes
        Number of units of each stratum, and of those of the class, (K,) each; equal in all permutations.
    logs
        Logarithms of the factorials of 0 to U, (U + 1,).
    max_p
        Largest p-value of a clone that is kept.
    """

    unit_of: NDArray[np.int32]
    strata: Integers
    is_of_class: NDArray[np.uint8]
    sizes: Integers
    class_sizes: Integers
    logs: Floats
    max_p: float

    @classmethod
    def of(
        cls, unit_of: NDArray[np.int32], strata: Integers, is_of_class: NDArray[np.bool_], max_p: float
    ) -> ClassTest:
        """Return the test of a class, given whether each unit is of it, (U, 1 + P)."""
        n_strata = int(strata.max()) + 1
        members = is_of_class[:, 0]
        sizes = np.bincount(strata, minlength=n_strata), np.bincount(strata[members], minlength=n_strata)
        members_by_labels = np.ascontiguousarray(is_of_class, np.uint8)
        return cls(unit_of, strata, members_by_labels, *sizes, log_factorials(len(strata)), float(max_p))


class TestedClones(NamedTuple):
    """The n clones whose p-value is low enough, and the distribution of low p-values for all labellings.

    Attributes
    ----------
    indices
        Indices of the clones among all clones, (n,).
    bins
        Index of the bin of each p-value, (n,); the bins are in falling order of p-values.
    p_values
        P-value of each clone, (n,).
    n_tested
        Number of clones that were tested: those whose p-value could be low enough.
    counts
        Number of low p-values in each bin, with the true labels and in each permutation, (1 + P, Z).
    """

    indices: Integers
    bins: Integers
    p_values: Floats
    n_tested: int
    counts: NDArray[np.signedinteger[Any]]


def compare_carriers(clones: CloneCarriers, test: ClassTest) -> TestedClones:
    """Return the clones with a p-value of at most `test.max_p`, of those that at least two donors carry.

    A clone is not tested if too few donors carry it for such a p-value, whatever their labels are. This depends
    only on the numbers of donors, so it does not change the p-values of the other clones.
    """
    n_labellings = test.is_of_class.shape[1]
    none = np.zeros(0, np.int64)
    no_clones = TestedClones(none, none, np.zeros(0), 0, np.zeros((n_labellings, _N_BINS), np.int64))
    return join_tested_clones(chain([no_clones], run_over_clones(partial(_test_block, clones, test), len(clones))))


def join_tested_clones(parts: Iterable[TestedClones]) -> TestedClones:
    """Return the clones of several parts, at least one, one after the other; the numbers of tests are summed."""
    indices, bins, p_values = [], [], []
    n_tested, counts = 0, np.zeros((1, 1), np.int64)
    for part in parts:  # each is let go, as the counts of all permutations need much memory
        indices.append(part.indices)
        bins.append(part.bins)
        p_values.append(part.p_values)
        n_tested += part.n_tested
        counts = counts + part.counts
    return TestedClones(np.concatenate(indices), np.concatenate(bins), np.concatenate(p_values), n_tested, counts)


def _test_block(clones: CloneCarriers, test: ClassTest, start: int, stop: int) -> TestedClones:
    """Return those of the clones from `start` to `stop` whose p-value is low enough."""
    counts = np.zeros((test.is_of_class.shape[1], _N_BINS), np.int32)
    indices, bins = np.empty((2, stop - start), np.int64)
    p_values = np.empty(stop - start)
    n, n_tested = _test_clones(clones.offsets, clones.carriers, start, stop, test, indices, bins, p_values, counts)
    return TestedClones(indices[:n].copy(), bins[:n].copy(), p_values[:n].copy(), n_tested, counts)


def compute_stratified_p_values(
    class_carriers: Integers, carriers: Integers, class_sizes: Integers, sizes: Integers
) -> Floats:
    """Return one-sided p-values of M tables over K strata, (M,), for more carriers in the class than by chance.

    Parameters
    ----------
    class_carriers
        Number of donors of the class that carry the clone, over all strata, (M,).
    carriers
        Number of donors of each stratum that carry the clone, (M, K).
    class_sizes, sizes
        Number of donors of the class, and of all donors, of each stratum, (M, K) each.
    """
    largest = int(sizes.sum(axis=1).max(initial=0))
    logs = log_factorials(largest)
    p_values = np.empty(len(carriers))
    buffer = np.zeros((2, largest + 1))
    _fill_p_values(class_carriers, carriers, class_sizes, sizes, logs, buffer, p_values)
    return p_values


@njit(nogil=True)
def _write_tail(carriers: Integers, class_sizes: Integers, sizes: Integers, logs: Floats, buffer: Floats) -> Any:
    """Write the p-value of each possible number of carriers of the class to buffer[0]; return the least, and how many.

    `carriers` is the number of carriers in each stratum, (K,).
    """
    low, length = 0, 1
    buffer[0, 0] = 1.0
    for k in range(len(carriers)):
        n = carriers[k]
        if n == 0:
            continue
        first, last = max(0, n - (sizes[k] - class_sizes[k])), min(n, class_sizes[k])
        low += first
        for i in range(length + last - first):
            buffer[1, i] = 0.0
        for x in range(first, last + 1):
            probability = np.exp(log_pmf(x, n, class_sizes[k], sizes[k], logs))
            for i in range(length):
                buffer[1, i + x - first] += buffer[0, i] * probability
        length += last - first
        for i in range(length):
            buffer[0, i] = buffer[1, i]
    for i in range(length - 2, -1, -1):  # from the end, so that small values are precise
        buffer[0, i] += buffer[0, i + 1]
    buffer[0, 0] = 1.0
    return low, length


@njit(nogil=True)
def _fill_p_values(
    class_carriers: Integers,
    carriers: Integers,
    class_sizes: Integers,
    sizes: Integers,
    logs: Floats,
    buffer: Floats,
    p_values: Floats,
) -> None:
    """Write the one-sided p-value of Fisher's exact test of each of M clones into `p_values`, (M,)."""
    for m in range(len(carriers)):
        low, _ = _write_tail(carriers[m], class_sizes[m], sizes[m], logs, buffer)
        p_values[m] = min(buffer[0, class_carriers[m] - low], 1.0)


@njit(nogil=True)
def _find_lowest_log_p(carriers: Integers, test: ClassTest) -> Any:
    """Return the logarithm of the p-value if as many carriers as possible are of the class."""
    total = 0.0
    for k in range(len(carriers)):
        if carriers[k] > 0:
            most = min(carriers[k], test.class_sizes[k])
            total += log_pmf(most, carriers[k], test.class_sizes[k], test.sizes[k], test.logs)
    return total


@njit(nogil=True)
def _test_clones(
    offsets: Integers,
    repertoires: NDArray[np.int32],
    start: int,
    stop: int,
    test: ClassTest,
    indices: Integers,
    bins: Integers,
    p_values: Floats,
    counts: NDArray[np.int32],
) -> tuple[int, int]:
    """Write the clones from `start` to `stop` with a low p-value, and add all low p-values to `counts`, (1 + P, Z).

    The result is the number of clones that were written, and the number of those that were tested.
    """
    n_units, n_labels = test.is_of_class.shape
    last_clone_of_unit = np.full(n_units, -1, np.int64)
    clone_units, class_carriers = np.zeros(n_units, np.int64), np.zeros(n_labels, np.int32)
    carriers, buffer = np.zeros(len(test.sizes), np.int64), np.zeros((2, n_units + 1))
    log_limit, n_found, n_tested = log(test.max_p) + 1e-9, 0, 0
    for clone in range(start, stop):
        repertoires_of_clone = repertoires[offsets[clone] : offsets[clone + 1]]
        n = _list_units(clone, repertoires_of_clone, test.unit_of, last_clone_of_unit, clone_units)
        if n < MIN_CARRIERS:
            continue
        _count_by_stratum(clone_units[:n], test.strata, carriers)
        if _find_lowest_log_p(carriers, test) > log_limit:
            continue
        n_tested += 1
        low, length = _write_tail(carriers, test.class_sizes, test.sizes, test.logs, buffer)
        needed = low + length  # the smallest number of carriers of the class with a low p-value
        while needed > low and buffer[0, needed - 1 - low] <= test.max_p:
            needed -= 1
        _count_of_class(clone_units[:n], test.is_of_class, class_carriers)
        for labelling in range(n_labels):
            if class_carriers[labelling] >= needed:
                p_value = buffer[0, class_carriers[labelling] - low]
                bin_index = _find_bin(p_value, counts.shape[1])
                counts[labelling, bin_index] += 1
                if labelling == 0:  # the true labels
                    indices[n_found] = clone
                    bins[n_found] = bin_index
                    p_values[n_found] = p_value
                    n_found += 1
    return n_found, n_tested


@njit(nogil=True)
def _list_units(
    clone: int,
    repertoires: NDArray[np.int32],
    unit_of: NDArray[np.int32],
    last_clone_of_unit: Integers,
    clone_units: Integers,
) -> int:
    """Write the different units of the repertoires that carry a clone to `clone_units`; return their number.

    `last_clone_of_unit`, (U,), is the last clone for which a unit was written, so nothing is cleared for each clone.
    """
    n = 0
    for repertoire in repertoires:
        unit = unit_of[repertoire]
        if unit >= 0 and last_clone_of_unit[unit] != clone:
            last_clone_of_unit[unit] = clone
            clone_units[n] = unit
            n += 1
    return n


@njit(nogil=True)
def _count_by_stratum(units: Integers, strata: Integers, counts: Integers) -> None:
    """Write the number of units in each stratum, (K,)."""
    for k in range(len(counts)):
        counts[k] = 0
    for unit in units:
        counts[strata[unit]] += 1


@njit(nogil=True)
def _count_of_class(units: Integers, is_of_class: NDArray[np.uint8], counts: NDArray[np.int32]) -> None:
    """Write the number of units that are of the class with each labelling, (1 + P,)."""
    for labelling in range(len(counts)):
        counts[labelling] = 0
    for unit in units:
        members = is_of_class[unit]
        for labelling in range(len(counts)):
            counts[labelling] += members[labelling]


@njit(inline="always")
def _find_bin(p_value: Any, n_bins: Any) -> Any:
    """Return the index of the bin of a p-value."""
    bins_below_1 = -np.log10(max(p_value, 10.0**-_DECADES)) * _BINS_PER_DECADE
    return min(np.int64(bins_below_1), n_bins - 1)


def compute_permutation_q_values(
    bins: NDArray[np.int64], counts: NDArray[np.signedinteger[Any]]
) -> NDArray[np.float64]:
    """Return the false discovery rate of each test, its q-value, by permutations of the labels between donors, (n,).

    At each limit of the p-value, the mean number of tests that reach it over all labellings, permuted and not, is
    divided by the number that reach it with the true labels. A q-value is the minimum over all limits that the test
    reaches. As clones that the same donors carry reach a limit together, such a ratio is sometimes low by chance. So
    no q-value is below the share of labellings whose own minimum is as low as that of the true labels: without any
    association, the probability of any q-value below a level is at most this level.

    Parameters
    ----------
    bins
        The bin of the p-value of each test, (n,).
    counts
        Number of tests in each bin with the true labels, and with each permutation, (1 + P, Z).
    """
    reached = counts[:, ::-1].cumsum(axis=1)[:, ::-1]
    ratios = np.divide(reached.mean(axis=0), reached, out=np.full(reached.shape, np.inf), where=reached > 0)
    lowest = ratios.min(axis=1)
    share = float((lowest <= lowest[0] * (1 + _ROUNDING)).mean())
    q_values = np.minimum.accumulate(ratios[0])[bins]
    return np.asarray(np.minimum(np.maximum(q_values, share), 1.0))
