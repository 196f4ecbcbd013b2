"""Which method is best: AUCs, intervals and tests against formulas written out, examples by hand, and simulation."""

import itertools
import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kstest
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, roc_auc_score

from deeprc.errors import InputError
from deeprc.evaluation.auc_comparison import (
    adjust_by_holm,
    compute_delong_covariance,
    compute_midrank_aucs,
    run_paired_auc_test,
)
from deeprc.evaluation.auc_intervals import compute_auc_interval
from deeprc.evaluation.comparison import MethodInfo, compare, compute_fold_metrics
from deeprc.evaluation.comparison_cautions import find_comparison_cautions
from deeprc.evaluation.significance import format_p_value

A, B = MethodInfo("a", "Method A"), MethodInfo("b", "Method B")
CONTROL, TRUTH = MethodInfo("v", "V gene usage", "control"), MethodInfo("k", "Known motif", "truth")


def verdict(comparison: pd.DataFrame, methods: Sequence[MethodInfo]) -> list[str]:
    return [each.text for each in find_comparison_cautions(comparison, methods)]


def frame(method: str, fold: int, label: list[int], score: list[float], probability: list[float] | None = None):
    """Return predictions of one method on one fold; repertoires are named by fold and place."""
    return pd.DataFrame(
        {
            "method": method,
            "fold": fold,
            "repertoire_id": [f"{fold}-{i}" for i in range(len(label))],
            "label": label,
            "score": np.asarray(score, float),
            "probability": 1 / (1 + np.exp(-np.asarray(score, float))) if probability is None else probability,
        }
    )


def random_predictions(
    strengths: dict[str, float], n: int = 20, folds: int = 5, seed: int = 0, digits: int = 1
) -> pd.DataFrame:
    """Return predictions of methods whose scores share a part; rounded, so that there are ties."""
    rng = np.random.default_rng(seed)
    parts = []
    for fold in range(folds):
        label = rng.permutation(np.arange(n) % 2)
        common = rng.normal(size=n)
        for name, strength in strengths.items():
            score = (0.7 * common + 0.7 * rng.normal(size=n) + strength * (label - 0.5)).round(digits)
            parts.append(frame(name, fold, list(label), list(score)))
    return pd.concat(parts, ignore_index=True)


def row_of(comparison: pd.DataFrame, method: str) -> pd.Series:
    return comparison.set_index("method").loc[method]


# -- metrics of the folds ---------------------------------------------------------------------------------------------


def test_fold_metrics_by_hand_and_by_scikit_learn() -> None:
    label, probability = [1, 0, 1, 0, 1], [0.9, 0.6, 0.7, 0.2, 0.4]
    score = [3.0, 2.0, 2.0, -1.0, 0.5]  # ranks otherwise than the probability: AUC is of the score
    found = compute_fold_metrics(frame("a", 2, label, score, probability)).set_index("metric")
    assert set(found["method"]) == {"a"}
    assert set(found["fold"]) == {2}
    value = found["value"]
    assert value["auc"] == pytest.approx((2 + 1.5 + 1) / 6)
    assert value["auc"] == pytest.approx(roc_auc_score(label, score))
    assert value["average_precision"] == pytest.approx(average_precision_score(label, score))
    assert value["f1"] == pytest.approx(2 * 2 / (3 + 3))
    assert value["balanced_accuracy"] == pytest.approx((2 / 3 + 1 / 2) / 2)
    assert value["accuracy"] == pytest.approx(3 / 5)
    assert value["log_loss"] == pytest.approx(-np.log([0.9, 0.4, 0.7, 0.8, 0.4]).mean())
    assert value["log_loss"] == pytest.approx(log_loss(label, probability))
    assert value["brier"] == pytest.approx(brier_score_loss(label, probability))
    assert len(value) == 7


def test_metrics_of_one_class_are_undefined() -> None:
    value = compute_fold_metrics(frame("a", 0, [0, 0], [1.0, 2.0], [0.4, 0.4])).set_index("metric")["value"]
    assert value[["auc", "average_precision", "balanced_accuracy", "f1"]].isna().all()
    assert value["accuracy"] == 1.0
    assert value["brier"] == pytest.approx(0.16)
    value = compute_fold_metrics(frame("a", 0, [1, 1], [1.0, 2.0], [0.4, 0.6])).set_index("metric")["value"]
    assert value["f1"] == pytest.approx(2 / 3)
    assert value[["auc", "average_precision", "balanced_accuracy"]].isna().all()


