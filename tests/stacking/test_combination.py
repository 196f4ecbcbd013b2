"""The logistic model that combines the scores of several methods."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import expit, logit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from deeprc.stacking import combination
from deeprc.stacking.combination import Combination, fit_combination

N = 400
FOLDS = np.arange(N) % 5


@pytest.fixture
def positive() -> NDArray[np.bool_]:
    return np.random.default_rng(0).random(N) < 0.5


def noisy(positive: NDArray[np.bool_], shift: float, seed: int) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=N) + shift * positive


def test_log_odds_are_the_sum_of_hand_computed_contributions() -> None:
    model = Combination(np.array([1.0, 0.0]), np.array([2.0, 1.0]), np.array([3.0, 0.5]), -0.25)
    scores = np.array([[2.0, -1.0], [100.0, 0.0]])
    # (2 - 1) / 2 * 3, -1 * 0.5; and (100 - 1) / 2, which counts as 4
    np.testing.assert_allclose(model.contributions(scores), [[1.5, -0.5], [12.0, 0.0]])
    np.testing.assert_allclose(model.log_odds(scores), [0.75, 11.75])


def test_shares_of_the_variance_are_hand_computed() -> None:
    model = Combination(np.zeros(2), np.ones(2), np.array([1.0, 2.0]), 0.0)
    # contributions (1, 2), (-1, -2), (0, 0): the log-odds are 3, -3, 0 with the sum of squares 18
    shares = model.compute_variance_shares(np.array([[1.0, 1.0], [-1.0, -1.0], [0.0, 0.0]]))
    np.testing.assert_allclose(shares, [(3 + 3) / 18, (6 + 6) / 18])
    np.testing.assert_array_equal(model.compute_variance_shares(np.ones((3, 2))), [0.0, 0.0])


def test_weights_are_those_of_scikit_learn(positive: NDArray[np.bool_]) -> None:
    scores = np.stack([noisy(positive, 1.0, 1), noisy(positive, 1.5, 2)], axis=1)
    found = fit_combination(scores, positive, FOLDS)
    features = (scores - scores.mean(axis=0)) / scores.std(axis=0)
    expected = LogisticRegression(C=1 / found.strength, tol=1e-8).fit(features, positive)
    np.testing.assert_allclose(found.combination.weights, expected.coef_[0], atol=1e-4)
    np.testing.assert_allclose(found.combination.intercept, expected.intercept_[0], atol=1e-4)


def test_weights_are_pulled_towards_the_expected_ones(
    positive: NDArray[np.bool_], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the minimum, the gradient of the cross-entropy is that of the penalty: X'(y - p) = strength (w - expected)."""
    scores = np.stack([noisy(positive, 1.0, 1), noisy(positive, 1.5, 2)], axis=1)
    slopes = np.array([0.7, 0.0])
    monkeypatch.setattr(combination, "STRENGTHS", (30.0,))
    found = fit_combination(scores, positive, FOLDS, slopes).combination
    features = (scores - scores.mean(axis=0)) / scores.std(axis=0)
    expected = slopes * scores.std(axis=0)
    log_odds = found.log_odds(scores)
    pull = features.T @ (positive - expit(log_odds))
    np.testing.assert_allclose(pull, 30.0 * (found.weights - expected), atol=0.02)
    assert (positive - expit(log_odds)).sum() == pytest.approx(0, abs=0.02)


