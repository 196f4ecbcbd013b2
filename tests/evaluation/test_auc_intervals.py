"""Intervals of AUCs: their equation, and their coverage in simulations of the whole protocol, with donors and folds."""

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import norm, t

from deeprc.evaluation.auc_comparison import compute_midrank_aucs, run_paired_auc_test
from deeprc.evaluation.auc_intervals import (
    compute_auc_interval,
    compute_fold_aucs_interval,
    compute_overlap_factor,
    measure_design_effect,
    measure_overlap,
)


def test_interval_limits_solve_their_equation() -> None:
    m, n, auc, z = 20, 30, 0.8, 1.959964
    for theta in compute_auc_interval(auc, m, n):
        pairs = 1 + (25 - 1) * (1 - theta) / (2 - theta) + (25 - 1) * theta / (1 + theta)
        assert abs(auc - theta) == pytest.approx(z * math.sqrt(theta * (1 - theta) * pairs / (m * n)), rel=1e-5)


def test_interval_of_a_perfect_auc_is_not_a_point() -> None:
    lower, upper = compute_auc_interval(1.0, 6, 6)
    assert upper == 1.0
    assert 0.6 < lower < 0.95
    assert compute_auc_interval(0.0, 6, 6) == pytest.approx((1 - upper, 1 - lower))


def test_interval_covers() -> None:
    """Of 95% intervals of simulated cohorts, about 95% hold the true AUC."""
    rng = np.random.default_rng(0)
    truth, hits, m, n = 0.9214, 0, 15, 20  # P(x > y) for x ~ N(2, 1), y ~ N(0, 1)
    for _ in range(500):
        positive, negative = rng.normal(2, 1, m), rng.normal(0, 1, n)
        lower, upper = compute_auc_interval(float((positive[:, None] > negative).mean()), m, n)
        hits += lower <= truth <= upper
    assert 0.92 <= hits / 500 <= 0.99


def test_interval_of_a_mean_solves_its_equation() -> None:
    m, n, auc = [6, 7, 5], [10, 9, 12], 0.83
    for theta in compute_auc_interval(auc, m, n):
        variance = 0.0
        for p, q in zip(m, n, strict=True):
            star = (p + q) / 2 - 1
            pairs = 1 + star * (1 - theta) / (2 - theta) + star * theta / (1 + theta)
            variance += theta * (1 - theta) * pairs / (p * q)
        assert abs(auc - theta) == pytest.approx(1.959964 * math.sqrt(variance) / 3, rel=1e-5)


def test_interval_of_one_fold_is_the_old_one_and_of_more_is_narrower() -> None:
    assert compute_auc_interval(0.8, [20], [30]) == compute_auc_interval(0.8, 20, 30)
    one, five = compute_auc_interval(0.8, 20, 30), compute_auc_interval(0.8, [20] * 5, [30] * 5)
    assert one[0] < five[0] < 0.8 < five[1] < one[1]


def test_interval_of_perfect_folds_is_not_a_point() -> None:
    lower, upper = compute_auc_interval(1.0, [6] * 5, [6] * 5)
    assert upper == 1.0
    assert 0.85 < lower < 0.99


def test_interval_of_a_mean_covers() -> None:
    rng = np.random.default_rng(0)
    truth, hits = 0.9214, 0  # P(x > y) for x ~ N(2, 1), y ~ N(0, 1)
    label = np.repeat([1, 0], [6, 8])
    for _ in range(500):
        aucs = compute_midrank_aucs(label, rng.normal(size=(5, 14)) + 2 * label)
        lower, upper = compute_auc_interval(float(aucs.mean()), [6] * 5, [8] * 5)
        hits += lower <= truth <= upper
    assert 0.92 <= hits / 500 <= 0.99


def test_variance_factor_is_that_of_smaller_classes() -> None:
    for theta in compute_auc_interval(0.8, 20, 30, variance_factor=2.25):
        pairs = 1 + (25 - 1) * (1 - theta) / (2 - theta) + (25 - 1) * theta / (1 + theta)
        distance = 1.959964 * math.sqrt(2.25 * theta * (1 - theta) * pairs / (20 * 30))
        assert abs(0.8 - theta) == pytest.approx(distance, rel=1e-5)


