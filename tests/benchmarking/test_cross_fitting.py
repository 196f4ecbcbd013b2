"""Scores of repertoires by models that were fitted without them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from deeprc.baselines import public_clones
from deeprc.baselines.diversity import Diversity
from deeprc.baselines.inner_folds import assign_inner_folds
from deeprc.baselines.public_clones import PublicClones
from deeprc.baselines.svm import SVM
from deeprc.benchmarking.cross_fitting import assign_mixed_folds, compute_fold_aucs, cross_fit, folds_have_both_classes
from deeprc.benchmarking.search import apply_setting
from deeprc.calibration import compute_mean_and_sd
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError


@pytest.mark.parametrize(
    ("estimator", "settings"),
    [
        (
            SVM(),
            [{"C": 1.0}, {"C": 0.01}, {"C": 1.0, "kmer_offsets": [0, 1, 2]}, {"C": 10.0, "kmer_offsets": [0, 1, 2]}],
        ),
        (Diversity(), [{"C": 1.0}, {"C": 0.1}]),
        (PublicClones(), [{}]),
    ],
)
def test_each_setting_is_fitted_without_the_fold(
    estimator: SVM, settings: list[dict[str, object]], cohort: RepertoireDataset
) -> None:
    y = (cohort.metadata["status"] == "case").to_numpy().astype(np.int64)
    fold_of = np.empty(len(y), np.int64)
    for label in (0, 1):
        fold_of[y == label] = np.arange((y == label).sum()) % 3
    found = cross_fit(estimator, settings, cohort, y, fold_of)
    scores, aucs = np.zeros((len(settings), len(y))), np.zeros((3, len(settings)))
    for fold in range(3):
        inside, outside = fold_of != fold, fold_of == fold
        for row, setting in enumerate(settings):
            model = apply_setting(estimator, setting).fit(cohort[inside], y[inside])
            known = model.decision_function(cohort[inside])
            scores[row, outside] = (model.decision_function(cohort[outside]) - known.mean()) / (known.std() or np.inf)
            aucs[fold, row] = roc_auc_score(y[outside], scores[row, outside])
    best = int(aucs.mean(axis=0).argmax())
    assert found.setting == settings[best]
    assert found.auc == pytest.approx(aucs.mean(axis=0)[best])
    np.testing.assert_allclose(found.scores, scores[best], atol=1e-6)


def test_scores_without_variation_have_an_infinite_deviation() -> None:
    mean, spread = compute_mean_and_sd(np.array([[1.0, 3.0], [0.1 + 1e-17, 0.1]]))
    np.testing.assert_array_equal(mean, [[2.0], [0.1]])
    np.testing.assert_array_equal(spread, [[1.0], [np.inf]])


@pytest.mark.parametrize("kind", ["one fold", "a fold of one class", "a class in one fold"])
def test_folds_without_both_classes_are_refused(cohort: RepertoireDataset, kind: str) -> None:
    y = (cohort.metadata["status"] == "case").to_numpy().astype(np.int64)
    folds = {
        "one fold": np.zeros(len(y), np.int64),
        "a fold of one class": np.where(y == 1, np.arange(len(y)) // 2 % 2, np.arange(len(y)) // 2 % 3),
        "a class in one fold": np.where(y == 1, 0, np.arange(len(y)) // 2 % 2),
    }
    assert not folds_have_both_classes(folds[kind], y) or kind == "one fold"
    with pytest.raises(InputError, match="both in each fold"):
        cross_fit(SVM(), [{}], cohort, y, folds[kind])


def test_the_auc_is_the_mean_over_folds() -> None:
    """Scores of different folds may have another zero."""
    y, fold_of = np.array([0, 1, 0, 1, 1]), np.array([0, 0, 1, 1, 1])
    scores = np.array([[1.0, 2.0, -5.0, -6.0, -4.0], [0.0, 0.0, 1.0, 0.0, 0.0]])
    np.testing.assert_allclose(compute_fold_aucs(y, scores, fold_of), [(1 + 0.5) / 2, (0.5 + 0) / 2])


def test_folds_have_both_classes_and_separate_no_donor(cohort: RepertoireDataset) -> None:
    positive = (cohort.metadata["status"] == "case").to_numpy()
    np.testing.assert_array_equal(assign_mixed_folds(cohort, positive, 5), assign_inner_folds(cohort, positive, 5))
    rank = np.zeros(len(cohort), np.int64)
    for label in (False, True):
        rank[positive == label] = np.arange((positive == label).sum())
    groups = np.where(positive, rank // 5, 100 + rank // 5)  # three donors of each class
    folds = assign_mixed_folds(cohort, positive, 5, groups)
    assert folds.max() == 2
    assert folds_have_both_classes(folds, positive.astype(np.int64))
    assert all(len(set(folds[groups == group])) == 1 for group in set(groups.tolist()))
    assert not assign_mixed_folds(cohort, positive, 5, positive.astype(np.int64)).any()  # one donor of each class


def test_estimators_that_make_folds_get_the_donors(cohort: RepertoireDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    y = (cohort.metadata["status"] == "case").to_numpy().astype(np.int64)
    groups = np.arange(len(y)) // 4
    seen = []

    def note(X: RepertoireDataset, positive: np.ndarray, n_folds: int, own: np.ndarray) -> np.ndarray:
        seen.append(own)
        return assign_inner_folds(X, positive, n_folds, own)

    fold_of = assign_mixed_folds(cohort, y == 1, 3, groups)
    monkeypatch.setattr(public_clones, "assign_inner_folds", note)
    cross_fit(PublicClones(), [{}], cohort, y, fold_of, groups)
    assert [len(set(own.tolist())) for own in seen] == [len(set(groups[fold_of != fold].tolist())) for fold in range(3)]
