"""Intervals of r2, of the mean absolute error and of rank correlations: values, limits, coverage."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy.stats import norm, spearmanr, t

from deeprc.evaluation.intervals import (
    compute_mean_error_interval,
    compute_r2_interval,
    compute_rank_correlation,
    compute_rank_correlation_interval,
)


def test_the_jackknife_is_that_of_leaving_each_out() -> None:
    rng = np.random.default_rng(3)
    label = rng.normal(50, 10, 9)
    predicted = label + rng.normal(0, 6, 9)

    def log_unexplained(y: np.ndarray, p: np.ndarray) -> float:
        return float(np.log(((y - p) ** 2).sum() / ((y - y.mean()) ** 2).sum()))

    def log_error(y: np.ndarray, p: np.ndarray) -> float:
        return float(np.log(np.abs(y - p).mean()))

    for statistic, found, back in (
        (log_unexplained, compute_r2_interval(label, predicted), lambda x: 1 - np.exp(x)),
        (log_error, compute_mean_error_interval(label, predicted), np.exp),
    ):
        each = np.array([statistic(np.delete(label, i), np.delete(predicted, i)) for i in range(9)])
        error = np.sqrt(8 / 9 * ((each - each.mean()) ** 2).sum())
        whole = statistic(label, predicted)
        limits = sorted(back(whole + sign * t.ppf(0.975, 8) * error) for sign in (-1, 1))
        assert found == pytest.approx(limits)


def test_rank_correlation_by_hand() -> None:
    label, predicted = np.array([1.0, 2, 3, 4, 5]), np.array([2.0, 1, 4, 3, 5])
    assert compute_rank_correlation(label, predicted) == pytest.approx(0.8)
    assert compute_rank_correlation(label, predicted) == pytest.approx(spearmanr(label, predicted).statistic)
    half = norm.ppf(0.975) * np.sqrt((1 + 0.32) / 2)
    expected = np.tanh([np.arctanh(0.8) - half, np.arctanh(0.8) + half])
    assert compute_rank_correlation_interval(label, predicted) == pytest.approx(tuple(expected))


def test_few_or_constant_labels_have_no_interval() -> None:
    label = np.array([1.0, 2, 3, 4, 5])
    for interval in (compute_r2_interval, compute_mean_error_interval, compute_rank_correlation_interval):
        assert interval(label[:3], label[:3] + np.array([0.1, 0.2, -0.3])) is None
    assert compute_r2_interval(label, label) is None
    assert compute_mean_error_interval(label, label) is None
    assert compute_r2_interval(np.array([1.0, 1, 1, 1, 7]), label) is None  # without the last there is no variance
    assert compute_r2_interval(np.array([0.1, 0.1, 0.1, 0.1, 0.7]), label) is None
    assert np.isnan(compute_rank_correlation(label, np.ones(5)))
    assert compute_rank_correlation_interval(label, np.ones(5)) is None
    assert compute_r2_interval(np.zeros(0), np.zeros(0)) is None


def test_more_repertoires_narrow_an_interval_and_many_are_no_burden() -> None:
    rng = np.random.default_rng(0)
    label = rng.normal(size=200_000)
    predicted = 0.5 * label + rng.normal(0, 0.5, len(label))
    widths = [np.diff(compute_r2_interval(label[:n], predicted[:n])).item() for n in (20, 200, 2000, 200_000)]
    assert widths == sorted(widths, reverse=True)
    assert widths[-1] < 0.01


@pytest.mark.parametrize("sign", [1, -1])
def test_a_perfect_order_has_no_interval(sign: int) -> None:
    label = np.array([1.0, 2.0, 3.0, 4.0])
    assert compute_rank_correlation_interval(label, sign * label**3) is None


@pytest.mark.long
@pytest.mark.parametrize("n", [6, 9, 15, 30])
@pytest.mark.parametrize("heavy", [False, True], ids=["normal", "heavy"])
@pytest.mark.parametrize("rho", [0.5, 0.8])
def test_intervals_cover_the_truth_as_often_as_their_docstrings_say(n: int, heavy: bool, rho: float) -> None:
    """The docstrings' figures: predictions are right but for their errors, as those of a calibrated model are."""
    rng = np.random.default_rng([n, heavy, int(10 * rho)])

    def draw(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
        z = rng.exponential(1, shape) - 1 if heavy else rng.standard_normal(shape)
        noise = rng.standard_t(5, shape) / np.sqrt(5 / 3) if heavy else rng.standard_normal(shape)
        return rho * z + np.sqrt(1 - rho**2) * noise, rho * z

    many = draw((1_000_000,))
    truth = rho**2, float(np.abs(many[0] - many[1]).mean()), compute_rank_correlation(*many)
    repetitions = 2000
    label, predicted = draw((repetitions, n))
    covered, n_intervals = np.zeros(3), np.zeros(3)
    for y, p in zip(label, predicted, strict=True):
        found = compute_r2_interval(y, p), compute_mean_error_interval(y, p), compute_rank_correlation_interval(y, p)
        for i, (interval, value) in enumerate(zip(found, truth, strict=True)):
            if interval is not None:  # a perfect order has none
                n_intervals[i] += 1
                covered[i] += interval[0] <= value <= interval[1]
    assert (n_intervals >= 0.9 * repetitions).all()
    r2, error, rank = covered / n_intervals
    assert (0.87 if heavy else 0.925) <= r2 <= 0.97
    assert 0.93 <= error <= 0.97
    assert 0.92 <= rank <= 0.995  # some points too many for 6, from the orders that are left out


@pytest.mark.parametrize(
    "interval", [compute_r2_interval, compute_mean_error_interval, compute_rank_correlation_interval]
)
def test_copies_of_a_donors_repertoire_add_nothing(interval: Callable[..., tuple[float, float] | None]) -> None:
    rng = np.random.default_rng(5)
    label = rng.normal(size=12)
    predicted = label + rng.normal(size=12)
    order = rng.permutation(36)
    copied = np.repeat(label, 3)[order], np.repeat(predicted, 3)[order], np.repeat(np.arange(12) + 100, 3)[order]
    assert interval(*copied) == pytest.approx(interval(label, predicted))
    narrower = interval(*copied[:2])
    assert narrower is not None
    assert narrower[0] > interval(*copied)[0]
    assert narrower[1] < interval(*copied)[1]
    few = np.repeat([1, 2, 3], 12)
    assert interval(*copied[:2], few) is None  # three donors
