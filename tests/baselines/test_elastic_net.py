"""The solver against scipy, scikit-learn and the conditions that an optimum must fulfil."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable

import numba
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from deeprc.arrays import Floats
from deeprc.baselines.elastic_net import Solution, fit_elastic_net_path
from deeprc.baselines.standardised_columns import StandardisedColumns
from deeprc.errors import InputError

Problem = tuple[Floats, NDArray[np.bool_]]


@pytest.fixture
def problem() -> Callable[..., Problem]:
    def make(n_rows: int = 40, n_columns: int = 12, seed: int = 0, density: float = 1.0) -> Problem:
        rng = np.random.default_rng(seed)
        matrix = rng.normal(2, rng.uniform(0.5, 3, n_columns), (n_rows, n_columns))
        matrix *= rng.random(matrix.shape) < density
        odds = matrix[:, 0] - matrix[:, 1] + rng.normal(0, 1, n_rows)
        return matrix, odds > np.median(odds)

    return make


def standard(matrix: Floats) -> Floats:
    spread = matrix.std(axis=0)
    return (matrix - matrix.mean(axis=0)) / np.where(spread > 0, spread, 1)


def objective(matrix: Floats, positive: NDArray[np.bool_], solution: Solution, C: float, l1_ratio: float) -> float:
    """Return C * loss + penalty of the coefficients of the standardised columns, as scikit-learn defines it."""
    every = np.zeros(matrix.shape[1])
    every[solution.columns] = solution.coefficients
    odds = matrix @ every + solution.intercept
    w = every * matrix.std(axis=0)
    loss = np.logaddexp(0, np.where(positive, -odds, odds)).sum()
    return float(C * loss + l1_ratio * np.abs(w).sum() + (1 - l1_ratio) / 2 * (w**2).sum())


def by_scipy(matrix: Floats, positive: NDArray[np.bool_], C: float, l1_ratio: float) -> float:
    """Return the least objective that L-BFGS-B finds with weights cut into two parts that are not negative."""
    z, n = standard(matrix), matrix.shape[1]

    def value(x: Floats) -> tuple[float, Floats]:
        w = x[:n] - x[n : 2 * n]
        odds = z @ w + x[-1]
        residual = 1 / (1 + np.exp(-odds)) - positive
        total = C * np.logaddexp(0, np.where(positive, -odds, odds)).sum()
        total += l1_ratio * x[: 2 * n].sum() + (1 - l1_ratio) / 2 * (w**2).sum()
        slope = C * z.T @ residual + (1 - l1_ratio) * w
        return float(total), np.concatenate([slope + l1_ratio, -slope + l1_ratio, [C * residual.sum()]])

    bounds = [(0, None)] * (2 * n) + [(None, None)]
    options = {"maxiter": 20_000, "maxfun": 100_000, "ftol": 1e-15, "gtol": 1e-10}
    found = minimize(value, np.zeros(2 * n + 1), jac=True, bounds=bounds, method="L-BFGS-B", options=options)
    return float(found.fun)


@pytest.mark.parametrize("l1_ratio", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("C", [0.01, 0.3, 10.0])
def test_the_objective_is_that_of_a_general_optimiser(
    problem: Callable[..., Problem], l1_ratio: float, C: float
) -> None:
    matrix, positive = problem()
    (solution,) = fit_elastic_net_path(matrix, positive, [C], l1_ratio=l1_ratio, tolerance=1e-8)
    ours, theirs = objective(matrix, positive, solution, C, l1_ratio), by_scipy(matrix, positive, C, l1_ratio)
    assert ours == pytest.approx(theirs, rel=1e-6)


def test_the_l2_penalty_is_scikit_learns(problem: Callable[..., Problem]) -> None:
    matrix, positive = problem(n_rows=30, n_columns=50)
    for C, solution in zip([0.01, 1.0], fit_elastic_net_path(matrix, positive, [0.01, 1.0], l1_ratio=0.0), strict=True):
        other = LogisticRegression(C=C, tol=1e-10, max_iter=10_000).fit(standard(matrix), positive)
        assert matrix[:, solution.columns] @ solution.coefficients + solution.intercept == pytest.approx(
            other.decision_function(standard(matrix)), abs=1e-4
        )


@pytest.mark.parametrize("l1_ratio", [1.0, 0.4])
def test_coefficients_are_those_of_scikit_learns_saga(problem: Callable[..., Problem], l1_ratio: float) -> None:
    matrix, positive = problem()
    z, C = standard(matrix), 0.3
    (solution,) = fit_elastic_net_path(matrix, positive, [C], l1_ratio=l1_ratio, tolerance=1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the penalty's name is not needed any more from 1.8 on
        saga = {"solver": "saga", "penalty": "elasticnet", "tol": 1e-12, "max_iter": 100_000}
        other = LogisticRegression(C=C, l1_ratio=l1_ratio, **saga).fit(z, positive)
    assert solution.columns.tolist() == np.flatnonzero(other.coef_[0]).tolist()
    of_standard = solution.coefficients * matrix.std(axis=0)[solution.columns]
    assert of_standard == pytest.approx(other.coef_[0, solution.columns], abs=1e-5)
    at_mean = solution.intercept + solution.coefficients @ matrix.mean(axis=0)[solution.columns]
    assert at_mean == pytest.approx(other.intercept_[0], abs=1e-5)


@pytest.mark.parametrize("l1_ratio", [1.0, 0.5, 0.0])
def test_the_gap_is_no_less_than_what_could_be_gained(problem: Callable[..., Problem], l1_ratio: float) -> None:
    matrix, positive = problem(n_columns=100)
    best = objective(
        matrix, positive, next(fit_elastic_net_path(matrix, positive, [1.0], l1_ratio=l1_ratio)), 1.0, l1_ratio
    )
    for tolerance in (0.3, 1e-2, 1e-4):
        (rough,) = fit_elastic_net_path(matrix, positive, [1.0], l1_ratio=l1_ratio, tolerance=tolerance)
        reached = objective(matrix, positive, rough, 1.0, l1_ratio)
        assert rough.gap <= tolerance
        assert reached - best <= rough.gap * reached + 1e-6 * best


def test_columns_that_are_nearly_alike_are_no_trouble(caplog: pytest.LogCaptureFixture) -> None:
    """Most columns are one row's spike, as rare k-mers are: coordinate descent alone does not get anywhere."""
    rng = np.random.default_rng(0)
    matrix = np.abs(rng.standard_cauchy((60, 1000))) ** 2
    with caplog.at_level(logging.WARNING):
        solutions = list(fit_elastic_net_path(matrix, rng.random(60) < 0.3, [1.0, 1e4]))
    assert all(solution.gap <= 1e-6 for solution in solutions)
    assert not caplog.records


