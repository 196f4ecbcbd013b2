"""Excess over chance: bins by hand, ties, a known mixture, and clones whose labels are random."""

import numpy as np
import pytest
from scipy.stats import hypergeom

from deeprc.baselines.association_tests import compute_fisher_p_values
from deeprc.evaluation.excess import (
    choose_bin_ends,
    compute_excess_shares,
    compute_expected_clones,
    estimate_confirmed_share,
    interpolate_excess,
)


def test_one_bin_by_hand() -> None:
    """Ten sequences above four by chance, each of which stands for half a sequence: (10 - 2 - 1) / 10."""
    scores = np.arange(20, 10, -1) + 0.0
    null = np.array([12.0, 15.0, 3.0, 19.0, 11.0])
    np.testing.assert_allclose(compute_excess_shares(scores, null, np.full(5, 0.5)), 0.7)


def test_the_excess_never_rises_with_the_rank() -> None:
    rng = np.random.default_rng(0)
    scores, null = -np.sort(-rng.normal(0.5, 1, 5000)), rng.normal(size=5000)
    excess = compute_excess_shares(scores, null, np.ones(5000))
    assert (np.diff(excess) <= 0).all()
    assert ((excess >= 0) & (excess <= 1)).all()


def test_the_excess_of_a_mixture_is_the_added_share() -> None:
    """2,000 of N(4, 1) in 100,000 of N(0, 1): the share by both densities, at several ranks."""
    rng = np.random.default_rng(1)
    found = np.concatenate([rng.normal(size=100_000), rng.normal(4, 1, 2000)])
    scores = -np.sort(-found)[:10_000]
    null = -np.sort(-rng.normal(size=100_000))[:10_000]
    excess = compute_excess_shares(scores, null, np.ones(10_000), lowest_null=float(null.min()))
    for rank in (500, 1500, 2500, 4000):
        added = 2000 * np.exp(-((scores[rank] - 4) ** 2) / 2)
        assert excess[rank] == pytest.approx(added / (added + 100_000 * np.exp(-(scores[rank] ** 2) / 2)), abs=0.1)


def test_equal_scores_share_what_chance_gives() -> None:
    """100 equal scores where chance gives 40: 0.6 everywhere but for the 1 of each bin, and not nearly 1 inside."""
    excess = compute_excess_shares(np.full(100, 2.0), np.full(40, 2.0), np.ones(40))
    assert excess.max() < 0.6
    assert excess.min() > 0.45


def test_below_a_cut_null_there_is_no_excess() -> None:
    scores = np.arange(100, 0, -1) + 0.0
    null = np.arange(100, 50, -1) / 1.0
    weights = np.full(50, 0.1)
    assert compute_excess_shares(scores, null, weights)[-1] > 0.5
    assert compute_excess_shares(scores, null, weights, lowest_null=float(null.min()))[-1] == 0.0


def test_an_empty_list_has_no_excess() -> None:
    assert compute_excess_shares(np.zeros(0), np.ones(3), np.ones(3)).tolist() == []


def test_clones_by_chance_by_hand() -> None:
    positive, carriers, expected = compute_expected_clones({2: 30, 3: 10}, 2, 5)
    assert carriers.tolist() == [2, 2, 2, 3, 3, 3]
    assert positive.tolist() == [0, 1, 2, 0, 1, 2]
    np.testing.assert_allclose(expected, [9, 18, 3, 1, 6, 3])  # of ten pairs 3, 6 and 1; of ten triples 1, 6 and 3


def test_clones_of_random_labels_have_no_excess() -> None:
    rng = np.random.default_rng(2)
    n_positive, n = 40, 100
    carriers = rng.integers(2, 20, 20_000)
    positive = hypergeom.rvs(n, n_positive, carriers, random_state=rng)
    scores = -np.log10(compute_fisher_p_values(positive, carriers, n_positive, n))
    counts = dict(zip(*(each.tolist() for each in np.unique(carriers, return_counts=True)), strict=True))
    of_null = compute_expected_clones(counts, n_positive, n)
    null = -np.log10(compute_fisher_p_values(*of_null[:2], n_positive, n))
    excess = compute_excess_shares(-np.sort(-scores), null, of_null[2])
    assert excess[100:].max() < 0.15
    strong = np.concatenate([np.full(300, scores.max() + 1), scores])
    excess = compute_excess_shares(-np.sort(-strong), null, of_null[2])
    assert excess[:250].min() > 0.9
    assert excess[600:].max() < 0.15


def test_the_excess_of_other_scores_is_interpolated() -> None:
    found = interpolate_excess(np.array([9.0, 4.0, 3.0, 2.0, 1.9, -np.inf]), np.array([4.0, 2.0]), np.array([0.8, 0.4]))
    np.testing.assert_allclose(found, [0.8, 0.8, 0.6, 0.4, 0, 0])
    assert interpolate_excess(np.ones(2), np.zeros(0), np.zeros(0)).tolist() == [0, 0]


def test_the_confirmed_share_by_hand() -> None:
    """Five above five: U = 25, mean 12.5, variance 5 * 5 * 11 / 12; three of five above: U = 19."""
    positive = np.arange(10) % 2 == 0
    above = np.where(positive, 10.0, 0.0) + np.arange(10)
    variance = 5 * 5 * 11 / 12
    assert estimate_confirmed_share(above, positive) == pytest.approx(1 - variance / 12.5**2)
    mixed = np.zeros(10)
    mixed[positive], mixed[~positive] = [10, 9, 8, 3, 2], [7, 6, 4, 1, 0]  # pairs won: 5 + 5 + 5 + 2 + 2
    assert estimate_confirmed_share(mixed, positive) == pytest.approx(1 - variance / 6.5**2)
    assert estimate_confirmed_share(-above, positive) == 0
    assert estimate_confirmed_share(np.zeros(10), positive) == 0
    assert estimate_confirmed_share(above[:9], positive[:9]) == 1  # four negative repertoires say nothing


def test_noise_is_confirmed_once_in_six() -> None:
    rng = np.random.default_rng(0)
    positive = np.arange(60) < 30
    shares = np.array([estimate_confirmed_share(rng.normal(size=60), positive) for _ in range(500)])
    assert 0.11 < (shares > 0).mean() < 0.21
    assert shares.mean() < 0.1


@pytest.mark.parametrize("n", [11, 19, 25])
def test_a_short_last_bin_belongs_to_the_one_before_it(n: int) -> None:
    """Without any chance sequence, the 1 of a bin of one rank would make its excess 0."""
    excess = compute_excess_shares(np.arange(n, 0, -1) + 0.0, np.zeros(0), np.zeros(0))
    assert excess[-1] == pytest.approx(1 - len(choose_bin_ends(n)) / n)
    assert np.diff(choose_bin_ends(n), prepend=0).min() >= 10
