"""The test of rates by donor: against scipy, against all permutations, and at its level without a signal."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
import pytest
from scipy import stats

from deeprc.interpretation.motifs.donor_tests import (
    compute_class_p_value,
    compute_donor_rates,
    compute_spearman_p_value,
)


def numbered(rates: list[float], first: int = 0) -> dict[int, float]:
    return dict(enumerate(rates, first))


def test_rates_are_those_of_donors() -> None:
    counts, sizes, donors = np.array([1, 0, 3, 0]), np.array([100, 300, 100, 0]), np.array([7, 7, 2, 5])
    assert compute_donor_rates(counts, sizes, donors) == {2: 0.03, 7: 0.0025}  # one has no sequences, and no rate


def test_mann_and_whitneys_test_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    for n, m, shift in ((4, 6, 0.5), (12, 9, 1.0), (25, 30, 0.3)):
        own, other = rng.normal(shift, size=n), rng.normal(size=m)
        expected = stats.mannwhitneyu(own, other, alternative="greater", method="exact").pvalue
        assert compute_class_p_value(numbered(own.tolist()), numbered(other.tolist(), n)) == pytest.approx(expected)
    own, other = rng.normal(0.3, size=60), rng.normal(size=50)
    expected = stats.mannwhitneyu(own, other, alternative="greater").pvalue
    assert compute_class_p_value(numbered(own.tolist()), numbered(other.tolist(), 60)) == pytest.approx(expected)


def test_ties_are_exact() -> None:
    """Most donors do not carry a rare motif: against all ways to choose the donors of the class."""
    own, other = [0.0, 0.01, 0.02, 0.01], [0.0, 0.0, 0.0, 0.01, 0.0]
    ranks = stats.rankdata(own + other)
    sums = np.array([ranks[list(chosen)].sum() for chosen in combinations(range(9), 4)])
    expected = (sums >= ranks[:4].sum() - 1e-9).mean()
    assert compute_class_p_value(numbered(own), numbered(other, 4)) == pytest.approx(expected)
    assert compute_class_p_value(numbered([0.0] * 4), numbered([0.0] * 5, 4)) == 1.0


def test_donors_of_both_classes_are_compared_with_themselves() -> None:
    own, other = [0.03, 0.02, 0.01, 0.05, 0.0], [0.01, 0.01, 0.02, 0.01, 0.0]
    ranks = stats.rankdata([0.02, 0.01, 0.01, 0.04])
    signs = np.array([1, 1, 0, 1])
    sums = np.array([ranks @ np.array(each) for each in product([0, 1], repeat=4)])
    expected = (sums >= ranks @ signs - 1e-9).mean()
    assert compute_class_p_value(numbered(own), numbered(other)) == pytest.approx(expected)
    differences = np.random.default_rng(1).normal(0.2, size=80)
    expected = stats.wilcoxon(differences, alternative="greater", method="asymptotic").pvalue
    assert compute_class_p_value(numbered(differences.tolist()), numbered([0.0] * 80)) == pytest.approx(expected)


def test_the_p_value_is_nan_without_donors_of_both_classes() -> None:
    assert np.isnan(compute_class_p_value({1: 0.1}, {}))
    assert np.isnan(compute_class_p_value({}, {}))


def test_numbers_by_spearman() -> None:
    rates, values = np.array([0.1, 0.2, 0.2, 0.5, 0.4]), np.array([1.0, 2.0, 3.0, 5.0, 4.0])
    expected = stats.spearmanr(rates, values, alternative="greater").pvalue
    assert compute_spearman_p_value(rates, values) == pytest.approx(expected)
    assert compute_spearman_p_value(rates, -values) > 0.9
    assert compute_spearman_p_value(np.zeros(5), values) == 1.0
    assert np.isnan(compute_spearman_p_value(np.zeros(0), np.zeros(0)))


@pytest.mark.slow
@pytest.mark.parametrize("is_paired", [False, True])
def test_without_a_difference_five_in_a_hundred_are_below_5_percent(is_paired: bool) -> None:
    """Rates of a rare motif: most are 0, so the test may be stricter than its level, but not looser."""
    rng = np.random.default_rng(2)
    p_values = []
    for _ in range(400):
        own, other = (numbered((rng.poisson(0.7, 14) / rng.integers(500, 5000, 14)).tolist()) for _ in range(2))
        p_values.append(compute_class_p_value(own, other if is_paired else numbered(list(other.values()), 14)))
    assert 0.01 < np.mean(np.array(p_values) <= 0.05) < 0.08
