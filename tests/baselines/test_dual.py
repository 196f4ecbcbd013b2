"""Linear models in the dual against those of the columns."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression, Ridge

from deeprc.baselines import standardised_columns as module
from deeprc.baselines.dual import fit_dual_logistic, fit_dual_ridge_path
from deeprc.baselines.standardised_columns import StandardisedColumns


@pytest.mark.parametrize("C", [1e-3, 1.0, 1e3])
def test_logistic_regression_is_scikit_learns(C: float) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 8))
    target = (rows[:, 0] + rng.normal(size=40) > 0.5).astype(float)
    found = fit_dual_logistic(rows @ rows.T, target, C, tolerance=1e-12)
    other = LogisticRegression(C=C, tol=1e-12, max_iter=100_000).fit(rows, target)
    np.testing.assert_allclose(rows.T @ found.weights, other.coef_[0], rtol=1e-3, atol=1e-6)
    assert found.intercept == pytest.approx(other.intercept_[0], abs=1e-4)
    residual = 1 / (1 + np.exp(-(rows @ rows.T @ found.weights + found.intercept))) - target
    np.testing.assert_allclose(found.weights, -C * residual, atol=1e-6 * C)
    assert found.weights.sum() == pytest.approx(0, abs=1e-9 * C)


def test_classes_that_can_be_separated_end_from_any_start() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(30, 200))
    target = (np.arange(30) % 3 == 0).astype(float)
    gram = rows @ rows.T / 200
    weak = fit_dual_logistic(gram, target, 1e-3)
    alone, after = fit_dual_logistic(gram, target, 1e5), fit_dual_logistic(gram, target, 1e5, start=weak)
    np.testing.assert_allclose(gram @ alone.weights, gram @ after.weights, rtol=1e-3)
    assert np.array_equal(gram @ alone.weights + alone.intercept > 0, target == 1)
    assert alone.compute_objective(gram, target, 1e5) < weak.compute_objective(gram, target, 1e5)


def test_ridge_regression_is_scikit_learns() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(25, 60))
    rows -= rows.mean(axis=0)
    numbers = rows[:, 0] + rng.normal(3, 1, 25)
    for C, found in zip([0.01, 10.0], fit_dual_ridge_path(rows @ rows.T, numbers, [0.01, 10.0]), strict=True):
        other = Ridge(alpha=1 / C).fit(rows, numbers)
        np.testing.assert_allclose(rows.T @ found.weights, other.coef_, atol=1e-9)
        assert found.intercept == pytest.approx(other.intercept_)


@pytest.mark.parametrize("n_rows", [9, 5, 4, 1])  # in parts of 4 rows
def test_products_are_computed_in_parts(monkeypatch: pytest.MonkeyPatch, n_rows: int) -> None:
    monkeypatch.setattr(module, "_GRAM_ROWS", 4)
    monkeypatch.setattr(module, "_GRAM_BLOCK", 7)
    rng = np.random.default_rng(6)
    matrix, weights = rng.random((n_rows, 50)) * (rng.random((n_rows, 50)) < 0.6), rng.random(n_rows)
    for each in (matrix, csr_matrix(matrix)):
        columns = StandardisedColumns(each, weights=weights)
        z = columns.take(np.arange(50)).T
        found = columns.compute_gram()
        np.testing.assert_allclose(found, z @ z.T, atol=1e-10)
        np.testing.assert_array_equal(found, found.T)


def test_rows_of_columns_may_have_weights() -> None:
    rng = np.random.default_rng(3)
    matrix, weights = rng.random((9, 50)) + 1, rng.random(9)
    weights[4] = 0
    centred = weights[:, None] * (matrix - np.average(matrix, axis=0, weights=weights))
    for scale, spread in (("standard", centred.std(axis=0)), ("common", np.sqrt((centred**2).mean()))):
        columns = StandardisedColumns(matrix, scale=scale, weights=weights)  # type: ignore[arg-type]
        z = centred / spread
        np.testing.assert_allclose(columns.compute_gram(), z @ z.T, atol=1e-10)
        np.testing.assert_allclose(columns.take(np.array([7, 2])), z[:, [7, 2]].T, atol=1e-12)
        np.testing.assert_allclose(columns.compute_products(np.arange(9.0)), np.arange(9.0) @ z, atol=1e-10)


def test_sparse_columns_with_weights_are_those_of_dense_ones() -> None:
    rng = np.random.default_rng(4)
    matrix, weights = rng.random((9, 50)) * (rng.random((9, 50)) < 0.3), rng.random(9)
    dense, other = (
        StandardisedColumns(matrix, weights=weights),
        StandardisedColumns(csr_matrix(matrix), weights=weights),
    )
    np.testing.assert_allclose(other.centre, dense.centre, atol=1e-12)
    np.testing.assert_allclose(other.factor, dense.factor, rtol=1e-9)
    np.testing.assert_allclose(other.compute_gram(), dense.compute_gram(), atol=1e-8)


def test_the_objective_is_that_of_a_general_optimiser() -> None:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(12, 30))
    target, gram = (np.arange(12) < 5).astype(float), rows @ rows.T

    def value(x: np.ndarray) -> float:  # type: ignore[type-arg]
        odds = gram @ x[:-1] + x[-1]
        return float(2 * np.sum(np.logaddexp(0, odds) - target * odds) + 0.5 * x[:-1] @ gram @ x[:-1])

    found = fit_dual_logistic(gram, target, 2.0, tolerance=1e-12)
    assert found.compute_objective(gram, target, 2.0) == pytest.approx(minimize(value, np.zeros(13)).fun, rel=1e-6)
