"""k-mers that are tested together: how many of those as strong are there by chance."""

import numpy as np
import pytest

from deeprc.permutations import permute_labels
from deeprc.training.permutation_tests import N_DISCOVERY_PERMUTATIONS, FalseDiscoveryTest
from tests.training.test_motif_search import Floats

ALTERNATING = np.arange(60) % 2.0


def make_test(frequencies: Floats, values: Floats = ALTERNATING, *, level: float = 0.0) -> FalseDiscoveryTest:
    return FalseDiscoveryTest(frequencies, permuted(values), np.ones(60), level)


def permuted(values: Floats) -> Floats:
    rng = np.random.default_rng(0)
    return permute_labels(values[:, None], np.full(60, 100), np.arange(60), N_DISCOVERY_PERMUTATIONS, rng)[:, 0]


def carried_by_six(n: int) -> Floats:
    """Return the frequencies of n k-mers, each of which six other positive repertoires carry, (60, n)."""
    frequencies = np.zeros((60, n))
    for j in range(n):
        frequencies[1 + 12 * j : 12 * (j + 1) : 2, j] = 0.1
    return frequencies


def test_rates_are_expected_chance_findings_by_findings() -> None:
    rng = np.random.default_rng(1)
    frequencies = rng.poisson(3, (60, 8)) + 2 * ALTERNATING[:, None] * (np.arange(8) < 3)
    found = make_test(frequencies)
    expected = [np.corrcoef(column, ALTERNATING)[0, 1] for column in frequencies.T]
    np.testing.assert_allclose(found.correlation, expected)
    labels = permuted(ALTERNATING)[:, 1:].T
    by_chance = np.abs(np.corrcoef(frequencies.T, labels)[:8, 8:])
    strength = np.abs(expected)
    shares = [(1 + (by_chance >= r - 1e-9).sum()) / (1 + len(labels)) / (strength >= r).sum() for r in strength]
    rates = [min(shares[k] for k in range(8) if strength[k] <= r) for r in strength]
    np.testing.assert_allclose(found.compute_q_values(found.correlation), rates)
    chance = 1 / (1 + N_DISCOVERY_PERMUTATIONS)
    assert found.compute_q_values(np.array([0.0, 2.0, -2.0])) == pytest.approx([1, chance / 2, chance / 2])


def test_several_need_less_evidence_than_one() -> None:
    """Six of 30 positive repertoires and no negative one: by chance in one case of 40, as of two sides."""
    alone, together = (make_test(carried_by_six(n)) for n in (1, 5))
    assert alone.compute_q_values(alone.correlation) == pytest.approx(0.024, abs=0.01)
    np.testing.assert_allclose(together.correlation, alone.correlation[0])
    assert together.compute_q_values(together.correlation) == pytest.approx(
        0.024, abs=0.01
    )  # five times as many by chance


def test_significant_kmers_lower_the_rate_of_the_others() -> None:
    """Beside two strong k-mers, those with six carriers have a third of the rate, since the strong ones are certain."""
    strong = np.stack([ALTERNATING, np.where(np.arange(60) < 50, ALTERNATING, 0)], axis=1)
    frequencies = np.concatenate([strong, carried_by_six(1)], axis=1)
    found = [make_test(frequencies, level=level) for level in (0, 0.005)]
    among_all, among_others = (each.compute_q_values(each.correlation)[2] for each in found)
    assert among_all == pytest.approx(0.024, abs=0.01)
    assert among_others == pytest.approx(among_all / 3, rel=0.02)


def test_later_correlations_are_compared_with_each_other_not_with_the_first_ones() -> None:
    """If all k-mers are parts of one motif, nothing is expected of what they have without its sequences."""
    rng = np.random.default_rng(3)
    frequencies = ALTERNATING[:, None] + rng.normal(0, 0.3, (60, 10))
    found = make_test(frequencies, level=0.005)
    assert (found.compute_q_values(found.correlation) <= 0.005).all()
    q_values = found.compute_q_values(np.array([0.3, 0.15, 0.1, *np.zeros(7)]))
    by_chance = np.abs(np.corrcoef(frequencies.T, permuted(ALTERNATING)[:, 1:].T)[:10, 10:])
    assert q_values[0] == pytest.approx((by_chance >= 0.3).sum() / N_DISCOVERY_PERMUTATIONS, rel=0.01)
    assert (q_values[1:] > 0.5).all()


def test_a_significant_kmer_keeps_its_q_value() -> None:
    """A k-mer that is tested alone has its p-value, also if it is significant and no other k-mer is left."""
    q_values = [
        make_test(carried_by_six(1), level=level).compute_q_values(np.array([1 / 3])) for level in (0, 0.005, 0.05)
    ]
    assert q_values[0] == pytest.approx(0.024, abs=0.01)
    assert q_values[1] == q_values[2] == q_values[0]


@pytest.mark.slow
@pytest.mark.parametrize(("n_cohorts", "most"), [(30, 9), pytest.param(100, 20, marks=pytest.mark.long)])
def test_without_signal_one_cohort_in_ten_reaches_a_level_of_a_tenth(n_cohorts: int, most: int) -> None:
    """More than `most` have a probability of 0.001 by chance, and none of 30 has one of 0.04."""
    rng = np.random.default_rng(2)
    reached = 0
    for _ in range(n_cohorts):
        found = make_test(rng.poisson(0.5, (60, 12)) + 0.0, rng.permutation(ALTERNATING), level=0.1)
        reached += bool((found.compute_q_values(found.correlation) <= 0.1).any())
    assert 1 <= reached <= most


@pytest.mark.slow
def test_rare_kmers_of_a_small_class_are_as_rarely_significant_as_others() -> None:
    """Ten of 200 repertoires are positive, so large positive correlations are rare, and small negative ones frequent.

    A level of 5% is reached by chance in 6% of cohorts (of 200, with 1,000 permutations). If only k-mers whose
    correlation is positive were compared with permutations, it would be 14%.
    """
    rng = np.random.default_rng(0)
    labels = (np.arange(200) < 10).astype(np.float64)
    donors, sizes, n_significant = np.arange(200), np.full(200, 100), 0
    for _ in range(100):
        frequencies = rng.poisson(rng.uniform(0.003, 0.05, 76), (200, 76)) / 100
        own = permute_labels(labels[:, None], sizes, donors, 500, rng)[:, 0]
        tests = FalseDiscoveryTest(frequencies, own, np.ones(200), 0.05, np.ones(76))
        n_significant += bool((tests.compute_q_values(tests.strength) <= 0.05).any())
    assert n_significant <= 12


def test_a_kmer_of_the_other_direction_has_no_strength() -> None:
    frequencies = np.stack([ALTERNATING, 1 - ALTERNATING, 1 - ALTERNATING], axis=1)
    signs = np.array([1.0, 1.0, 0.0])
    tests = FalseDiscoveryTest(frequencies, permuted(ALTERNATING), np.ones(60), 0.01, signs)
    assert tests.correlation.tolist() == pytest.approx([1, -1, -1])
    assert tests.strength.tolist() == pytest.approx([1, 0, 1])
    q_values = tests.compute_q_values(tests.strength)
    assert q_values[[0, 2]].tolist() == pytest.approx([1 / (1 + N_DISCOVERY_PERMUTATIONS) / 2] * 2)
    assert q_values[1] > 0.3
