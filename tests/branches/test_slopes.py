"""Slopes of scores: against scikit-learn and NumPy, and scores that do not vary."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import log_loss

from deeprc.branches.slopes import compute_baseline_losses, fit_slopes


def test_slopes_of_classes_are_those_of_a_logistic_regression() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(80, 2)) * [1, 50]
    target = (scores[:, 0] + scores[:, 1] / 50 + rng.normal(size=80) > 0).astype(np.float64)
    fitted = fit_slopes(scores, target, is_number=False)
    standard = (scores - scores.mean(axis=0)) / scores.std(axis=0)
    model = LogisticRegression(C=100, tol=1e-10, max_iter=1000).fit(standard, target)
    np.testing.assert_allclose(fitted.slopes, model.coef_[0] / scores.std(axis=0), rtol=1e-3)
    assert fitted.losses.mean() == pytest.approx(log_loss(target, model.predict_proba(standard)), rel=1e-5)


def test_slopes_of_numbers_are_those_of_a_ridge_regression() -> None:
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(50, 2)) * [3, 0.1]
    target = scores @ [0.5, -4] + rng.normal(size=50)
    fitted = fit_slopes(scores, target, is_number=True)
    standard = (scores - scores.mean(axis=0)) / scores.std(axis=0)
    model = Ridge(alpha=1e-2).fit(standard, target)
    np.testing.assert_allclose(fitted.slopes, model.coef_ / scores.std(axis=0), rtol=1e-10)
    np.testing.assert_allclose(fitted.losses, 0.5 * (target - model.predict(standard)) ** 2, rtol=1e-9)


@pytest.mark.parametrize("is_number", [False, True])
def test_a_score_that_does_not_vary_has_no_slope(is_number: bool) -> None:
    rng = np.random.default_rng(2)
    target = rng.integers(0, 2, 30).astype(np.float64)
    varying = target + rng.normal(size=30)
    alone = fit_slopes(varying[:, None], target, is_number=is_number)
    both = fit_slopes(np.stack([np.full(30, 7.0), varying], axis=1), target, is_number=is_number)
    np.testing.assert_allclose(both.slopes, [0, alone.slopes[0]], rtol=1e-12)
    np.testing.assert_allclose(both.losses, alone.losses, rtol=1e-12)
    constant = fit_slopes(np.full((30, 1), 7.0), target, is_number=is_number)
    assert constant.slopes.tolist() == [0]
    np.testing.assert_array_equal(constant.losses, compute_baseline_losses(target, is_number=is_number))


def test_baseline_losses_by_hand() -> None:
    classes = compute_baseline_losses(np.array([0.0, 1, 1, 1]), is_number=False)
    np.testing.assert_allclose(classes, -np.log([1 / 4, 3 / 4, 3 / 4, 3 / 4]))
    assert compute_baseline_losses(np.array([1.0, 3]), is_number=True).tolist() == [0.5, 0.5]
