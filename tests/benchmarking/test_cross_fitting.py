"""Scores of repertoires by models that were fitted without them."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from deeprc.baselines.diversity import Diversity
from deeprc.baselines.public_clones import PublicClones
from deeprc.baselines.svm import SVM
from deeprc.benchmarking.cross_fitting import are_mixed, cross_fit, fold_aucs
from deeprc.benchmarking.search import with_setting
from deeprc.calibration import measure_units
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
            model = with_setting(estimator, setting).fit(cohort[inside], y[inside])
            known = model.decision_function(cohort[inside])
            scores[row, outside] = (model.decision_function(cohort[outside]) - known.mean()) / (known.std() or np.inf)
            aucs[fold, row] = roc_auc_score(y[outside], scores[row, outside])
    best = int(aucs.mean(axis=0).argmax())
    assert found.setting == settings[best]
    assert found.auc == pytest.approx(aucs.mean(axis=0)[best])
    np.testing.assert_allclose(found.scores, scores[best], atol=1e-6)


def test_units_are_mean_and_deviation() -> None:
    mean, spread = measure_units(np.array([[1.0, 3.0], [0.1 + 1e-17, 0.1]]))
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
    assert not are_mixed(folds[kind], y) or kind == "one fold"
    with pytest.raises(InputError, match="both in each fold"):
        cross_fit(SVM(), [{}], cohort, y, folds[kind])


def test_the_auc_is_the_mean_over_folds() -> None:
    """Scores of different folds may have another zero."""
    y, fold_of = np.array([0, 1, 0, 1, 1]), np.array([0, 0, 1, 1, 1])
    scores = np.array([[1.0, 2.0, -5.0, -6.0, -4.0], [0.0, 0.0, 1.0, 0.0, 0.0]])
    np.testing.assert_allclose(fold_aucs(y, scores, fold_of), [(1 + 0.5) / 2, (0.5 + 0) / 2])
