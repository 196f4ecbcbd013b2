import numpy as np
import pytest
from scipy.stats import gumbel_r

from deeprc.training.permutation_tests import PermutationNull

N_DONORS = 25
ROOT = 5.0  # of the number of donors: strength = ROOT * |correlation|


def make_null(ks: list[int], strengths: np.ndarray) -> PermutationNull:
    """Return the null distribution in which the strongest 3-mer has these strengths with the 100 permutations."""
    null = PermutationNull(ks, N_DONORS)
    null.add_strongest(3, strengths / ROOT)
    return null


def test_p_values_are_those_of_a_gumbel_distribution_or_the_share_of_permutations_that_reach_the_strength() -> None:
    highest = np.random.default_rng(0).gumbel(4.0, 0.3, 100)
    strength = np.array([0.0, 4.5, 5.0, highest.max(), 6.0, 40.0])
    scale = highest.std(ddof=1) * np.sqrt(6) / np.pi
    by_moments = gumbel_r(highest.mean() - np.euler_gamma * scale, scale).sf(strength)
    found = make_null([3], highest).compute_p_values(3, strength / ROOT)
    assert found[0] == pytest.approx(1.0)
    assert found[3] == pytest.approx(max(by_moments[3], 1 / 100))  # one permutation reaches it
    assert found[[1, 2]] == pytest.approx(by_moments[[1, 2]], abs=0.03)
    assert found[[4, 5]] == pytest.approx(by_moments[[4, 5]], rel=1e-9)  # no permutation reaches them


def test_p_values_do_not_depend_on_the_sign_and_are_multiplied_by_the_number_of_ks() -> None:
    highest = np.random.default_rng(0).gumbel(4.0, 0.3, 100)
    strength = np.array([0.0, 4.5, 6.0])
    of_one_k = make_null([3], highest).compute_p_values(3, strength / ROOT)
    of_two_ks = make_null([3, 4], highest).compute_p_values(3, -strength / ROOT)
    assert of_two_ks == pytest.approx(np.minimum(2 * of_one_k, 1))


def test_a_strength_that_exceeds_equal_permutations_by_rounding_only_is_not_significant() -> None:
    null = make_null([3], np.full(100, 4.0))
    found = null.compute_p_values(3, np.array([3.0, 4.0, 4.0 + 1e-7, 5.0]) / ROOT)
    assert found[[0, 1]] == pytest.approx([1, 1])
    assert found[2] > 0.4
    assert found[3] == pytest.approx(0)


def test_a_permutation_that_equals_the_labels_reaches_their_strength() -> None:
    """Of few donors, some permutations are the true labels; correlations with them have 32 bits."""
    largest = np.random.default_rng(0).uniform(0.6, 0.7, (50, 100)).astype(np.float32)
    largest[:, 3] = np.linspace(0.9, 0.99, 50)
    for correlations in largest:
        null = PermutationNull([4], 12)
        null.add_strongest(4, correlations)
        exact = correlations[3].astype(np.float64) * np.array([1 - 1e-7, 1, 1 + 1e-7])  # counted anew, with 64 bits
        assert null.compute_p_values(4, exact) == pytest.approx(np.full(3, 0.01))
