"""Cross-fitted scores: scores of training repertoires by models that were fitted without them, and the best setting.

Letters: B repertoires, F folds, V settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.baselines.inner_folds import assign_inner_folds
from deeprc.benchmarking.search import Setting, apply_setting, find_path_parameter, group_by_path, remove_path_parameter
from deeprc.calibration import compute_mean_and_sd
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.errors import InputError
from deeprc.estimators import BinaryClassifier
from deeprc.evaluation.auc_comparison import compute_midrank_aucs
from deeprc.groups import pass_path_groups
from deeprc.progress import track

__all__ = ["CrossFittedSetting", "assign_mixed_folds", "compute_fold_aucs", "cross_fit", "folds_have_both_classes"]


@dataclass(frozen=True)
class CrossFittedSetting:
    """The best setting of a method, with its AUC and cross-fitted scores.

    Attributes
    ----------
    setting
        Setting with the highest AUC, the first of equal ones.
    auc
        AUC of this setting, the mean over folds.
    scores
        Score of each repertoire by the model with this setting that was fitted without its fold, (B,). It is in the
        units of this model, see `deeprc.calibration.compute_mean_and_sd`, because models of different folds may differ
        in their units.
    """

    setting: Setting
    auc: float
    scores: Floats


def cross_fit(
    estimator: BinaryClassifier,
    settings: Sequence[Setting],
    X: RepertoireDataset,
    y: NDArray[np.int64],
    fold_of: NDArray[np.int64],
    groups: NDArray[np.int64] | None = None,
) -> CrossFittedSetting:
    """Fit a method for each fold and setting, to all other folds, and return the scores of the best setting.

    Parameters
    ----------
    estimator
        Unfitted classifier of two classes.
    settings
        Settings to try, at least one, in the order of preference if their AUCs are equal. Settings that differ only in
        the `path_parameter` of the estimator are fitted together.
    X, y
        Repertoires, (B,), and their labels, (B,), 1 if positive, else 0.
    fold_of
        Fold of each repertoire, (B,), from 0. Each fold needs repertoires of both classes.
    groups
        Donor of each repertoire as an index, (B,); None if every repertoire is from a different donor. They are
        passed to estimators that divide their training repertoires further.

    Raises
    ------
    InputError
        If there is only one fold, or if a fold or the rest without it has only one class.
    """
    n_folds = 1 + int(fold_of.max(initial=-1))
    if n_folds < 2 or not folds_have_both_classes(fold_of, y):
        raise InputError("expected at least 2 different training repertoires of each class, and both in each fold")
    scores = np.zeros((len(settings), len(y)))
    for fold in track(range(n_folds), "cross-fitting, folds", n_folds):
        is_fitted, is_scored = fold_of != fold, fold_of == fold
        for rows in group_by_path(estimator, settings):
            path = [settings[row] for row in rows]
            fold_scores = _fit_and_score(estimator, path, X, y, is_fitted, groups)
            mean, sd = compute_mean_and_sd(fold_scores[:, is_fitted])
            scores[np.ix_(rows, is_scored)] = (fold_scores[:, is_scored] - mean) / sd
    aucs = compute_fold_aucs(y, scores, fold_of)
    best = int(aucs.argmax())
    return CrossFittedSetting(settings[best], float(aucs[best]), scores[best])


def _fit_and_score(
    estimator: BinaryClassifier,
    path: Sequence[Setting],
    X: RepertoireDataset,
    y: NDArray[np.int64],
    is_fitted: NDArray[np.bool_],
    groups: NDArray[np.int64] | None,
) -> Floats:
    """Fit the settings of one path to some repertoires, and return the scores of all repertoires, (V, B)."""
    parameter = find_path_parameter(estimator)
    model = apply_setting(estimator, remove_path_parameter(estimator, path[0]))
    donors = None if groups is None else groups[is_fitted]
    X_fitted, y_fitted = X[is_fitted], y[is_fitted]
    if parameter is not None and parameter in path[0]:
        values = [setting[parameter] for setting in path]
        return np.asarray(model.decision_path(X_fitted, y_fitted, X, values, **pass_path_groups(model, donors)))
    return np.asarray(model.fit_uncalibrated(X_fitted, y_fitted, groups=donors).decision_function(X)[None])


def assign_mixed_folds(
    X: RepertoireDataset, positive: NDArray[np.bool_], n_folds: int, groups: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Return the fold of each repertoire, (B,), for `cross_fit`; there are at most `n_folds` folds.

    Each fold, and the rest without it, have both classes; see `assign_inner_folds`. If this is not possible, all are in
    fold 0.
    """
    for n in range(n_folds, 1, -1):
        fold_of = assign_inner_folds(X, positive, n, groups)
        if fold_of.any() and folds_have_both_classes(fold_of, positive.astype(np.int64)):
            return fold_of
    return np.zeros(len(X), np.int64)


def compute_fold_aucs(y: NDArray[np.int64], scores: Floats, fold_of: NDArray[np.int64]) -> Floats:
    """Return the AUC of each row of scores, (V, B), as the mean over folds, (V,)."""
    folds = [fold_of == fold for fold in range(1 + int(fold_of.max()))]
    return np.asarray(np.mean([compute_midrank_aucs(y[in_fold], scores[:, in_fold]) for in_fold in folds], axis=0))


def folds_have_both_classes(fold_of: NDArray[np.int64], y: NDArray[np.int64]) -> bool:
    """Return whether each fold has both classes, and all other folds together have both classes, too."""
    table = np.zeros((2, 1 + int(fold_of.max(initial=0))), np.int64)
    np.add.at(table, (y, fold_of), 1)
    return bool(((table > 0) & (table < table.sum(axis=1, keepdims=True))).all())
