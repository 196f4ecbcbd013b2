"""The inverse power law: exact ones are recovered, and what the bounds mean."""

import numpy as np
import pytest

from deeprc.power.extrapolation import PowerLaw, fit_power_law

N = np.array([20.0, 40, 80, 160, 320])


@pytest.mark.parametrize("law", [PowerLaw(0.92, 1.5, 0.6), PowerLaw(0.8, 0.9, 0.35), PowerLaw(0.99, 4.0, 1.1)], ids=str)
def test_an_exact_law_is_recovered(law: PowerLaw) -> None:
    auc = np.array([law.auc(n) for n in N])
    found = fit_power_law(N, auc, np.array([1.0, 2, 3, 4, 5]))
    assert (found.ceiling, found.loss, found.exponent) == pytest.approx((law.ceiling, law.loss, law.exponent), rel=1e-3)
    assert found.auc(2000) == pytest.approx(law.auc(2000), abs=1e-5)
    assert found.n_for(law.auc(1000)) == pytest.approx(1000, rel=1e-2)


def test_the_number_for_an_auc_by_hand() -> None:
    law = PowerLaw(0.9, 2.0, 0.5)
    assert law.auc(100) == pytest.approx(0.7)
    assert law.n_for(0.7) == pytest.approx(100)
    assert law.n_for(0.9) == law.n_for(0.95) == float("inf")


def test_a_curve_that_falls_has_no_loss() -> None:
    found = fit_power_law(N, np.array([0.56, 0.54, 0.52, 0.51, 0.5]), np.ones(5))
    assert found.loss == 0
    assert found.ceiling == pytest.approx(0.526)
    assert found.n_for(0.6) == float("inf")


def test_the_ceiling_is_at_most_one() -> None:
    """A line in the logarithm would pass 1."""
    auc = 0.5 + 0.08 * np.log2(N / 10)
    found = fit_power_law(N, auc, np.ones(5))
    assert found.ceiling == 1
    assert found.auc(1e6) < 1


def test_one_number_of_repertoires_is_a_constant() -> None:
    found = fit_power_law(np.array([30.0]), np.array([0.7]), np.ones(1))
    assert (found.ceiling, found.loss) == (pytest.approx(0.7), 0)
