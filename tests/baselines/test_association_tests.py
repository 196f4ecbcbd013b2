"""Phi coefficients, Fisher's exact test and the beta-binomial distribution against scipy and plain loops."""

from __future__ import annotations

from itertools import product
from math import comb

import numpy as np
import pytest
from scipy import stats

from deeprc.baselines import beta_binomial
from deeprc.baselines.association_tests import (
    RANK_SUM,
    adjust_by_benjamini_hochberg,
    compute_double_ranks,
    compute_fisher_p_values,
    compute_phi_coefficients,
    find_critical_carriers,
)
from deeprc.baselines.beta_binomial import compute_beta_binomial_log_pmf, fit_beta_binomial
from deeprc.datasets.emerson2017 import read_associated_sequences

COHORTS = [(5, 12), (1, 4), (3, 4), (9, 20)]


def pairs(n_positive: int, n_repertoires: int) -> np.ndarray:
    """Return all (positive carriers, carriers) that can be, (n, 2)."""
    every = product(range(n_positive + 1), range(n_repertoires + 1))
    return np.array([(a, n) for a, n in every if a <= n and n - a <= n_repertoires - n_positive])


@pytest.mark.parametrize(("n_positive", "n_repertoires"), COHORTS)
def test_phi_is_pearsons_correlation(n_positive: int, n_repertoires: int) -> None:
    a, n = pairs(n_positive, n_repertoires).T
    found = compute_phi_coefficients(a, n, n_positive, n_repertoires)
    label = np.arange(n_repertoires) < n_positive
    for i in range(len(a)):
        carries = np.zeros(n_repertoires)
        carries[: a[i]] = 1
        carries[n_positive : n_positive + n[i] - a[i]] = 1
        expected = 0 if n[i] in (0, n_repertoires) else stats.pearsonr(carries, label).statistic
        assert found[i] == pytest.approx(expected, abs=1e-12)


def test_phi_is_cramers_v_with_a_sign() -> None:
    rng = np.random.default_rng(0)
    for table in rng.integers(1, 30, (20, 2, 2)):  # rows: carried or not; columns: positive or not
        phi = compute_phi_coefficients(table[0, :1], table[:1].sum(), table[:, 0].sum(), table.sum())
        assert abs(phi[0]) == pytest.approx(stats.contingency.association(table, method="cramer"))
        assert np.sign(phi[0]) == np.sign(np.linalg.det(table).round(9))


def test_phi_by_hand() -> None:
    # 3 of 4 positives and 1 of 6 others carry it: (3 * 5 - 1 * 1) / sqrt(4 * 6 * 4 * 6)
    np.testing.assert_allclose(compute_phi_coefficients([3], [4], 4, 10), 14 / 24)


@pytest.mark.parametrize(("n_positive", "n_repertoires"), COHORTS)
def test_p_values_are_those_of_scipys_fisher_test(n_positive: int, n_repertoires: int) -> None:
    a, n = pairs(n_positive, n_repertoires).T
    found = compute_fisher_p_values(a, n, n_positive, n_repertoires)
    for i in range(len(a)):
        rest = n_repertoires - n_positive - (n[i] - a[i])
        expected = stats.fisher_exact([[a[i], n[i] - a[i]], [n_positive - a[i], rest]], alternative="greater").pvalue
        assert found[i] == pytest.approx(expected, rel=1e-10)


def test_p_values_of_a_large_cohort_are_those_of_scipy() -> None:
    """The hypergeometric distribution's survival function; the smallest values are precise."""
    rng = np.random.default_rng(0)
    n = rng.integers(1, 642, 300)
    a = rng.integers(np.maximum(0, n - 352), np.minimum(n, 289) + 1)
    found = compute_fisher_p_values(a.reshape(20, 15), n.reshape(20, 15), 289, 641)
    expected = np.array([stats.hypergeom.sf(a[i] - 1, 641, 289, n[i]) for i in range(300)])
    assert found.shape == (20, 15)
    np.testing.assert_allclose(found.ravel(), expected, rtol=1e-9)
    all_positive = compute_fisher_p_values([289], [289], 289, 641)  # one of so many ways to choose 289 of 641
    np.testing.assert_allclose(np.log(all_positive), -np.log(float(comb(641, 289))))