def test_infinite_scores_rank() -> None:
    value = compute_fold_metrics(frame("a", 0, [1, 0, 0], [math.inf, -math.inf, 0.0], [1.0, 0.0, 0.5])).set_index(
        "metric"
    )
    assert value.loc["auc", "value"] == 1.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="score"), "missing: score"),
        (lambda t: t.assign(label=2), "method 'a', repertoire '0-0': expected a label of 0 or 1"),
        (lambda t: t.assign(score=np.nan), "expected a score, found none"),
        (lambda t: t.assign(probability=1.5), "a probability from 0 to 1"),
        (lambda t: pd.concat([t, t]), "has two predictions"),
        (lambda t: t.assign(method="x"), "not in the list: x"),
        (
            lambda t: pd.concat([t, t.assign(method="b", label=1 - t["label"])]),
            "two methods give this repertoire different labels",
        ),
        (lambda t: pd.concat([t, t.assign(method="b", fold=1)]), "two methods give this repertoire different folds"),
        (
            lambda t: pd.concat([t, t.assign(method="b")[1:]]),
            "some repertoires of fold 0 that another method predicts, such as '0-0'$",
        ),
        (lambda t: pd.concat([t, t.assign(method="b")[1:]]), "method 'b' has no prediction for some repertoires"),
    ],
)
def test_compare_refuses_inconsistent_predictions(change, message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare(change(frame("a", 0, [0, 1, 0, 1], [1.0, 2.0, 3.0, 4.0])), [A, B])


# -- DeLong's covariance and the paired test --------------------------------------------------------------------------


def naive_delong(label: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return AUCs and covariance by the definition: loops over pairs, no ranks."""
    n_methods = len(scores)
    positive, negative = np.flatnonzero(label == 1), np.flatnonzero(label == 0)
    v10, v01 = np.zeros((n_methods, len(positive))), np.zeros((n_methods, len(negative)))
    for k in range(n_methods):
        for (i, p), (j, q) in itertools.product(enumerate(positive), enumerate(negative)):
            psi = 1.0 if scores[k, p] > scores[k, q] else 0.5 if scores[k, p] == scores[k, q] else 0.0
            v10[k, i] += psi / len(negative)
            v01[k, j] += psi / len(positive)
    auc = v10.mean(axis=1)
    covariance = np.zeros((n_methods, n_methods))
    for k, h in itertools.product(range(n_methods), repeat=2):
        for values in (v10, v01):
            n = values.shape[1]
            covariance[k, h] += ((values[k] - auc[k]) * (values[h] - auc[h])).sum() / (n - 1) / n
    return auc, covariance


@pytest.mark.parametrize(("m", "n", "digits"), [(2, 2, 5), (7, 12, 5), (15, 9, 0), (4, 20, 1)])
def test_delong_is_the_u_statistics_covariance(m: int, n: int, digits: int) -> None:
    rng = np.random.default_rng(m)
    label = rng.permutation(np.repeat([1, 0], [m, n]))
    scores = (rng.normal(size=(3, m + n)) + label).round(digits)
    auc, covariance = compute_delong_covariance(label, scores)
    expected_auc, expected = naive_delong(label, scores)
    np.testing.assert_allclose(auc, expected_auc, rtol=1e-12)
    np.testing.assert_allclose(covariance, expected, rtol=1e-10, atol=1e-15)
    np.testing.assert_allclose(auc, [roc_auc_score(label, score) for score in scores], rtol=1e-12)
    np.testing.assert_allclose(compute_midrank_aucs(label, scores), auc, rtol=1e-12)


def test_delong_by_hand() -> None:
    """Positives 1, 3 and negatives 0, 2: of the pairs, (1, 0), (3, 0), (3, 2) are in order."""
    auc, covariance = compute_delong_covariance(np.array([1, 1, 0, 0]), np.array([[1.0, 3.0, 0.0, 2.0]]))
    assert auc == pytest.approx([0.75])
    # placements: of the positives 1/2, 1; of the negatives 1, 1/2; sample variance of each 1/8; over 2 of each
    assert covariance[0, 0] == pytest.approx(1 / 8 / 2 + 1 / 8 / 2)


def test_one_repertoire_of_a_class_has_no_variance() -> None:
    auc, covariance = compute_delong_covariance(np.array([1, 0, 0]), np.array([[2.0, 1.0, 3.0]]))
    assert auc == pytest.approx([0.5])
    assert np.isnan(covariance).all()


def test_the_paired_test_equals_the_formula() -> None:
    predictions = random_predictions({"a": 1.5, "b": 0.8}, folds=3)
    differences, variances = [], []
    for _, part in predictions.groupby("fold"):
        wide = part.pivot_table(index="repertoire_id", columns="method", values="score")
        label = part[part["method"] == "a"].set_index("repertoire_id")["label"].loc[wide.index].to_numpy()
        auc, c = naive_delong(label, wide[["a", "b"]].to_numpy().T)
        differences.append(auc[1] - auc[0])
        variances.append(c[0, 0] + c[1, 1] - 2 * c[0, 1])
    found = row_of(compare(predictions, [A, B]), "b")
    z = np.mean(differences) / (math.sqrt(sum(variances)) / 3)
    assert found["difference"] == pytest.approx(np.mean(differences))
    assert found["p_value"] == pytest.approx(math.erfc(abs(z) / math.sqrt(2)))
    assert found["test"] == "DeLong"


@pytest.mark.slow
def test_p_values_under_the_null_are_about_uniform() -> None:
    rng = np.random.default_rng(0)
    label = np.arange(40) % 2
    p_values = []
    for _ in range(600):
        common = rng.normal(size=(3, 40))
        first, second = common + rng.normal(size=(2, 3, 40)) + label
        p_values.append(run_paired_auc_test([label] * 3, list(first), list(second)).p_value)
    assert 0.02 <= np.mean(np.array(p_values) < 0.05) <= 0.08
    assert kstest(p_values, "uniform").pvalue > 0.001


def test_a_real_difference_is_found() -> None:
    found = row_of(compare(random_predictions({"a": 2.5, "b": 0.3}, n=60), [A, B]), "b")
    assert found["difference"] < -0.2
    assert found["p_value"] < 1e-4


def test_the_order_of_the_two_does_not_matter() -> None:
    rng = np.random.default_rng(1)
    labels = [np.arange(12) % 2] * 2
    first, second = rng.normal(size=(2, 2, 12))
    there, back = (
        run_paired_auc_test(labels, list(first), list(second)),
        run_paired_auc_test(labels, list(second), list(first)),
    )
    assert there.difference == -back.difference
    assert there.p_value == pytest.approx(back.p_value)
    perfect, worst = [label.astype(float) for label in labels], [-label.astype(float) for label in labels]
    there, back = run_paired_auc_test(labels, perfect, worst), run_paired_auc_test(labels, worst, perfect)
    assert there.test == "permutation"
    assert there.p_value == back.p_value


def test_increasing_functions_of_the_scores_change_nothing() -> None:
    predictions = random_predictions({"a": 1.0, "b": 0.5, "v": 0.2})
    other = predictions.assign(score=np.exp(predictions["score"]) + 100 * predictions["fold"])
    methods = [A, B, CONTROL]
    pd.testing.assert_frame_equal(compare(predictions, methods), compare(other, methods))


def test_the_order_of_the_rows_changes_nothing() -> None:
    predictions = pd.concat([random_predictions({"a": 1.0}), perfect_and_wrong()])
    shuffled = predictions.sample(frac=1, random_state=0)
    pd.testing.assert_frame_equal(compare(predictions, [A, B, TRUTH]), compare(shuffled, [A, B, TRUTH]))


def perfect_and_wrong() -> pd.DataFrame:
    """Return one method that separates every fold of `random_predictions` and one that orders it the wrong way."""
    base = random_predictions({"a": 0.0})
    parts = [base.assign(method=name, score=sign * base["label"]) for name, sign in (("b", 1.0), ("k", -1.0))]
    return pd.concat(parts)


def test_without_variance_permutations_decide() -> None:
    """With 3 of each class, of 64 exchanges only those of all or none give a difference of 1."""
    label = np.array([1, 1, 1, 0, 0, 0])
    found = run_paired_auc_test([label], [label.astype(float)], [-label.astype(float)])
    assert found.difference == 1.0
    assert found.test == "permutation"
    assert found.p_value == pytest.approx(2 / 64, abs=0.015)
    assert found == run_paired_auc_test([label], [label.astype(float)], [-label.astype(float)])
    assert found.p_value != run_paired_auc_test([label], [label.astype(float)], [-label.astype(float)], seed=1).p_value


def test_one_positive_in_a_fold_is_left_to_permutations() -> None:
    rng = np.random.default_rng(0)
    labels = [np.array([1, 0, 0, 0, 0]), np.array([1, 1, 0, 0, 0])]
    found = run_paired_auc_test(labels, list(labels), [rng.normal(size=5), np.array([0.0, 1, 2, 3, 4])])
    assert found.test == "permutation"
    assert 0 < found.p_value <= 1


def test_permutations_in_pieces_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    label = np.arange(10) % 2
    arguments = [label] * 2, [label.astype(float)] * 2, [np.zeros(10)] * 2
    whole = run_paired_auc_test(*arguments)
    monkeypatch.setattr("deeprc.evaluation.auc_comparison._CHUNK", 777)
    assert run_paired_auc_test(*arguments) == whole
    assert whole.test == "permutation"


@pytest.mark.slow
def test_permutation_p_values_are_uniform_without_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """One positive per fold, so that DeLong's variance does not exist."""
    monkeypatch.setattr("deeprc.evaluation.auc_comparison._PERMUTATIONS", 199)
    rng = np.random.default_rng(3)
    label = np.array([1] + [0] * 9)
    p_values = []
    for seed in range(300):
        first, second = rng.normal(size=(2, 4, 10)) + label
        p_values.append(run_paired_auc_test([label] * 4, list(first), list(second), seed=seed).p_value)
    assert 0.02 <= np.mean(np.array(p_values) < 0.05) <= 0.1
    assert 0.4 < np.mean(p_values) < 0.6


def test_identical_scores_have_no_difference() -> None:
    predictions = random_predictions({"a": 1.0})
    both = pd.concat([predictions, predictions.assign(method="b")])
    found = row_of(compare(both, [A, B]), "b")
    assert (found["difference"], found["p_value"], found["p_holm"]) == (0.0, 1.0, 1.0)
    label = predictions["label"]
    perfect = pd.concat([predictions.assign(method=name, score=label) for name in "ab"])
    assert row_of(compare(perfect, [A, B]), "b")["p_value"] == 1.0


def test_holm_by_hand() -> None:
    np.testing.assert_allclose(adjust_by_holm(np.array([0.04, 0.01, 0.03, 0.6])), [0.09, 0.04, 0.09, 0.6])
    np.testing.assert_allclose(adjust_by_holm(np.array([0.9, 0.8])), [1.0, 1.0])
    assert len(adjust_by_holm(np.array([]))) == 0


# -- the interval of a mean over folds --------------------------------------------------------------------------------


# -- the table of all methods -----------------------------------------------------------------------------------------


def test_compare_summarises_the_folds() -> None:
    predictions = random_predictions({"a": 1.5, "b": 0.5}, folds=4)
    comparison = compare(predictions, [B, A])
    assert list(comparison["method"]) == ["b", "a"]
    aucs = [roc_auc_score(p["label"], p["score"]) for _, p in predictions[predictions["method"] == "a"].groupby("fold")]
    found = row_of(comparison, "a")
    assert found["auc_mean"] == pytest.approx(np.mean(aucs))
    assert found["auc_sd"] == pytest.approx(np.std(aucs, ddof=1))
    assert (found["ci_low"], found["ci_high"]) == pytest.approx(
        compute_auc_interval(np.mean(aucs), [10] * 4, [10] * 4, variance_factor=1 + 4 / 3)
    )
    assert (found["n_folds"], found["n_positive"], found["n_negative"]) == (4, 40, 40)
    assert found["best"]
    assert found["difference"] == 0.0
    assert np.isnan(found["p_value"])
    assert row_of(comparison, "b")["p_holm"] == row_of(comparison, "b")["p_value"]


def donor_predictions(rng: np.random.Generator, n_donors: int = 20, n_each: int = 5) -> pd.DataFrame:
    """Return predictions of two methods that are equally good; those of one donor's repertoires are alike."""
    donor = np.repeat(np.arange(n_donors), n_each)
    parts = []
    for method in "ab":
        score = donor % 2 + rng.normal(size=n_donors)[donor] + 0.3 * rng.normal(size=len(donor))
        parts.append(frame(method, 0, list(donor % 2), list(score)))
    return pd.concat(parts, ignore_index=True)


FIVE_EACH = {f"0-{i}": i // 5 for i in range(100)}
"""Donors of 100 repertoires, five of each."""


def test_donors_widen_intervals() -> None:
    rng = np.random.default_rng(0)
    for _ in range(10):
        predictions = donor_predictions(rng)
        with_donors, without = compare(predictions, [A, B], donors=FIVE_EACH), compare(predictions, [A, B])
        assert with_donors["auc_mean"].tolist() == without["auc_mean"].tolist()
        assert (with_donors["ci_low"] < without["ci_low"]).all()
        assert (with_donors["ci_high"] > without["ci_high"]).all()
    alone = {f"0-{i}": i for i in range(100)}
    pd.testing.assert_frame_equal(compare(predictions, [A, B], donors=alone), compare(predictions, [A, B]))


@pytest.mark.long
def test_equally_good_methods_seldom_differ_if_donors_are_known() -> None:
    """The p-value is below 0.05 in about 5% of cohorts; without donors, in more than 25%."""
    rng = np.random.default_rng(0)
    cohorts = [donor_predictions(rng) for _ in range(200)]
    known = [compare(each, [A, B], donors=FIVE_EACH)["p_value"].min() for each in cohorts]
    unknown = [compare(each, [A, B])["p_value"].min() for each in cohorts]
    assert 0.01 <= np.mean(np.array(known) < 0.05) <= 0.1
    assert np.mean(np.array(unknown) < 0.05) > 0.25


def test_donors_are_exchanged_whole() -> None:
    """Both methods separate the classes, or one none: DeLong's variance is 0, and donors decide the p-value."""
    label = np.repeat([1, 0], 8)
    perfect, none = label.astype(float), np.zeros(16)
    found = [
        run_paired_auc_test([label], [perfect], [none], donors=None if size == 1 else [np.arange(16) // size])
        for size in (1, 4)
    ]
    assert [each.test for each in found] == ["permutation"] * 2
    assert found[1].p_value == pytest.approx(2 / 16, abs=0.03)  # of 4 donors, all are exchanged, or none is
    assert found[0].p_value < 0.002


def test_controls_and_the_truth_are_never_the_best_method() -> None:
    predictions = random_predictions({"a": 0.5, "b": 0.3, "v": 3.0, "k": 4.0})
    comparison = compare(predictions, [TRUTH, CONTROL, B, A])
    assert comparison.set_index("method")["best"].to_dict() == {"k": False, "v": False, "b": False, "a": True}
    assert row_of(comparison, "k")["difference"] > 0.2
    assert np.isnan(row_of(comparison, "k")["p_holm"])
    others = comparison.set_index("method").loc[["v", "b"]]
    np.testing.assert_allclose(others["p_holm"], adjust_by_holm(others["p_value"].to_numpy()))


def test_a_method_with_few_folds_is_compared_on_those() -> None:
    predictions = random_predictions({"a": 1.0, "b": 5.0}, folds=5)
    predictions = predictions[(predictions["method"] == "a") | (predictions["fold"] < 2)]
    comparison = compare(predictions, [A, B])
    assert list(comparison["complete"]) == [True, False]
    assert list(comparison["n_folds"]) == [5, 2]
    assert list(comparison["best"]) == [True, False]  # though b's AUC on its two folds is higher
    two = predictions[(predictions["fold"] < 2) & (predictions["method"] == "a")]
    own = [roc_auc_score(part["label"], part["score"]) for _, part in two.groupby("fold")]
    found = row_of(comparison, "b")
    assert found["difference"] == pytest.approx(found["auc_mean"] - np.mean(own))
    assert list(compare(predictions, [A, B], n_folds=6)["complete"]) == [False, False]


def test_methods_without_common_folds_are_not_compared() -> None:
    predictions = random_predictions({"a": 1.0, "b": 1.0}, folds=3)
    predictions = predictions[(predictions["method"] == "a") == (predictions["fold"] < 2)]
    found = row_of(compare(predictions, [A, B]), "b")
    assert found[["difference", "p_value", "p_holm"]].isna().all()
    assert found["n_folds"] == 1
    assert np.isnan(found["auc_sd"])


def test_a_method_without_predictions_has_a_row() -> None:
    comparison = compare(random_predictions({"a": 1.0}), [B, A])
    found = row_of(comparison, "b")
    assert np.isnan(found["auc_mean"])
    assert (found["n_folds"], found["complete"], found["best"]) == (0, False, False)
    assert not compare(random_predictions({"a": 1.0}).iloc[:0], [A, B])["complete"].any()
    assert compare(random_predictions({"a": 1.0}).iloc[:0], []).empty


def test_a_fold_of_one_class_does_not_count() -> None:
    predictions = pd.concat([random_predictions({"a": 1.0}, folds=2), frame("a", 2, [1, 1], [0.0, 1.0])])
    found = row_of(compare(predictions, [A]), "a")
    assert (found["n_folds"], found["complete"], found["n_positive"]) == (2, True, 20)


# -- what the controls say --------------------------------------------------------------------------------------------


def test_verdict_when_a_control_does_as_well() -> None:
    predictions = random_predictions({"a": 2.0, "v": 2.0}, seed=1)
    comparison = compare(predictions, [A, CONTROL])
    (line,) = verdict(comparison, [A, CONTROL])
    own, best = row_of(comparison, "v"), row_of(comparison, "a")
    assert own["p_value"] > 0.05
    assert line.startswith("V gene usage, a control method that sees no amino-acid sequence, ")
    assert f"AUC {own['auc_mean']:.3f} against {best['auc_mean']:.3f}, p = {own['p_value']:.2f})" in line
    assert line.endswith("does not show that receptor sequences add information beyond V gene usage.")


@pytest.mark.parametrize(
    ("a", "v", "words"),
    [
        (1.0, 0.8, "is not significantly worse than"),
        (0.9, 1.1, "has a higher AUC (not significantly) than"),
        (0.5, 5.0, "is significantly better than"),
    ],
)
def test_verdict_says_how(a: float, v: float, words: str) -> None:
    comparison = compare(random_predictions({"a": a, "v": v}), [A, CONTROL])
    lines = [line for line in verdict(comparison, [A, CONTROL]) if line.startswith("V gene")]
    assert f" {words} the best of the other methods, Method A (" in lines[0]


def test_verdict_when_no_control_reaches_the_method() -> None:
    size = MethodInfo("s", "Repertoire size", "control")
    comparison = compare(random_predictions({"a": 4.0, "v": 0.0, "s": 0.1}), [A, CONTROL, size])
    (line,) = verdict(comparison, [A, CONTROL, size])
    assert line.startswith(
        "Every control method is significantly worse than the best method, Method A (AUC "
        f"{comparison['auc_mean'][0]:.3f}): V gene"
    )
    assert f"difference {row_of(comparison, 's')['difference']:.3f}, p < 0.001" in line
    assert "Repertoire size (AUC" in line
    (of_few,) = find_comparison_cautions(comparison, [A, CONTROL, size], few_donors=True)
    assert of_few.text.startswith(f"{line} The repertoires come from few donors, so this may be chance")


def test_verdict_without_controls_and_without_methods() -> None:
    (line,) = verdict(compare(random_predictions({"a": 4.0}), [A]), [A])
    assert line.startswith("No control method was run")
    (line,) = verdict(compare(random_predictions({"v": 4.0}), [CONTROL]), [CONTROL])
    assert line.startswith("Only control methods and known motifs were run")


def test_verdict_on_chance_and_on_few_repertoires() -> None:
    lines = verdict(compare(random_predictions({"a": 0.0, "v": 0.0}), [A, CONTROL]), [A, CONTROL])
    assert len(lines) == 1  # nothing is said of a control that is no better than chance either
    assert lines[0].startswith("No method is significantly better than chance. The best one, Method A, has AUC 0.")
    lines = verdict(compare(random_predictions({"a": 4.0}, n=6, folds=3), [A]), [A])
    assert lines[-1].startswith("The smaller class has only 9 repertoires")


def test_a_control_is_named_if_only_it_is_better_than_chance() -> None:
    lines = verdict(compare(random_predictions({"a": 0.0, "v": 3.0}), [A, CONTROL]), [A, CONTROL])
    assert [line.split(",")[0] for line in lines] == [
        "No method is significantly better than chance. The best one",
        CONTROL.label,
    ]


def test_verdict_of_a_control_that_is_not_complete() -> None:
    predictions = random_predictions({"a": 2.0, "v": 2.0})
    predictions = predictions[(predictions["method"] == "a") | (predictions["fold"] < 3)]
    (line,) = verdict(compare(predictions, [A, CONTROL]), [A, CONTROL])
    assert "on the folds that both have" in line


def test_p_values_have_two_digits_as_text() -> None:
    assert [format_p_value(p) for p in (1e-9, 0.0321, 0.412, 1.0, math.nan)] == ["<0.001", "0.032", "0.41", "1.00", "-"]