def test_overlap_of_training_sets_by_hand() -> None:
    assert [compute_overlap_factor(n) for n in (1, 2, 5)] == [1.0, 3.0, 2.25]


# -- donors with several repertoires ----------------------------------------------------------------------------------


def test_design_effect_by_hand() -> None:
    label, score = np.array([1, 1, 1, 0, 0, 0]), np.array([3.0, 2.6, 0.0, 1.0, -1.0, 2.5])
    donors = np.array([7, 7, 1, 5, 2, 5])
    # the AUC is 7/9; positives are right against 3, 3 and 1 negatives of 3, negatives against 2, 3 and 2 positives
    above, below = np.array([3, 3, 1]) / 3 - 7 / 9, np.array([2, 3, 2]) / 3 - 7 / 9
    alone = (above @ above + below @ below) / 9 * 3 / 2
    sums = np.array([above[0] + above[1], above[2]]), np.array([below[0] + below[2], below[1]])
    together = (sums[0] @ sums[0] + sums[1] @ sums[1]) / 9 * 2 / 1
    assert together / alone > 1
    freedom = 1  # two donors in each class
    widened = together / alone * (t.ppf(0.975, freedom) / norm.ppf(0.975)) ** 2
    assert measure_design_effect([label], [score], [donors]) == pytest.approx(min(widened, 2))
    assert measure_design_effect([label], [score], [np.arange(6)]) == 1.0


def test_design_effect_of_equal_repertoires_is_their_number() -> None:
    label, score = np.array([1, 1, 1, 0, 0, 0, 0]), np.array([3.0, 2.0, 0.5, 1.0, 0.0, 2.5, -1.0])
    donors = np.repeat(np.arange(7), 3)
    assert measure_design_effect([np.repeat(label, 3)], [np.repeat(score, 3)], [donors]) == 3.0


def test_design_effect_of_separated_classes_is_the_largest_donor() -> None:
    label, score = np.array([1, 1, 1, 0, 0]), np.array([3.0, 3.0, 3.0, 1.0, 1.0])
    assert measure_design_effect([label], [score], [np.array([4, 4, 4, 7, 7])]) == 3.0
    assert measure_design_effect([label], [score], [np.array([4, 4, 7, 4, 7])]) == 2.0  # of one class


def test_design_effect_of_many_donors_by_hand() -> None:
    """Thirty donors, two repertoires each: Obuchowski's variance over DeLong's, in plain loops, times t over z."""
    rng = np.random.default_rng(6)
    donors = np.repeat(np.arange(30), 2)
    label = (donors < 14).astype(np.int64)
    score = label + rng.normal(size=30)[donors] + 1.5 * rng.normal(size=60)
    right = [(a > score[label == 0]) if y else (a < score[label == 1]) for a, y in zip(score, label, strict=True)]
    share = np.array([each.mean() for each in right])
    auc = share[label == 1].mean()
    alone = together = 0.0
    for y, n_donors in ((1, 14), (0, 16)):
        own = (share - auc)[label == y] / (2 * n_donors)
        alone += (own**2).sum() * 2 * n_donors / (2 * n_donors - 1)
        together += (own.reshape(n_donors, 2).sum(axis=1) ** 2).sum() * n_donors / (n_donors - 1)
    expected = together / alone * (t.ppf(0.975, 13) / norm.ppf(0.975)) ** 2
    assert 1 < expected < 2
    assert measure_design_effect([label], [score], [donors]) == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_positive", "n_each", "n_negative"),
    [
        (1, 20, 40),
        pytest.param(2, 10, 20, marks=pytest.mark.long),
        pytest.param(3, 10, 30, marks=pytest.mark.long),
    ],
)
def test_interval_covers_with_few_donors_in_a_class(n_positive: int, n_each: int, n_negative: int) -> None:
    rng = np.random.default_rng(7)
    donors = np.concatenate([np.repeat(np.arange(n_positive), n_each), n_positive + np.arange(n_negative)])
    label = (donors < n_positive).astype(np.int64)
    hits, rejected = 0, 0
    for _ in range(300):
        first, second = (rng.normal(size=donors.max() + 1)[donors] + 0.5 * rng.normal(size=len(donors)) for _ in "ab")
        found = compute_fold_aucs_interval([label], [first], [donors])
        hits += found.low <= 0.5 <= found.high
        rejected += run_paired_auc_test([label], [first], [second], donors=[donors]).p_value < 0.05
    assert hits / 300 >= 0.92
    assert rejected / 300 <= 0.08