@pytest.mark.parametrize(("n_positive", "n_repertoires"), COHORTS)
def test_carriers_needed_are_the_p_values(n_positive: int, n_repertoires: int) -> None:
    a, n = pairs(n_positive, n_repertoires).T
    p_values = compute_fisher_p_values(a, n, n_positive, n_repertoires)
    # p-values that occur are among the thresholds: "below" means below
    thresholds = np.array([2.0, 1.0, 0.5, 0.1, 0.01, *p_values[::7], 0.0])
    needed = find_critical_carriers(thresholds, n_positive, n_repertoires)
    assert needed.shape == (len(thresholds), n_repertoires + 1)
    for i in range(len(thresholds)):
        np.testing.assert_array_equal(a >= needed[i, n], p_values < thresholds[i])


def test_p_values_are_the_published_ones(real_data) -> None:
    """Emerson et al. 2017, supplementary table 2: 164 sequences in 289 CMV+ and 352 CMV- donors."""
    table = read_associated_sequences(real_data / "emerson2017/ng.3822-S3.xlsx")
    positive, negative = (table[f"Incidence in CMV{sign} subjects"].to_numpy() for sign in "+-")
    found = compute_fisher_p_values(positive, positive + negative, 289, 641)
    np.testing.assert_allclose(found, table["P-value"].to_numpy(float), rtol=0.005)  # published with three digits
    assert [f"{value:.2e}" for value in found] == [f"{value:.2e}" for value in table["P-value"]]


# --- the beta-binomial distribution ---


@pytest.mark.parametrize(("alpha", "beta"), [(0.5, 0.5), (1, 1), (3.5, 2e4), (99, 101), (2e3, 3e6), (1e-3, 50)])
def test_the_log_pmf_is_that_of_scipy(alpha: float, beta: float) -> None:
    n = np.array([0, 1, 5, 40, 1000, 150_000, 150_000])
    k = np.array([0, 1, 2, 0, 30, 12, 150_000])
    expected = stats.betabinom.logpmf(k, n, alpha, beta)
    np.testing.assert_allclose(compute_beta_binomial_log_pmf(k, n, alpha, beta), expected, rtol=1e-7, atol=1e-7)


def test_the_log_pmf_tends_to_the_binomial() -> None:
    k, n = np.arange(10), np.full(10, 100_000)
    found = compute_beta_binomial_log_pmf(k, n, 1e5, 1e9)
    np.testing.assert_allclose(found, stats.binom.logpmf(k, n, 1e5 / (1e5 + 1e9)), atol=5e-3)


