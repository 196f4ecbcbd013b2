"""Calibration of log-odds, logits and probabilities by labels."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit, softmax

from deeprc.calibration import (
    IDENTITY,
    calibrate_probabilities,
    choose_cutoff,
    fit_calibration,
    fit_platt_scaling,
    fit_temperature,
)


def expected_loss(log_odds: np.ndarray, truth: np.ndarray) -> float:
    """Return the expected log loss of log-odds, where the probability is known."""
    return float(np.mean(np.logaddexp(0, log_odds) - truth * log_odds))


def test_log_odds_without_order_give_the_shrunken_base_rate() -> None:
    """One equation by hand: with log-odds 0 only the intercept b counts, n (expit(b) - mean target) + 4 b = 0."""
    positive = np.array([True] * 6 + [False] * 2)
    found = fit_calibration(np.zeros(8), positive)
    mean_target = (6 * 7 / 8 + 2 * 1 / 4) / 8
    assert found.slope == pytest.approx(1)
    assert 8 * (expit(found.intercept) - mean_target) + 4 * found.intercept == pytest.approx(0, abs=1e-4)


def test_the_slope_solves_its_equation() -> None:
    """Symmetric log-odds of ±1, 3 of 4 right: the derivative by log a is a sum over 8 repertoires, plus 4 log a."""
    log_odds = np.array([1.0, 1, 1, -1, -1, -1, -1, 1])
    positive = np.arange(8) < 4
    found = fit_calibration(log_odds, positive)
    target = np.where(positive, 5 / 6, 1 / 6)
    slope = found.slope * float((expit(found.slope * log_odds) - target) @ log_odds) + 4 * np.log(found.slope)
    assert slope == pytest.approx(0, abs=1e-4)
    assert found.intercept == pytest.approx(0, abs=1e-6)


def test_few_labels_change_little_and_many_overrule_the_prior() -> None:
    rng = np.random.default_rng(0)
    for n, low, high in ((4, 0.5, 1.1), (4000, 0.31, 0.36)):
        truth = rng.normal(0, 2, n)
        positive = rng.random(n) < expit(truth)
        assert low < fit_calibration(3 * truth, positive).slope < high


def test_perfect_order_does_not_make_the_slope_wild() -> None:
    log_odds = np.array([-2.0, -1, 1, 2])
    assert fit_calibration(log_odds, log_odds > 0).slope < 1.2
    assert 0 < fit_calibration(-10 * log_odds, log_odds > 0).slope < 0.5  # all wrong: the order is kept


@pytest.mark.slow
@pytest.mark.parametrize("n", [10, 40])
def test_the_expected_loss_is_not_worse(n: int) -> None:
    """Right log-odds lose next to nothing, wrong ones gain, much where they were too large."""
    rng = np.random.default_rng(1)
    change: dict[str, list[float]] = {"right": [], "too large": [], "too small": [], "shifted": []}
    for _ in range(150):
        truth, new = rng.normal(0, 2, n), rng.normal(0, 2, 300)
        positive = rng.random(n) < expit(truth)
        for (_, values), (factor, shift) in zip(change.items(), [(1, 0), (3, 0), (0.3, 0), (1, 1)], strict=True):
            found = fit_calibration(factor * truth + shift, positive)
            given = factor * new + shift
            after = expected_loss(found.slope * given + found.intercept, expit(new))
            values.append(after - expected_loss(given, expit(new)))
    mean = {name: np.mean(values) for name, values in change.items()}
    assert mean["right"] < 0.015
    assert mean["too large"] < -0.15
    assert mean["too small"] < 0
    assert mean["shifted"] < 0


def test_one_class_changes_nothing() -> None:
    assert fit_calibration(np.array([1.0, 2.0]), np.array([True, True])) == IDENTITY
    assert fit_calibration(np.zeros(0), np.zeros(0, bool)) == IDENTITY
    assert fit_temperature(np.ones((2, 3)), np.array([1, 1])) == IDENTITY


def test_the_temperature_of_two_classes_is_the_slope_without_an_intercept() -> None:
    rng = np.random.default_rng(2)
    logits, classes = rng.normal(0, 2, (30, 2)), np.arange(30) % 2
    target = np.where(classes == 1, 16 / 17, 1 / 17)
    odds = logits[:, 1] - logits[:, 0]

    def loss(log_slope: float) -> float:
        scaled = np.exp(log_slope) * odds
        return float(np.sum(np.logaddexp(0, scaled) - target * scaled)) + 2 * log_slope**2

    expected = np.exp(minimize_scalar(loss, bounds=(-3, 3), method="bounded", options={"xatol": 1e-9}).x)
    assert fit_temperature(logits, classes).slope == pytest.approx(expected, rel=1e-4)
    assert fit_temperature(logits, classes).intercept == 0


def test_probabilities_of_new_repertoires() -> None:
    rng = np.random.default_rng(3)
    truth = rng.normal(0, 2, 400)
    labels = (rng.random(400) < expit(truth)).astype(np.int64)
    known, new = expit(3 * truth), np.array([0.0, 0.2, 0.5, 1.0])
    found, cutoff = calibrate_probabilities(np.stack([1 - new, new], 1), np.stack([1 - known, known], 1), labels)
    fitted = fit_calibration(logit(known), labels == 1)
    chosen = choose_cutoff(fitted.slope * logit(known) + fitted.intercept)
    assert cutoff == pytest.approx(expit(chosen))
    assert 0.2 < cutoff < 0.8
    assert found.sum(axis=1) == pytest.approx(1)
    assert (np.diff(found[:, 1]) > 0).all()
    assert logit(found[1, 1]) == pytest.approx(logit(0.2) / 3, abs=0.25)
    assert np.isfinite(logit(found[:, 1])).all()

    logits = rng.normal(0, 1, (600, 3))
    classes = np.array([rng.choice(3, p=p) for p in softmax(logits, axis=1)])
    found, cutoff = calibrate_probabilities(softmax(4 * logits, axis=1), softmax(4 * logits, axis=1), classes)
    np.testing.assert_allclose(found, softmax(logits, axis=1), atol=0.08)
    assert (found.argmax(axis=1) == logits.argmax(axis=1)).all()
    assert cutoff == 0.5


def test_differences_far_below_a_unit_say_nothing() -> None:
    positive = np.arange(40) % 2 == 0
    scores = np.where(positive, 1e-3, 0.0) - 1
    slope, intercept = fit_platt_scaling(scores, positive, unit=1.0)
    assert 1e-3 <= slope < 2
    np.testing.assert_allclose(slope * scores + intercept, 0, atol=1e-3)
    sure = fit_platt_scaling(scores, positive)
    assert (np.abs(sure[0] * scores + sure[1]) > 2).all()


@pytest.mark.parametrize("scores", [np.full(3, 0.1), np.array([1e-170, 2e-170, 3e-170])])
def test_equal_scores_say_nothing(scores: NDArray[np.float64]) -> None:
    """The computed standard deviation of the first is 1e-17; that of the second is 0."""
    positive = np.arange(3) == 0
    slope, intercept = fit_platt_scaling(scores, positive)
    assert slope == pytest.approx(1e-3)
    assert slope * scores[0] + intercept == pytest.approx(
        np.log((2 / 3 + 1 / 4 + 1 / 4) / (1 / 3 + 3 / 4 + 3 / 4)), abs=1e-4
    )


# -- the cutoff of calls ----------------------------------------------------------------------------------------------


def test_the_cutoff_maximises_what_the_probabilities_promise() -> None:
    log_odds = np.array([2.0, -1.5, 0.4, -3.0, -2.2, -0.3, -2.9])
    p = expit(log_odds)
    promised = {}
    for lowest in log_odds:
        called = log_odds >= lowest
        f1 = 2 * p[called].sum() / (called.sum() + p.sum())
        balanced = (p[called].sum() / p.sum() + (1 - p)[~called].sum() / (1 - p).sum()) / 2
        promised[lowest] = f1 + balanced
    best = max(promised, key=lambda lowest: promised[lowest])
    below = log_odds[log_odds < best].max()
    assert choose_cutoff(log_odds) == pytest.approx((best + below) / 2)
    assert choose_cutoff(log_odds[::-1]) == choose_cutoff(log_odds)


def test_equal_log_odds_are_called_together_and_none_give_even_odds() -> None:
    assert choose_cutoff(np.full(8, -2.0)) == -2.0
    assert choose_cutoff(np.array([])) == 0.0
    assert choose_cutoff(np.array([1e5, -1e5])) == pytest.approx(0, abs=1e-9)
    assert choose_cutoff(np.array([3e4, 2e4])) == 1e3


def test_a_rare_class_is_called() -> None:
    """One repertoire in ten is positive: even odds call hardly any, the cutoff some, with a better F1 for new ones."""
    rng = np.random.default_rng(0)

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        positive = rng.random(n) < 0.1
        return 1.5 * (rng.normal(size=n) + 1.5 * positive) - 1.5**2 / 2 + logit(0.1), positive

    def f1(called: np.ndarray, positive: np.ndarray) -> float:
        return float(2 * (called & positive).sum() / (called.sum() + positive.sum()))

    even, chosen = [], []
    new, truth = draw(20000)
    for _ in range(20):
        log_odds, positive = draw(60)
        found = fit_calibration(log_odds, positive)
        calibrated = found.slope * new + found.intercept
        even.append(f1(calibrated >= 0, truth))
        chosen.append(f1(calibrated >= choose_cutoff(found.slope * log_odds + found.intercept), truth))
    assert np.mean(even) < 0.36
    assert np.mean(chosen) > 0.42  # at most 0.48