def test_the_names_of_donors_and_the_order_of_repertoires_do_not_matter() -> None:
    rng = np.random.default_rng(3)
    label, donors = np.repeat([1, 0], 20), np.repeat(np.arange(10), 4)
    score = rng.normal(size=40) + label
    found = compute_fold_aucs_interval([label], [score], [donors])
    order, names = rng.permutation(40), rng.permutation(100)
    again = compute_fold_aucs_interval([label[order]], [score[order]], [names[donors[order]]])
    assert (again.low, again.high) == pytest.approx((found.low, found.high))


def test_donors_widen_the_interval() -> None:
    rng = np.random.default_rng(4)
    donors = np.repeat(np.arange(20), 5)
    label = (donors % 2).astype(np.int64)
    score = rng.normal(size=20)[donors] + 0.3 * rng.normal(size=100) + label
    alone, together = (
        compute_fold_aucs_interval([label], [score]),
        compute_fold_aucs_interval([label], [score], [donors]),
    )
    assert together.aucs == pytest.approx(alone.aucs)
    assert together.low < alone.low
    assert together.high > alone.high


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_donors", "n_each", "correlation", "n_folds"),
    [(40, 5, 0.5, 1), pytest.param(40, 5, 0.8, 5, marks=pytest.mark.long), (20, 10, 0.7, 5)],
)
def test_interval_covers_with_donors(n_donors: int, n_each: int, correlation: float, n_folds: int) -> None:
    rng = np.random.default_rng(1)
    donors = np.repeat(np.arange(n_donors), n_each)
    label, fold_of = donors % 2, donors // 2 % n_folds
    truth, hits, without = norm.cdf(1 / math.sqrt(2)), 0, 0
    for _ in range(300):
        noise = correlation**0.5 * rng.normal(size=n_donors)[donors]
        score = label + noise + (1 - correlation) ** 0.5 * rng.normal(size=len(donors))
        sides = [fold_of == fold for fold in range(n_folds)]
        labels, scores, codes = ([each[side] for side in sides] for each in (label, score, donors))
        auc = float(np.mean([compute_midrank_aucs(y, s[None])[0] for y, s in zip(labels, scores, strict=True)]))
        sizes = [y.sum() for y in labels], [(1 - y).sum() for y in labels]
        low, high = compute_auc_interval(auc, *sizes, variance_factor=measure_design_effect(labels, scores, codes))
        hits += low <= truth <= high
        low, high = compute_auc_interval(auc, *sizes)
        without += low <= truth <= high
    assert 0.91 <= hits / 300 <= 0.985
    assert without / 300 < 0.85


# -- cross-validation -------------------------------------------------------------------------------------------------


def cross_validated(
    rng: np.random.Generator, n: int, n_features: int, distance: float, penalty: float
) -> list[NDArray]:
    """Return labels and scores of five test folds by ridge regression, and the true AUC of each trained model."""
    y = np.arange(n) % 2
    mean = np.full(n_features, distance / math.sqrt(n_features))
    X = rng.normal(size=(n, n_features)) + np.outer(y - 0.5, mean)
    fold_of = np.arange(n) // 2 % 5
    labels, scores, truths = [], [], []
    for fold in range(5):
        train, test = fold_of != fold, fold_of == fold
        centred, target = X[train] - X[train].mean(axis=0), y[train] - y[train].mean()
        kernel = centred @ centred.T + penalty * np.eye(len(centred))
        weights = centred.T @ np.linalg.solve(kernel, target)
        labels.append(y[test])
        scores.append(X[test] @ weights)
        truths.append(norm.cdf(weights @ mean / np.linalg.norm(weights) / math.sqrt(2)))
    return labels, scores, truths


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n", "n_features", "distance", "penalty"),
    [
        (60, 200, 2.5, 10.0),
        pytest.param(100, 50, 3.0, 1.0, marks=pytest.mark.long),
        pytest.param(100, 400, 0.0, 10.0, marks=pytest.mark.long),
    ],
)
def test_interval_covers_in_cross_validation(n: int, n_features: int, distance: float, penalty: float) -> None:
    """Of the mean AUC that the method has when it learns from other repertoires; without the overlap it does not."""
    rng = np.random.default_rng(2)
    runs = [cross_validated(rng, n, n_features, distance, penalty) for _ in range(300)]
    truth = np.mean([truths for _, _, truths in runs])
    hits = without = 0
    for labels, scores, _ in runs:
        found = compute_fold_aucs_interval(labels, scores)
        hits += found.low <= truth <= found.high
        sizes = [y.sum() for y in labels], [(1 - y).sum() for y in labels]
        low, high = compute_auc_interval(float(found.aucs.mean()), *sizes)
        without += low <= truth <= high
    assert 0.93 <= hits / 300 <= 0.995
    assert without / 300 < 0.92