@pytest.mark.parametrize(("rate", "size"), [(-2.0, 3.0), (0.5, -1.0), (-7.0, 9.0)])
def test_derivatives_of_the_loss_equal_central_differences(rate: float, size: float) -> None:
    counts = np.array([0.0, 3, 7]), np.array([9.0, 100, 7]), np.array([1, 2, 5])  # hits, trials, weights

    def compute_loss_and_slope(x: float, y: float) -> np.ndarray:
        alpha_beta = beta_binomial._convert_to_alpha_beta(x, y)
        derivatives = beta_binomial._compute_derivatives(*counts, *alpha_beta)
        return np.array([beta_binomial._compute_loss(*counts, *alpha_beta), derivatives.by_rate, derivatives.by_size])

    h = 1e-5
    by_rate = (compute_loss_and_slope(rate + h, size) - compute_loss_and_slope(rate - h, size)) / (2 * h)
    by_size = (compute_loss_and_slope(rate, size + h) - compute_loss_and_slope(rate, size - h)) / (2 * h)
    found = beta_binomial._compute_derivatives(*counts, *beta_binomial._convert_to_alpha_beta(rate, size))
    np.testing.assert_allclose([found.by_rate, found.rate_rate, found.rate_size], by_rate, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose([found.by_size, found.rate_size, found.size_size], by_size, rtol=1e-5, atol=1e-6)


def test_the_fit_is_the_likeliest_of_a_grid() -> None:
    rng = np.random.default_rng(3)
    n = rng.integers(50, 400, 60)
    k = stats.betabinom.rvs(n, 2.0, 30.0, random_state=rng)
    alpha, beta = fit_beta_binomial(k, n)
    best = compute_beta_binomial_log_pmf(k, n, alpha, beta).sum()
    grid = product(np.geomspace(0.5, 8, 41), np.geomspace(5, 200, 41))
    values = {(a, b): stats.betabinom.logpmf(k, n, a, b).sum() for a, b in grid}
    likeliest = max(values, key=values.__getitem__)
    assert values[likeliest] <= best < values[likeliest] + 0.1
    np.testing.assert_allclose([alpha, beta], likeliest, rtol=0.1)
    for factor in ((1.001, 1), (0.999, 1), (1, 1.001), (1, 0.999)):
        assert compute_beta_binomial_log_pmf(k, n, alpha * factor[0], beta * factor[1]).sum() < best


@pytest.mark.parametrize(("alpha", "beta"), [(1.5, 2e4), (30, 1e5), (0.2, 1e3)])
def test_the_fit_finds_what_was_drawn_from(alpha: float, beta: float) -> None:
    rng = np.random.default_rng(0)
    n = rng.integers(80_000, 300_000, 4000)
    k = stats.betabinom.rvs(n, alpha, beta, random_state=rng)
    found = fit_beta_binomial(k, n)
    np.testing.assert_allclose(found, (alpha, beta), rtol=0.1)
    assert compute_beta_binomial_log_pmf(k, n, *found).sum() > compute_beta_binomial_log_pmf(k, n, alpha, beta).sum()


def test_the_fit_of_counts_that_vary_as_the_binomials() -> None:
    rng = np.random.default_rng(0)
    n = rng.integers(1000, 3000, 200)
    k = rng.binomial(n, 0.01)
    alpha, beta = fit_beta_binomial(k, n)
    assert alpha / (alpha + beta) == pytest.approx(k.sum() / n.sum(), rel=0.01)
    assert (
        compute_beta_binomial_log_pmf(k, n, alpha, beta).sum()
        >= stats.binom.logpmf(k, n, k.sum() / n.sum()).sum() - 1e-3
    )
    same = fit_beta_binomial([5] * 10, [100] * 10)  # less than the binomial's: as narrow as it gets
    assert 1e8 < sum(same) < 2e9
    assert same[0] / sum(same) == pytest.approx(0.05, rel=1e-3)


def test_the_fit_of_few_and_extreme_counts() -> None:
    assert fit_beta_binomial([0, 0, 0], [10, 20, 0]) == (0.5, 30.5)
    assert fit_beta_binomial([10, 20], [10, 20]) == (30.5, 0.5)
    assert fit_beta_binomial([], []) == (0.5, 0.5)
    assert fit_beta_binomial([0], [0]) == (0.5, 0.5)
    for k, n in (([1, 0, 0], [100_000] * 3), ([100, 0], [100, 100]), ([3], [7]), ([0, 1], [0, 1000])):
        alpha, beta = fit_beta_binomial(k, n)
        assert 0 < alpha < 2e9
        assert 0 < beta < 2e9
        assert np.isfinite(compute_beta_binomial_log_pmf(np.arange(7), np.full(7, 6), alpha, beta)).all()


def test_the_fit_does_not_depend_on_the_order() -> None:
    rng = np.random.default_rng(1)
    n = rng.integers(50, 400, 60)
    k = stats.betabinom.rvs(n, 2.0, 30.0, random_state=rng)
    order = rng.permutation(60)
    assert fit_beta_binomial(k[order], n[order]) == fit_beta_binomial(k, n)


def test_rank_sums_against_scipy() -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 8, 40).astype(np.float64)  # with ties
    ranks = compute_double_ranks(values)
    np.testing.assert_array_equal(ranks, 2 * stats.rankdata(values))
    thresholds = np.array([0.6, 0.3, 0.05, 1e-3])
    critical = RANK_SUM.find_critical_sums(thresholds, ranks)
    for n in (1, 2, 7, 30):
        carries = np.zeros(40, bool)
        carries[rng.permutation(40)[:n]] = True
        how = {"alternative": "greater", "use_continuity": False, "method": "asymptotic"}
        expected = float(stats.mannwhitneyu(values[carries], values[~carries], **how).pvalue)
        total = int(ranks[carries].sum())
        assert RANK_SUM.compute_p_values([total], [n], ranks)[0] == pytest.approx(expected)
        for threshold, needed in zip(thresholds, critical[:, n], strict=True):
            around = RANK_SUM.compute_p_values([needed - 1, needed], [n, n], ranks)
            assert around[0] >= threshold > around[1]
    assert RANK_SUM.compute_p_values([ranks.sum()], [40], ranks).tolist() == [1.0]
    assert (critical[:, [0, 40]] > ranks.sum()).all()


def test_q_values_are_those_of_scipy() -> None:
    p = np.random.default_rng(1).random(50) ** 3
    expected = stats.false_discovery_control(p)
    np.testing.assert_allclose(adjust_by_benjamini_hochberg(p, 50), expected)
    few = np.argsort(p)[:9]
    assert (adjust_by_benjamini_hochberg(p[few], 50) >= expected[few] - 1e-12).all()
    assert len(adjust_by_benjamini_hochberg(np.zeros(0), 50)) == 0
