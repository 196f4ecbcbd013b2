"""Out-of-fold predictions: calibrated by other test folds, and their metrics over folds and repeats."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from sklearn.metrics import f1_score, log_loss, roc_auc_score

from deeprc.calibration import choose_cutoff, fit_calibration
from deeprc.evaluation.auc_intervals import compute_fold_aucs_interval
from deeprc.evaluation.intervals import compute_r2_interval
from deeprc.runs.cross_metrics import make_folds_table, measure_folds
from deeprc.runs.out_of_fold import FoldPrediction, cross_calibrate
from deeprc.tasks import Task

BINARY = Task("status", "status", "binary", ("healthy", "case"))
SEVERAL = Task("grade", "grade", "multiclass", ("a", "b", "c"))
NUMBER = Task("age", "age", "regression")


def draw(
    seed: int, n: int = 60, n_repeats: int = 2, *, share: float = 0.5, scale: float = 1.0, distance: float = 1.5
) -> list[FoldPrediction]:
    """Return three test folds per repeat of n repertoires, whose log-odds are right up to a factor."""
    rng = np.random.default_rng(seed)
    label = (np.arange(n) < share * n).astype(float)
    signal = rng.normal(size=n)
    folds = []
    for repeat in range(n_repeats):
        fold_of = rng.permutation(np.arange(n) % 3)
        score = signal + distance * label + 0.2 * rng.normal(size=n)
        odds = scale * (distance * score - distance**2 / 2 + logit(share))
        for fold in range(3):
            rows = np.flatnonzero(fold_of == fold)
            folds.append(FoldPrediction(repeat, fold, rows, odds[rows, None], label[rows, None], (BINARY,)))
    return folds


def test_a_fold_is_calibrated_by_the_other_test_folds_of_its_repeat() -> None:
    folds = draw(0, scale=3.0)
    found = cross_calibrate(folds)
    others = np.concatenate([folds[3].outputs, folds[5].outputs])[:, 0]
    positive = np.concatenate([folds[3].labels, folds[5].labels])[:, 0] == 1
    expected = fit_calibration(others, positive)
    cutoff = choose_cutoff(expected.slope * others + expected.intercept)
    assert found[4].tasks[0].calibration == replace(expected, cutoff=cutoff)
    assert found[4].log_odds() == pytest.approx(expected.slope * folds[4].outputs + expected.intercept)
    np.testing.assert_array_equal(found[4].outputs, folds[4].outputs)


def test_no_label_of_a_fold_changes_its_probabilities() -> None:
    folds = draw(1)
    other = [replace(each, labels=1 - each.labels) if (each.repeat, each.fold) == (0, 1) else each for each in folds]
    before, after = cross_calibrate(folds), cross_calibrate(other)
    np.testing.assert_array_equal(before[1].probabilities(0), after[1].probabilities(0))
    np.testing.assert_array_equal(before[4].probabilities(0), after[4].probabilities(0))  # another repeat
    assert not np.array_equal(before[2].probabilities(0), after[2].probabilities(0))


@pytest.mark.slow
@pytest.mark.parametrize("scale", [0.4, 3.0])
def test_cross_calibration_lowers_the_loss_of_ensembles(scale: float) -> None:
    donors = np.arange(60)
    plain, better = [], []
    for seed in range(15):
        folds = draw(seed, n_repeats=1, scale=scale)
        plain.append(measure_folds(folds, donors)["status"]["loss"])
        better.append(measure_folds(cross_calibrate(folds), donors)["status"]["loss"])
    assert np.mean(better) < np.mean(plain) - 0.02


@pytest.mark.slow
def test_a_rare_class_is_called_by_the_cutoff_of_the_other_folds() -> None:
    donors, at_half, chosen = np.arange(300), [], []
    for seed in range(10):
        folds = draw(seed, 300, 1, share=0.1)
        at_half.append(measure_folds(folds, donors)["status"]["f1"])
        chosen.append(measure_folds(cross_calibrate(folds), donors)["status"]["f1"])
    assert np.mean(at_half) < 0.38
    assert np.mean(chosen) > np.mean(at_half) + 0.06


def test_metrics_of_two_classes_by_hand() -> None:
    folds = cross_calibrate(draw(2, share=0.3))
    donors = np.arange(60) // 2
    found = measure_folds(folds, donors)["status"]
    labels, odds = ([np.asarray(getattr(each, name))[:, 0] for each in folds] for name in ("labels", "outputs"))
    aucs = [roc_auc_score(y, s) for y, s in zip(labels, odds, strict=True)]
    assert found["auc"] == pytest.approx(np.mean(aucs))
    assert found["auc_sd"] == pytest.approx(np.std(aucs, ddof=1))
    assert found["auc_by_repeat"] == pytest.approx([np.mean(aucs[:3]), np.mean(aucs[3:])])
    assert (found["n"], found["n_positive"], found["n_repeats"], found["n_folds"]) == (60, 18, 2, 6)
    interval = compute_fold_aucs_interval(
        [y.astype(int) for y in labels], odds, [donors[each.rows] for each in folds], repeats=[0] * 3 + [1] * 3
    )
    assert found["auc_ci"] == pytest.approx([interval.low, interval.high])
    losses, scores = [], []
    for repeat in (folds[:3], folds[3:]):
        label = np.concatenate([each.labels[:, 0] for each in repeat])
        losses.append(log_loss(label, np.concatenate([each.probabilities(0) for each in repeat])))
        called = [each.log_odds()[:, 0] >= each.tasks[0].calibration.cutoff for each in repeat]
        scores.append(f1_score(label, np.concatenate(called)))
    assert found["loss"] == pytest.approx(np.mean(losses))
    assert found["f1"] == pytest.approx(np.mean(scores))
    assert found["loss_base_rate"] == pytest.approx(-0.3 * np.log(0.3) - 0.7 * np.log(0.7))
    assert found["brier_base_rate"] == pytest.approx(0.21)
    table = make_folds_table(folds)
    assert table["auc"].to_numpy() == pytest.approx(aucs)
    assert table["n"].sum() == 120
    assert table["n_positive"].sum() == 36


def mixed(seed: int = 3, n: int = 45) -> list[FoldPrediction]:
    """Return folds with several classes, a number, and labels that are not known."""
    rng = np.random.default_rng(seed)
    grade, age = np.arange(n) % 3, rng.normal(50, 10, n)
    age[:5] = np.nan
    folds = []
    for repeat in range(2):
        fold_of = rng.permutation(n) % 3
        logits = rng.normal(size=(n, 3)) + 2 * np.eye(3)[grade]
        predicted = np.nan_to_num(age, nan=50.0) + rng.normal(0, 5, n)
        outputs = np.column_stack([logits, predicted])
        labels = np.column_stack([grade.astype(float), age])
        for fold in range(3):
            rows = np.flatnonzero(fold_of == fold)
            folds.append(FoldPrediction(repeat, fold, rows, outputs[rows], labels[rows], (SEVERAL, NUMBER)))
    return folds


@pytest.mark.slow
def test_metrics_of_several_classes_and_of_numbers() -> None:
    folds = mixed()
    found = measure_folds(cross_calibrate(folds), np.arange(45))
    grade, age = found["grade"], found["age"]
    assert grade["auc"] == pytest.approx(np.mean(grade["auc_by_class"]))
    assert grade["auc_ci"][0] < grade["auc"] < grade["auc_ci"][1]
    assert grade["n"] == 45
    assert grade["brier"] < grade["brier_base_rate"]
    assert age["n"] == 40
    label = np.concatenate([each.labels[:, 1] for each in folds])
    predicted = np.concatenate([each.outputs[:, 3] for each in folds])
    rows, known = np.concatenate([each.rows for each in folds]), ~np.isnan(label)
    limits = compute_r2_interval(label[known], predicted[known], rows[known])
    assert age["r2_ci"] == pytest.approx(limits)
    assert age["mae"] == pytest.approx(np.abs(label - predicted)[known].mean())
    table = make_folds_table(folds)
    assert table["target"].tolist() == ["grade", "age"] * 6
    assert table.loc[table["target"] == "age", "auc"].isna().all()
    assert table.loc[table["target"] == "grade", "mae"].isna().all()


def test_log_odds_are_those_of_the_probabilities() -> None:
    for each in cross_calibrate(mixed()):
        odds = each.log_odds()
        assert expit(odds[:, :3]) == pytest.approx(each.probabilities(0))
        assert np.isnan(odds[:, 3]).all()


def test_folds_of_one_class_have_no_auc() -> None:
    folds = draw(4, n_repeats=1)
    empty = replace(folds[0], labels=np.ones_like(folds[0].labels))
    found = measure_folds([empty, *folds[1:]], np.arange(60))["status"]
    assert found["n_folds"] == 2
    assert pd.isna(make_folds_table([empty])["auc"].iloc[0])
    nothing = [replace(each, labels=np.ones_like(each.labels)) for each in folds]
    found = measure_folds(nothing, np.arange(60))["status"]
    assert (found["auc"], found["auc_ci"], found["n_folds"]) == (None, None, 0)
    unknown = [replace(each, labels=np.full_like(each.labels, np.nan)) for each in folds]
    assert measure_folds(unknown, np.arange(60))["status"] == {"n": 0, "n_repeats": 1}