# -- repeats ----------------------------------------------------------------------------------------------------------


def test_equal_repeats_say_nothing_new() -> None:
    rng = np.random.default_rng(8)
    label, donors = np.arange(60) % 2, np.repeat(np.arange(30), 2)
    scores = rng.normal(size=60) + label
    folds = [np.arange(60) // 4 % 5 == fold for fold in range(5)]
    labels, split, owners = ([each[rows] for rows in folds] for each in (label, scores, donors))
    once = compute_fold_aucs_interval(labels, split, owners)
    thrice = compute_fold_aucs_interval(labels * 3, split * 3, owners * 3, repeats=np.repeat([0, 1, 2], 5).tolist())
    assert thrice.aucs.mean() == pytest.approx(once.aucs.mean())
    assert (thrice.low, thrice.high) == pytest.approx((once.low, once.high), abs=0.005)
    assert measure_overlap(labels, split, owners, [0] * 5) == 2.25
    with pytest.raises(ValueError, match=r"^expected the donors"):
        compute_fold_aucs_interval(labels * 2, split * 2, repeats=[0] * 5 + [1] * 5)


def test_overlap_of_repeats_by_hand() -> None:
    """Two repeats of two folds; the variance of the mean, and of single repeats, in plain loops."""
    rng = np.random.default_rng(9)
    label, donors = np.arange(24) % 2, np.arange(24)
    scores = [rng.normal(size=24) + label for _ in range(2)]
    folds = [(repeat, np.arange(24) // 2 % 2 == fold) for repeat in (0, 1) for fold in (0, 1)]
    labels, split = [label[rows] for _, rows in folds], [scores[repeat][rows] for repeat, rows in folds]
    aucs = [(s[y == 1][:, None] > s[y == 0]).mean() for y, s in zip(labels, split, strict=True)]
    added = np.zeros((2, 24))
    for repeat, rows in folds:
        for i in np.flatnonzero(rows):
            others = scores[repeat][rows & (label != label[i])]
            share = np.mean(scores[repeat][i] > others if label[i] else scores[repeat][i] < others)
            added[repeat, i] = (share - np.mean(aucs)) / 6 / 2  # of 6 in a class, of 2 folds

    def variance(each: np.ndarray) -> float:
        return sum(float((each[label == y] ** 2).sum()) * 12 / 11 for y in (0, 1))

    whole, single = variance(added.mean(axis=0)), np.mean([variance(each) for each in added])
    common = 2 * whole - single
    assert 0 < common < whole
    expected = (3 * common + (single - common) / 2) / whole
    owners = [donors[rows] for _, rows in folds]
    assert measure_overlap(labels, split, owners, [0, 0, 1, 1]) == pytest.approx(expected)


def test_trainings_that_fail_widen_the_interval() -> None:
    """Folds that differ by more than class sizes explain add their excess, one time for each training."""
    rng = np.random.default_rng(11)
    label, donors = np.arange(40) % 2, [np.arange(40) + 40 * (fold % 5) for fold in range(10)]
    scores = [rng.normal(size=40) + 3 * label * (fold not in (2, 9)) for fold in range(10)]
    repeats = [0] * 5 + [1] * 5
    labels = [label] * 10
    found = compute_fold_aucs_interval(labels, scores, donors, repeats=repeats)
    mean, sizes = float(found.aucs.mean()), ([20] * 10, [20] * 10)
    star = 19
    pairs = 1 + star * (1 - mean) / (2 - mean) + star * mean / (1 + mean)
    variance = mean * (1 - mean) * pairs / 400 / 10
    excess = (np.var(found.aucs[:5], ddof=1) + np.var(found.aucs[5:], ddof=1)) / 2 / 10 - variance
    assert excess > variance
    factor = measure_overlap(labels, scores, donors, repeats) * measure_design_effect(labels, scores, donors)
    expected = compute_auc_interval(mean, *sizes, variance_factor=factor + excess / variance)
    assert (found.low, found.high) == pytest.approx(expected)


def repeated(
    rng: np.random.Generator, n_donors: int, n_each: int, n_repeats: int, n_members: int, n_failing: float
) -> tuple[list[NDArray], list[NDArray], list[NDArray], float]:
    """Return labels, scores and donors of the folds of all repeats, and the mean true AUC of the trained ensembles.

    A member is a ridge regression on a random tenth of 200 features, which is its seed, without its validation fold;
    some fail, that is, have random weights.
    """
    n_features, y, donor = 200, np.arange(n_donors) % 2, np.repeat(np.arange(n_donors), n_each)
    mean, label = np.full(n_features, 2.5 / math.sqrt(n_features)), np.repeat(y, n_each)
    own = rng.normal(size=(n_donors * n_each, n_features)) if n_each > 1 else 0.0
    X = (rng.normal(size=(n_donors, n_features))[donor] + own) / math.sqrt(1 + (n_each > 1))
    X = X + np.outer(label - 0.5, mean)
    labels, scores, donors, truths = [], [], [], []
    for _ in range(n_repeats):
        fold_of = np.empty(n_donors, np.int64)
        for value in (0, 1):
            fold_of[rng.permutation(np.flatnonzero(y == value))] = np.arange(n_donors // 2) % 5
        fold_of = fold_of[donor]
        for fold in range(5):
            weights = np.zeros(n_features)
            for member in range(1, n_members + 1):
                if rng.random() < n_failing:
                    weights += 0.05 * rng.normal(size=n_features)
                    continue
                train, read = (fold_of != fold) & (fold_of != (fold + member) % 5), rng.random(n_features) < 0.1
                centred = X[train][:, read] - X[train][:, read].mean(axis=0)
                kernel = centred @ centred.T + 10 * np.eye(len(centred))
                weights[read] += centred.T @ np.linalg.solve(kernel, label[train] - label[train].mean())
            test = fold_of == fold
            labels.append(label[test])
            scores.append(X[test] @ weights)
            donors.append(donor[test])
            truths.append(norm.cdf(weights @ mean / np.linalg.norm(weights) / math.sqrt(2)))
    return labels, scores, donors, float(np.mean(truths))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("n_donors", "n_each", "n_repeats", "n_members", "n_failing"),
    [
        (60, 1, 2, 1, 0.2),
        pytest.param(60, 1, 3, 1, 0.0, marks=pytest.mark.long),
        pytest.param(60, 1, 3, 4, 0.0, marks=pytest.mark.long),
        pytest.param(30, 3, 3, 2, 0.0, marks=pytest.mark.long),
    ],
)
def test_interval_covers_over_repeats_and_seeds(
    n_donors: int, n_each: int, n_repeats: int, n_members: int, n_failing: float
) -> None:
    rng = np.random.default_rng(10)
    runs = [repeated(rng, n_donors, n_each, n_repeats, n_members, n_failing) for _ in range(200)]
    truth, repeats = np.mean([run[-1] for run in runs]), np.repeat(np.arange(n_repeats), 5).tolist()
    found = [compute_fold_aucs_interval(*run[:3], repeats=repeats) for run in runs]
    assert 0.93 <= np.mean([each.low <= truth <= each.high for each in found]) <= 0.985


def test_a_repeat_whose_class_has_one_donor_takes_the_overlap_of_one_repeat() -> None:
    """The variance of such a repeat is not defined, so nothing is known about what differs between repeats."""
    labels = [np.array([1, 1, 0, 0])] * 2
    scores = [np.array([0.9, 0.4, 0.5, 0.1]), np.array([0.3, 0.2, 0.6, 0.25])]
    donors = [np.array([0, 0, 2, 2]), np.array([1, 1, 3, 3])]
    assert measure_overlap(labels, scores, donors, [0, 1]) == compute_overlap_factor(1)
    found = compute_fold_aucs_interval(labels, scores, donors, repeats=[0, 1])
    assert found.aucs.tolist() == [0.75, 0.25]
    assert found.low < 0.5 < found.high
