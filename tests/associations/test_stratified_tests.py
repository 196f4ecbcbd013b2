"""The exact test over strata against scipy and against enumeration; q-values by permutations by hand."""

from __future__ import annotations

from itertools import product
from math import comb

import numpy as np
import pytest
from scipy import stats

from deeprc.associations.columns import (
    CarrierCounts,
    compute_odds_ratios,
    compute_p_values,
    compute_stratified_odds_ratios,
)
from deeprc.associations.donors_by_class import DonorsByClass
from deeprc.associations.stratified_tests import (
    ClassTest,
    compare_carriers,
    compute_permutation_q_values,
    compute_stratified_p_values,
)
from deeprc.datasets.alphabet import compute_offsets
from deeprc.datasets.clones.grouping import CloneCarriers

RNG = np.random.default_rng(0)


def enumerate_p(a: int, carriers: list[int], class_sizes: list[int], sizes: list[int]) -> float:
    """Return the upper tail over all ways in which the carriers of the strata can be of the class."""
    total = 0.0
    for chosen in product(*(range(n + 1) for n in carriers)):
        ways = 1.0
        for x, n, n_class, n_all in zip(chosen, carriers, class_sizes, sizes, strict=True):
            ways *= comb(n_class, x) * comb(n_all - n_class, n - x) / comb(n_all, n)
        total += ways * (sum(chosen) >= a)
    return total


def test_one_stratum_is_fishers_test() -> None:
    tables = [(a, n, 9, 25) for n in range(26) for a in range(max(0, n - 16), min(n, 9) + 1)]
    a, n, n_class, n_all = (np.array(column)[:, None] for column in zip(*tables, strict=True))
    expected = [
        stats.fisher_exact([[x, m - x], [p - x, u - p - m + x]], alternative="greater").pvalue for x, m, p, u in tables
    ]
    np.testing.assert_allclose(compute_stratified_p_values(a[:, 0], n, n_class, n_all), expected, rtol=1e-10)


def test_several_strata_by_enumeration() -> None:
    sizes, class_sizes = [12, 7, 5], [4, 6, 0]
    for carriers in ([3, 2, 1], [0, 7, 2], [12, 0, 5], [5, 5, 0]):
        low = sum(max(0, n - (u - p)) for n, p, u in zip(carriers, class_sizes, sizes, strict=True))
        high = sum(min(n, p) for n, p in zip(carriers, class_sizes, strict=True))
        for a in range(low, high + 1):
            columns = (np.array([values], np.int64) for values in (carriers, class_sizes, sizes))
            found = compute_stratified_p_values(np.array([a]), *columns)[0]
            assert found == pytest.approx(enumerate_p(a, carriers, class_sizes, sizes), rel=1e-10)


def test_exact_p_values_are_near_those_of_the_asymptotic_test_of_cochran_mantel_and_haenszel() -> None:
    sizes, class_sizes, carriers = np.array([200, 150, 90]), np.array([80, 100, 30]), np.array([60, 50, 20])
    expected = (carriers * class_sizes / sizes).sum()
    variance = (carriers * (sizes - carriers) * class_sizes * (sizes - class_sizes) / sizes**2 / (sizes - 1)).sum()
    for a in (70, 75, 80):
        asymptotic = stats.norm.sf((a - expected - 0.5) / variance**0.5)
        exact = compute_stratified_p_values(np.array([a]), carriers[None], class_sizes[None], sizes[None])[0]
        assert exact == pytest.approx(asymptotic, rel=0.15)