def test_a_common_scale_keeps_what_varies_more(problem: Callable[..., Problem]) -> None:
    matrix, positive = problem()
    common = np.sqrt(matrix.var(axis=0).mean())
    (solution,) = fit_elastic_net_path(matrix, positive, [0.5], l1_ratio=0.0, scale="common", tolerance=1e-10)
    z = (matrix - matrix.mean(axis=0)) / common
    other = LogisticRegression(C=0.5, tol=1e-10, max_iter=10_000).fit(z, positive)
    assert solution.coefficients * common == pytest.approx(other.coef_[0], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("sparse", [False, True])
def test_sums_over_columns_are_numpys_on_any_number_of_threads(problem: Callable[..., Problem], sparse: bool) -> None:
    matrix, positive = problem(n_rows=11, n_columns=40_000, density=0.3)
    matrix = matrix.astype(np.float32)
    z, vector = standard(matrix.astype(np.float64)), positive - 0.3
    found = []
    for n_threads in (1, numba.config.NUMBA_NUM_THREADS):
        numba.set_num_threads(n_threads)
        columns = StandardisedColumns(csr_matrix(matrix) if sparse else matrix)
        found.append(columns.compute_products(vector))
    np.testing.assert_array_equal(*found)
    np.testing.assert_allclose(found[0], vector @ z, atol=1e-5)
    np.testing.assert_allclose(columns.take(np.array([39_999, 3])), z[:, [39_999, 3]].T, atol=1e-5)
    np.testing.assert_allclose(columns.compute_gram(), z @ z.T, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize("density", [1.0, 0.1])
def test_many_columns_fulfil_the_conditions_of_an_optimum(problem: Callable[..., Problem], density: float) -> None:
    matrix, positive = problem(n_rows=60, n_columns=3000, density=density)
    C = 0.2
    (solution,) = fit_elastic_net_path(csr_matrix(matrix) if density < 1 else matrix, positive, [C], tolerance=1e-9)
    odds = matrix[:, solution.columns] @ solution.coefficients + solution.intercept
    residual = 1 / (1 + np.exp(-odds)) - positive
    slopes = C * standard(matrix).T @ residual
    assert abs(residual.sum()) < 1e-3
    assert np.abs(slopes).max() <= 1 + 1e-3
    assert 0 < len(solution.columns) < 60
    assert slopes[solution.columns] == pytest.approx(-np.sign(solution.coefficients), abs=1e-3)


def test_a_sparse_matrix_gives_the_same(problem: Callable[..., Problem]) -> None:
    matrix, positive = problem(n_columns=200, density=0.2)
    for l1_ratio in (1.0, 0.0):
        dense, sparse = (
            next(fit_elastic_net_path(each, positive, [0.5], l1_ratio=l1_ratio, tolerance=1e-9))
            for each in (matrix, csr_matrix(matrix))
        )
        scores = [matrix[:, each.columns] @ each.coefficients + each.intercept for each in (dense, sparse)]
        assert scores[0] == pytest.approx(scores[1], abs=1e-4)


def test_a_value_does_not_depend_on_the_others_of_its_path(problem: Callable[..., Problem]) -> None:
    matrix, positive = problem(n_columns=300)
    alone = next(fit_elastic_net_path(matrix, positive, [0.3]))
    among = list(fit_elastic_net_path(matrix, positive, [5.0, 0.02, 0.3, 0.1]))[2]
    assert np.array_equal(alone.columns, among.columns)
    assert np.array_equal(alone.coefficients, among.coefficients)
    assert alone.intercept == among.intercept


def test_a_strong_penalty_leaves_the_prior_alone(problem: Callable[..., Problem]) -> None:
    matrix, positive = problem()
    positive = np.arange(len(positive)) < 10
    (solution,) = fit_elastic_net_path(matrix, positive, [1e-6])
    assert len(solution.columns) == 0
    assert solution.intercept == pytest.approx(np.log(10 / 30), abs=1e-4)


def test_constant_columns_have_no_coefficient(problem: Callable[..., Problem]) -> None:
    matrix, positive = problem()
    matrix[:, [3, 5]] = 7.0, 0.0
    for l1_ratio in (1.0, 0.0):
        (solution,) = fit_elastic_net_path(matrix, positive, [1.0], l1_ratio=l1_ratio)
        assert not set(solution.columns) & {3, 5}


def test_separable_classes_get_finite_coefficients_that_separate_them(problem: Callable[..., Problem]) -> None:
    matrix, _ = problem()
    positive = matrix[:, 0] > np.median(matrix[:, 0])
    (solution,) = fit_elastic_net_path(matrix, positive, [1e4])
    odds = matrix[:, solution.columns] @ solution.coefficients + solution.intercept
    assert np.array_equal(odds > 0, positive)
    assert np.isfinite(solution.coefficients).all()


@pytest.mark.parametrize("bad", [0.0, -1.0, float("inf"), "1"])
def test_a_bad_penalty_is_refused(problem: Callable[..., Problem], bad: object) -> None:
    with pytest.raises(InputError, match="C: expected a number above 0"):
        list(fit_elastic_net_path(*problem(), [bad]))  # type: ignore[list-item]


def test_one_class_is_refused(problem: Callable[..., Problem]) -> None:
    matrix, positive = problem()
    with pytest.raises(InputError, match="expected two classes"):
        list(fit_elastic_net_path(matrix, np.ones_like(positive), [1.0]))
