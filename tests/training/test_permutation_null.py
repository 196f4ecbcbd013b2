import numpy as np
import pytest
from scipy.stats import gumbel_r

from deeprc.training.permutation_null import PermutationNull


def test_p_values_are_those_of_the_strongest_by_chance() -> None:
    highest = np.random.default_rng(0).gumbel(4.0, 0.3, 100)
    strength = np.array([0.0, 4.5, 5.0, highest.max(), 6.0, 40.0])
    scale = highest.std(ddof=1) * np.sqrt(6) / np.pi
    by_moments = gumbel_r(highest.mean() - np.euler_gamma * scale, scale).sf(strength)
    null = PermutationNull([3], 25)
    null._strongest[3] = highest
    found = null.compute_p_values(3, strength / 5)
    assert found[[0, 3]].tolist() == pytest.approx([1.0, max(by_moments[3], 0.01)])
    assert found[[1, 2]] == pytest.approx(by_moments[[1, 2]], abs=0.03)
    assert found[[4, 5]] == pytest.approx(by_moments[[4, 5]], rel=1e-9)
    both = PermutationNull([3, 4], 25)
    both._strongest[3] = highest
    assert both.compute_p_values(3, -strength / 5) == pytest.approx(np.minimum(2 * found, 1))


def test_orders_of_labels_that_give_the_same_strength_and_rounding() -> None:
    null = PermutationNull([2], 16)
    null._strongest[2] = np.full(100, 4.0)
    found = null.compute_p_values(2, np.array([3.0, 4.0, 4.0 + 1e-7, 5.0]) / 4)
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