def test_a_strong_penalty_leaves_log_odds_as_they_are(
    positive: NDArray[np.bool_], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(combination, "STRENGTHS", (1e9,))
    scores = np.stack([noisy(positive, 1.0, 1), noisy(positive, 1.5, 2)], axis=1)
    found = fit_combination(scores, positive, FOLDS, np.array([1.0, 0.0])).combination
    differences = np.diff(found.log_odds(scores)) - np.diff(scores[:, 0])
    np.testing.assert_allclose(differences, 0.0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("n_cohorts", [8, pytest.param(20, marks=pytest.mark.long)])
def test_noisy_copies_of_calibrated_log_odds_hardly_change_them(n_cohorts: int) -> None:
    """With few repertoires: a log-odds that is right, and six noisy copies of it, which chance may favour."""
    gains = []
    for seed in range(n_cohorts):
        rng = np.random.default_rng(seed)
        truth = rng.normal(scale=1.5, size=2_100)
        positive = rng.random(2_100) < expit(truth)
        scores = np.column_stack([truth, *(truth + rng.normal(scale=3, size=2_100) for _ in range(6))])
        few, new = slice(0, 100), slice(100, None)
        aucs = []
        for slopes in (np.eye(7)[0], np.zeros(7)):
            found = fit_combination(scores[few], positive[few], np.arange(100) % 5, slopes).combination
            aucs.append(roc_auc_score(positive[new], found.log_odds(scores[new])))
        gains.append(aucs[0] - aucs[1])
        assert aucs[0] > roc_auc_score(positive[new], truth[new]) - 0.03
    assert np.mean(gains) > 0.005


def test_the_penalty_is_the_strongest_within_one_standard_error() -> None:
    """The second of three rows is the best one; differences of 0.2 and 0 have the mean and the standard error 0.1."""
    best, near, far = np.array([0.4, 0.4]), np.array([0.6, 0.4]), np.array([0.6, 0.5])  # far: 0.15 above, error 0.05
    assert combination._choose_strength(np.stack([best + 1, best, near - 1e-9]), np.arange(len(best))) == 2
    assert combination._choose_strength(np.stack([best + 1, best, far]), np.arange(len(best))) == 1
    assert combination._choose_strength(np.stack([best, best + 1, best + 1]), np.arange(len(best))) == 0
    assert combination._choose_strength(np.stack([best, best, best]), np.arange(len(best))) == 2


def test_members_that_guess_or_contradict_have_no_weight(positive: NDArray[np.bool_]) -> None:
    good, wrong, constant = noisy(positive, 1.5, 1), noisy(positive, -1.0, 2), np.ones(N)
    found = fit_combination(np.stack([wrong, good, constant], axis=1), positive, FOLDS).combination
    assert found.weights[1] > 0.5
    np.testing.assert_array_equal(found.weights[[0, 2]], 0.0)


def test_the_best_member_keeps_a_weight_if_all_members_guess(positive: NDArray[np.bool_]) -> None:
    scores = np.stack([noisy(positive, gain, seed) for gain, seed in ((-0.5, 1), (-0.2, 2), (-1.0, 3))], axis=1)
    found = fit_combination(scores, positive, FOLDS).combination
    np.testing.assert_array_equal(found.weights[[0, 2]], 0.0)


@pytest.mark.parametrize("others_gain", [-0.5, 1.0])
def test_calibrated_log_odds_take_part_without_a_test(
    positive: NDArray[np.bool_], others_gain: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are nearly kept by a strong penalty, whether another member tells the classes or not."""
    monkeypatch.setattr(combination, "STRENGTHS", (1e6,))
    scores = np.stack([noisy(positive, 0.0, 1), noisy(positive, others_gain, 2)], axis=1)
    scores[:, 0] -= 0.2 * positive  # log-odds that are wrong by chance
    found = fit_combination(scores, positive, FOLDS, np.array([1.0, 0.0])).combination
    np.testing.assert_allclose(found.weights[0] / found.scales[0], 1.0, atol=1e-3)


def test_a_member_that_is_constant_but_for_rounding_is_ignored(positive: NDArray[np.bool_]) -> None:
    """Also where it is another constant for other repertoires, as a model that shrank to its intercept."""
    good, constant = noisy(positive, 1.5, 1), 0.3 + 1e-16 * np.arange(N)
    assert len(np.unique(constant)) > 1
    found = fit_combination(np.stack([good, constant], axis=1), positive, FOLDS).combination
    alone = fit_combination(good[:, None], positive, FOLDS).combination
    new = np.array([[0.5, -7.0], [2.0, 100.0]])
    np.testing.assert_allclose(found.log_odds(new), alone.log_odds(new[:, :1]), atol=1e-6)
    np.testing.assert_array_equal(found.contributions(new)[:, 1], 0.0)


def test_a_member_that_repeats_another_shares_its_weight(positive: NDArray[np.bool_]) -> None:
    good = noisy(positive, 1.5, 1)
    weights = fit_combination(np.stack([good, good], axis=1), positive, FOLDS).combination.weights
    assert weights[0] == pytest.approx(weights[1], abs=1e-4)


def test_scale_and_shift_of_scores_do_not_change_the_log_odds(positive: NDArray[np.bool_]) -> None:
    scores = np.stack([noisy(positive, 1.0, 1), noisy(positive, 0.7, 2)], axis=1)
    one = fit_combination(scores, positive, FOLDS)
    other = fit_combination(scores * [1e-3, 50.0] + [7.0, -2.0], positive, FOLDS)
    assert one.strength == other.strength
    np.testing.assert_allclose(one.log_odds, other.log_odds, atol=1e-4)


def test_two_members_are_better_than_one(positive: NDArray[np.bool_]) -> None:
    scores = np.stack([noisy(positive, 1.0, seed) for seed in (1, 2, 3)], axis=1)
    found = fit_combination(scores, positive, FOLDS)
    each = [roc_auc_score(positive, column) for column in scores.T]
    assert roc_auc_score(positive, found.log_odds) > max(each) + 0.05


def test_without_any_signal_the_log_odds_are_those_of_the_share(positive: NDArray[np.bool_]) -> None:
    scores = np.random.default_rng(9).normal(size=(N, 4))
    found = fit_combination(scores, positive, FOLDS)
    assert np.abs(found.combination.log_odds(scores) - logit(positive.mean())).max() < 0.5
    assert (found.combination.weights > 0).sum() <= 1


def test_log_odds_are_calibrated(positive: NDArray[np.bool_]) -> None:
    """A score whose log-odds are 2 x - 1 gets them back, whatever its unit."""
    rng = np.random.default_rng(4)
    x = rng.normal(size=10_000)
    y = rng.random(10_000) < expit(2 * x - 1)
    found = fit_combination((3 * x + 5)[:, None], y, np.arange(10_000) % 5).combination
    np.testing.assert_allclose(found.log_odds(np.array([[5.0], [8.0]])), [-1.0, 1.0], atol=0.1)


def test_labels_of_a_fold_do_not_reach_its_log_odds(
    positive: NDArray[np.bool_], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(combination, "STRENGTHS", (10.0,))
    scores = np.stack([noisy(positive, 1.0, 1), noisy(positive, 0.7, 2)], axis=1)
    changed = positive.copy()
    changed[FOLDS == 2] ^= True
    before, after = (fit_combination(scores, each, FOLDS).log_odds for each in (positive, changed))
    np.testing.assert_array_equal(before[FOLDS == 2], after[FOLDS == 2])
    assert not np.allclose(before[FOLDS != 2], after[FOLDS != 2])


def test_repertoires_of_one_donor_are_no_independent_evidence() -> None:
    """Scores without meaning, the same in ten repertoires of each of 20 donors, get a weight in one case of twenty."""
    donors = np.repeat(np.arange(20), 10)
    positive, taken = donors % 2 == 0, 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        scores = rng.normal(size=(20, 2))[donors] + 0.1 * rng.normal(size=(200, 2))
        taken += int(combination._select_informative_members(scores, positive, np.array([1.0, 0.0]), donors)[1])
    assert taken <= 10


def test_a_donor_for_each_repertoire_changes_nothing(positive: NDArray[np.bool_]) -> None:
    scores = np.stack([noisy(positive, 1.0, 1), noisy(positive, 0.1, 2)], axis=1)
    alone = fit_combination(scores, positive, FOLDS)
    same = fit_combination(scores, positive, FOLDS, donors=np.arange(N)[::-1])
    np.testing.assert_allclose(alone.combination.weights, same.combination.weights)
    assert alone.strength == same.strength