def draw_clones(n_clones: int, n_repertoires: int) -> CloneCarriers:
    sets = [
        np.sort(RNG.choice(n_repertoires, RNG.integers(2, n_repertoires // 4), replace=False)) for _ in range(n_clones)
    ]
    offsets = compute_offsets(np.array([len(own) for own in sets]))
    joined = np.concatenate(sets).astype(np.int32)
    return CloneCarriers(np.arange(n_clones), offsets, joined)


@pytest.mark.slow
def test_donors_are_counted_once_and_only_clones_that_can_be_significant_are_tested() -> None:
    """40 repertoires of 16 donors in two strata, and some repertoires that do not count, against plain loops."""
    clones = draw_clones(300, 40)
    unit_of = RNG.integers(-1, 16, 40).astype(np.int32)
    strata, is_of_class = RNG.integers(0, 2, 16), RNG.random((16, 6)) < 0.5
    for k in (0, 1):  # permutations stay within strata
        for j in range(1, 6):
            is_of_class[strata == k, j] = RNG.permutation(is_of_class[strata == k, 0])
    max_p = 0.15
    found = compare_carriers(clones, ClassTest.of(unit_of, strata, is_of_class, max_p))
    sizes, class_sizes = np.bincount(strata, minlength=2), np.bincount(strata[is_of_class[:, 0]], minlength=2)
    rows, n_tested, n_low = [], 0, np.zeros(6, int)
    for index in range(300):
        own = clones.carriers[clones.offsets[index] : clones.offsets[index + 1]]
        donors = sorted(set(unit_of[own].tolist()) - {-1})
        carriers = np.bincount(strata[donors], minlength=2)
        if len(donors) < 2:
            continue
        highest = int(np.minimum(carriers, class_sizes).sum())
        if enumerate_p(highest, carriers.tolist(), class_sizes.tolist(), sizes.tolist()) > max_p:
            continue
        n_tested += 1
        for j in range(6):
            a = int(is_of_class[donors, j].sum())
            p = enumerate_p(a, carriers.tolist(), class_sizes.tolist(), sizes.tolist())
            n_low[j] += p <= max_p
            if j == 0 and p <= max_p:
                rows.append((index, p))
    assert 5 < len(rows) < n_tested < 290
    np.testing.assert_array_equal(found.indices, [row[0] for row in rows])
    np.testing.assert_allclose(found.p_values, [row[1] for row in rows], rtol=1e-9)
    assert found.n_tested == n_tested
    np.testing.assert_array_equal(found.counts.sum(axis=1), n_low)
    np.testing.assert_array_equal(np.bincount(found.bins, minlength=found.counts.shape[1]), found.counts[0])


def test_q_values_by_permutations_by_hand() -> None:
    """With the true labels 1 test has p of 0.01 and 2 of 0.1; three permutations have 0, 1 and 4 of 0.1 only."""
    counts = np.array([[2, 1], [0, 0], [1, 0], [4, 0]])
    ratios = [(3 + 0 + 1 + 4) / 4 / 3, 0.25 / 1]  # of the limits 0.1 and 0.01
    bins = np.array([0, 0, 1])
    lowest = [0.25, np.inf, 2.0, 0.5]
    share = np.mean([value <= 0.25 for value in lowest])
    np.testing.assert_allclose(
        compute_permutation_q_values(bins, counts), [ratios[0], ratios[0], max(ratios[1], share)]
    )


def test_no_q_value_is_below_the_share_of_labellings_that_do_as_well() -> None:
    counts = np.array([[0, 5], [0, 5], [0, 0], [0, 0]])
    np.testing.assert_allclose(compute_permutation_q_values(np.array([1] * 5), counts), 0.5)
    assert len(compute_permutation_q_values(np.zeros(0, np.int64), np.zeros((4, 2), np.int64))) == 0


def donors_of(strata: list[int], codes: list[int]) -> DonorsByClass:
    n = len(codes)
    return DonorsByClass(
        np.arange(n, dtype=np.int32), ("a", "b"), np.array(codes), np.arange(n), np.ones(n, int), np.array(strata), ()
    )


def test_odds_ratios_and_tests_of_rows_by_scipy_and_by_hand() -> None:
    donors = donors_of([0] * 10 + [1] * 10, [0] * 6 + [1] * 4 + [0] * 2 + [1] * 8)
    carriers = np.array([[[1, 3], [0, 5]], [[0, 2], [0, 4]]])  # of rows, strata and classes
    counts = CarrierCounts(donors, carriers, np.array([1, 1]))
    found = compute_odds_ratios(counts)
    for row, table in enumerate(([[8, 1], [4, 7]], [[6, 0], [6, 8]])):
        by_scipy = stats.contingency.odds_ratio(table)
        interval = by_scipy.confidence_interval(0.95)
        np.testing.assert_allclose(found[row], [by_scipy.statistic, interval.low, interval.high])
    assert found[1, 2] == np.inf
    upper, lower = 3 * 5 / 10 + 5 * 2 / 10, 1 * 1 / 10 + 0
    np.testing.assert_allclose(compute_stratified_odds_ratios(counts), [upper / lower, np.inf])
    expected = [enumerate_p(8, [4, 5], [4, 8], [10, 10]), enumerate_p(6, [2, 4], [4, 8], [10, 10])]
    np.testing.assert_allclose(compute_p_values(counts), expected)
    excluded = np.array([[[1, 1], [0, 0]], [[0, 0], [1, 1]]])
    counts = CarrierCounts(donors, carriers, np.array([1, 1]), excluded)
    expected = [enumerate_p(8, [4, 5], [3, 8], [8, 10]), enumerate_p(6, [2, 4], [4, 7], [10, 8])]
    np.testing.assert_allclose(compute_p_values(counts), expected)
