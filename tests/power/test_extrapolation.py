"""The inverse power law: exact ones are recovered, and what the bounds mean."""

import numpy as np
import pytest
from scipy.stats import norm

from deeprc.power.extrapolation import LateCurve, PowerLaw, fit_late_curves, fit_power_law, fit_power_laws

N = np.array([20.0, 40, 80, 160, 320])


@pytest.mark.parametrize("law", [PowerLaw(0.92, 1.5, 0.6), PowerLaw(0.8, 0.9, 0.35), PowerLaw(0.99, 4.0, 1.1)], ids=str)
def test_an_exact_law_is_recovered(law: PowerLaw) -> None:
    auc = np.array([law.predict_auc(n) for n in N])
    found = fit_power_law(N, auc, np.array([1.0, 2, 3, 4, 5]))
    assert (found.ceiling, found.deficit, found.exponent) == pytest.approx(
        (law.ceiling, law.deficit, law.exponent), rel=1e-3
    )
    assert found.predict_auc(2000) == pytest.approx(law.predict_auc(2000), abs=1e-5)
    assert found.solve_n(law.predict_auc(1000)) == pytest.approx(1000, rel=1e-2)


def test_the_number_for_an_auc_by_hand() -> None:
    law = PowerLaw(0.9, 2.0, 0.5)
    assert law.predict_auc(100) == pytest.approx(0.7)
    assert law.solve_n(0.7) == pytest.approx(100)
    assert law.solve_n(0.9) == law.solve_n(0.95) == float("inf")


def test_a_curve_that_falls_has_no_deficit() -> None:
    found = fit_power_law(N, np.array([0.56, 0.54, 0.52, 0.51, 0.5]), np.ones(5))
    assert found.deficit == 0
    assert found.ceiling == pytest.approx(0.526)
    assert found.solve_n(0.6) == float("inf")


def test_the_ceiling_is_at_most_one() -> None:
    """A line in the logarithm would pass 1."""
    auc = 0.5 + 0.08 * np.log2(N / 10)
    found = fit_power_law(N, auc, np.ones(5))
    assert found.ceiling == 1
    assert found.predict_auc(1e6) < 1


def test_one_number_of_repertoires_is_a_constant() -> None:
    found = fit_power_law(np.array([30.0]), np.array([0.7]), np.ones(1))
    assert (found.ceiling, found.deficit) == (pytest.approx(0.7), 0)


def test_laws_of_several_rows_are_those_of_each_row() -> None:
    auc = 0.5 + np.random.default_rng(0).random((4, 5)) / 2
    weights = np.array([1.0, 2, 3, 4, 5])
    for own, together in zip(auc, fit_power_laws(N, auc, weights), strict=True):
        assert fit_power_law(N, own, weights) == together


def test_a_late_curve_by_hand() -> None:
    curve = LateCurve(limit=2.0, delay=100.0, steepness=1.0)
    assert curve.predict_auc(100) == pytest.approx(norm.cdf(1.0))
    assert curve.solve_n(float(norm.cdf(1.0))) == pytest.approx(100)
    assert curve.solve_n(float(norm.cdf(2.1))) == float("inf")
    flat = LateCurve(limit=1.0, delay=0.0, steepness=2.0)
    assert flat.predict_auc(1) == flat.predict_auc(1000) == pytest.approx(norm.cdf(1.0))
    assert (flat.solve_n(0.8), flat.solve_n(0.85)) == (1, float("inf"))


@pytest.mark.parametrize("curve", [LateCurve(1.4, 200.0, 1.0), LateCurve(1.0, 600.0, 2.0), LateCurve(2.0, 90.0, 0.5)])
def test_a_curve_that_rises_late_is_recovered(curve: LateCurve) -> None:
    """The power law is below it beyond the largest number that was measured."""
    auc = np.array([[curve.predict_auc(n) for n in N]])
    (found,) = fit_late_curves(N, auc, np.ones(5))
    assert [found.predict_auc(n) for n in N] == pytest.approx(auc[0].tolist(), abs=0.01)
    assert found.predict_auc(2560) == pytest.approx(curve.predict_auc(2560), abs=0.03)
    if curve.steepness > 0.5:
        assert fit_power_law(N, auc[0], np.ones(5)).predict_auc(2560) < curve.predict_auc(2560) - 0.02


def test_the_difference_of_means_has_a_late_curve() -> None:
    """50 independent features differ by 0.2 between classes; the curve is that of n repertoires of both together."""
    rng = np.random.default_rng(1)
    for n in (20, 80, 320):
        learned = rng.normal(0.2, (4 / n) ** 0.5, (20_000, 50))  # difference of the class means
        separation = learned.sum(axis=1) * 0.2 / np.linalg.norm(learned, axis=1) / 2**0.5
        expected = LateCurve(0.2 * 50**0.5 / 2**0.5, 4 / 0.2**2, 0.5)
        assert norm.cdf(separation).mean() == pytest.approx(expected.predict_auc(n), abs=0.005)
