"""Reliability curve, calibration error, Brier score and log loss, by hand and by simulation."""

import math

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, log_loss

from deeprc.evaluation.reliability import (
    MEASURES,
    compute_calibration_bins,
    compute_calibration_error,
    compute_wilson_interval,
    judge_probabilities,
)


def test_wilson_by_hand() -> None:
    """With z² = 3.8415: (n p + z²/2 ± z √(n p (1 - p) + z²/4)) / (n + z²)."""
    assert compute_wilson_interval(8, 10) == pytest.approx((0.4901625, 0.9433178), abs=1e-6)
    assert compute_wilson_interval(0, 10) == pytest.approx((0.0, 3.8414588 / 13.8414588), abs=1e-6)
    assert compute_wilson_interval(1, 1) == pytest.approx((1 / 4.8414588, 1.0), abs=1e-6)


def test_calibration_bins_by_hand() -> None:
    bins = compute_calibration_bins(np.array([0.0, 0, 1, 1, 0, 1]), np.array([0.1, 0.1, 0.1, 0.6, 0.8, 0.9]), n_bins=3)
    # the quantiles of a third and two thirds are 0.1, which is not parted, and 0.667
    assert bins["n"].tolist() == [4, 2]
    assert bins["probability"].tolist() == pytest.approx([0.9 / 4, 0.85])
    assert bins["share"].tolist() == pytest.approx([2 / 4, 1 / 2])
    assert (bins["lower"].iloc[1], bins["upper"].iloc[1]) == pytest.approx(compute_wilson_interval(1, 2))


def test_calibration_bins_of_equal_probabilities_are_one() -> None:
    bins = compute_calibration_bins(np.array([0.0, 1, 1, 1]), np.full(4, 0.5))
    assert bins[["probability", "share", "n"]].to_numpy().tolist() == [[0.5, 0.75, 4]]


def test_calibration_error_by_hand() -> None:
    """Two bins of 10: one predicts 0.2 where 3 of 10 come true, one 0.8 where 5 of 10 do."""
    label = np.array([1.0] * 3 + [0.0] * 7 + [1.0] * 5 + [0.0] * 5)
    probability = np.repeat([0.2, 0.8], 10)
    parts = 0.1**2 - 0.3 * 0.7 / 9, 0.3**2 - 0.5 * 0.5 / 9
    assert compute_calibration_error(label, probability) == pytest.approx(math.sqrt(sum(parts) / 2))
    perfect = np.array(([1.0] * 2 + [0.0] * 8) + ([1.0] * 8 + [0.0] * 2))
    assert compute_calibration_error(perfect, probability) == 0  # the sum is negative
    assert np.isnan(compute_calibration_error(label[:9], probability[:9]))


def test_the_calibration_error_of_a_bin_of_one_repertoire_by_hand() -> None:
    """10 repertoires, two bins: nine of 0.1 that are 0, and one of 0.9 that is 0."""
    label, probability = np.zeros(10), np.array([0.1] * 9 + [0.9])
    bins = compute_calibration_bins(label, probability)
    assert bins["n"].tolist() in ([10], [9, 1])
    squares = [9 * 0.1**2, 0.9**2 - 0.9 * 0.1] if len(bins) == 2 else [10 * 0.18**2]
    assert compute_calibration_error(label, probability) == pytest.approx(math.sqrt(sum(squares) / 10))


@pytest.mark.slow
def test_calibration_error_is_near_the_truth_in_small_cohorts() -> None:
    rng = np.random.default_rng(0)
    means = {}
    for name, slope in (("perfect", 1.0), ("too sure", 3.0)):
        found = []
        for _ in range(200):
            odds = rng.normal(0, 1.5, 200)
            label = (rng.random(200) < 1 / (1 + np.exp(-odds))).astype(float)
            found.append(compute_calibration_error(label, 1 / (1 + np.exp(-slope * odds))))
        means[name] = np.mean(found)
    odds = rng.normal(0, 1.5, 100_000)
    truth = np.sqrt(np.mean((1 / (1 + np.exp(-odds)) - 1 / (1 + np.exp(-3 * odds))) ** 2))
    assert means["perfect"] < 0.03
    assert means["too sure"] == pytest.approx(truth, abs=0.012)


def test_two_classes_by_hand_and_by_scikit_learn() -> None:
    label, probability = np.array([1, 0, 1, 1]), np.array([0.9, 0.6, 0.4, 1.0])
    found = judge_probabilities(label, probability)
    assert set(found) == set(MEASURES)
    assert found["brier"] == pytest.approx((0.01 + 0.36 + 0.36 + 0) / 4)
    assert found["brier"] == pytest.approx(brier_score_loss(label, probability))
    assert found["brier_base_rate"] == pytest.approx(0.75 * 0.25)
    assert found["log_loss"] == pytest.approx(-math.log(0.9 * 0.4 * 0.4) / 4)
    assert found["log_loss"] == pytest.approx(log_loss(label, probability))
    assert found["log_loss_base_rate"] == pytest.approx(-0.75 * math.log(0.75) - 0.25 * math.log(0.25))
    assert np.isnan(found["calibration_error"])  # of 4 repertoires
    both = judge_probabilities(label, np.stack([1 - probability, probability], axis=1))
    assert [both[name] for name in MEASURES[:4]] == pytest.approx([found[name] for name in MEASURES[:4]])
    assert math.isfinite(judge_probabilities(np.array([0]), np.array([1.0]))["log_loss"])


def test_several_classes_by_hand() -> None:
    label = np.array([0, 1, 2, 2])
    probability = np.array([[1.0, 0, 0], [0.2, 0.5, 0.3], [0.1, 0.1, 0.8], [0.5, 0.25, 0.25]])
    found = judge_probabilities(label, probability)
    rows = [0, 0.04 + 0.25 + 0.09, 0.01 + 0.01 + 0.04, 0.25 + 0.0625 + 0.5625]
    assert found["brier"] == pytest.approx(sum(rows) / 4)
    assert found["brier_base_rate"] == pytest.approx(1 - (1 + 1 + 4) / 16)
    assert found["log_loss"] == pytest.approx(-math.log(0.5 * 0.8 * 0.25) / 4)
    assert found["log_loss_base_rate"] == pytest.approx(math.log(4) / 2 + math.log(2) / 2)


def test_calibration_error_of_several_classes_is_the_mean_over_classes() -> None:
    rng = np.random.default_rng(1)
    label, probability = rng.integers(0, 3, 60), rng.dirichlet([1, 1, 1], 60)
    each = [compute_calibration_error((label == c).astype(float), probability[:, c]) for c in range(3)]
    assert judge_probabilities(label, probability)["calibration_error"] == pytest.approx(np.mean(each))
