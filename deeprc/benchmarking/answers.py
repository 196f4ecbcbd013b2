"""Predictions of estimators for each kind of target: scores and probabilities of classes, or numbers.

A method for two classes learns each of several classes against all others (one-vs-rest). Other methods predict several
classes themselves. Letters: B repertoires, C classes, V values of a path's parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import r2_score

from deeprc.calibration import calibrate_probabilities
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.estimators import BinaryClassifier
from deeprc.evaluation.auc_comparison import midrank_aucs
from deeprc.evaluation.metrics import macro_auc
from deeprc.tasks import Task

__all__ = ["OneVsRest", "checked_scores", "measure_scores", "path_scores", "prediction_columns", "ranking_scores"]

Floats = NDArray[np.float64]


class OneVsRest:
    """A classifier of several classes: for each class a copy of a classifier of two classes, against all others.

    Parameters
    ----------
    estimator
        The unfitted classifier of two classes.
    """

    def __init__(self, estimator: BinaryClassifier) -> None:
        self.estimator = estimator
        self.members: list[BinaryClassifier] = []

    def fit(self, X: RepertoireDataset, y: NDArray[np.int64], **given: Any) -> OneVsRest:
        """Learn from the repertoires X, (B,), and the indices of their classes y, (B,); the rest is passed on."""
        n_classes = int(y.max()) + 1
        self.members = [clone(self.estimator).fit(X, (y == c).astype(np.int64), **given) for c in range(n_classes)]
        return self

    def decision_function(self, X: RepertoireDataset) -> Floats:
        """Return the score of each class against all others, (B, C)."""
        return np.stack([member.decision_function(X) for member in self.members], axis=1)

    def predict_proba(self, X: RepertoireDataset) -> Floats:
        """Return the probability of each class, (B, C): the probability against all others, divided by their sum."""
        each = np.stack([member.predict_proba(X)[:, 1] for member in self.members], axis=1)
        total = each.sum(axis=1, keepdims=True)
        return np.where(total > 0, each / np.where(total > 0, total, 1), 1 / each.shape[1])


def path_scores(
    estimator: BaseEstimator, task: Task, X: RepertoireDataset, y: NDArray[Any], X_new: RepertoireDataset, values: Any
) -> Floats:
    """Return the scores of new repertoires for each value of an estimator's path parameter.

    Their shape is (V, B), and (V, B, C) for several classes.
    """
    if task.kind != "multiclass":
        return checked_scores(estimator.decision_path(X, y, X_new, values), (len(values), len(X_new)))
    n_classes = len(task.classes)
    each = [estimator.decision_path(X, (y == c).astype(np.int64), X_new, values) for c in range(n_classes)]
    return checked_scores(np.stack(each, axis=-1), (len(values), len(X_new), n_classes))


def ranking_scores(estimator: BaseEstimator | OneVsRest, task: Task, X: RepertoireDataset) -> Floats:
    """Return the scores that rank repertoires, (B,), for several classes (B, C); or the predicted numbers, (B,)."""
    if task.kind == "regression" and not isinstance(estimator, OneVsRest):
        return checked_scores(estimator.predict(X), (len(X),))
    own_scores = task.kind == "binary" or isinstance(estimator, OneVsRest)
    if own_scores and hasattr(estimator, "decision_function"):
        shape = (len(X),) if task.kind == "binary" else (len(X), len(task.classes))
        return checked_scores(estimator.decision_function(X), shape)
    probability = _probabilities(estimator, task, X)
    return probability[:, 1] if task.kind == "binary" else probability


def _probabilities(estimator: BaseEstimator | OneVsRest, task: Task, X: RepertoireDataset) -> Floats:
    n_classes = 2 if task.kind == "binary" else len(task.classes)
    probability = checked_scores(estimator.predict_proba(X), (len(X), n_classes))
    if not ((probability >= 0) & (probability <= 1)).all():
        raise ValueError(f"expected probabilities from 0 to 1, found {probability.min()} to {probability.max()}")
    return probability


def prediction_columns(
    estimator: BaseEstimator | OneVsRest,
    task: Task,
    X: RepertoireDataset,
    known: tuple[RepertoireDataset, NDArray[np.int64]] | None = None,
) -> dict[str, list[float]]:
    """Return the columns of predictions except ids and labels, see `deeprc.evaluation.scoring`.

    Parameters
    ----------
    estimator, task
        The fitted estimator, and the target.
    X
        The repertoires to predict.
    known
        Repertoires that `fit` did not get, and the indices of their classes: they calibrate the probabilities. None:
        the probabilities are the estimator's own.
    """
    scores = ranking_scores(estimator, task, X)
    if task.kind == "regression":
        return {"prediction": scores.tolist()}
    probability = _probabilities(estimator, task, X)
    if known is not None:
        probability = calibrate_probabilities(probability, _probabilities(estimator, task, known[0]), known[1])
    if task.kind == "binary":
        return {"score": scores.tolist(), "probability": probability[:, 1].tolist()}
    found = {f"score={name}": scores[:, c].tolist() for c, name in enumerate(task.classes)}
    return {**found, **{f"probability={name}": probability[:, c].tolist() for c, name in enumerate(task.classes)}}


def measure_scores(task: Task, labels: NDArray[Any], scores: Floats) -> list[float]:
    """Return the AUC, macro AUC or r2 of each of V sets of scores.

    AUCs are computed from ranks: equal AUCs are equal to the last bit, so the first of equally good settings is chosen.

    Parameters
    ----------
    task, labels
        The target, and the labels, (B,): the index of the class, or the number.
    scores
        The scores, (V, B); for several classes (V, B, C).
    """
    if task.kind == "binary":
        found: list[float] = midrank_aucs(labels, scores).tolist()
        return found
    if task.kind == "multiclass":
        return [macro_auc(labels, one) for one in scores]
    return [float(r2_score(labels, one)) for one in scores]


def checked_scores(values: object, shape: Sequence[int]) -> Floats:
    """Return the output of an estimator as numbers; raise ValueError unless it has the expected shape and no NaN."""
    numbers = np.asarray(values, np.float64)
    if numbers.shape != tuple(shape) or np.isnan(numbers).any():
        found = "NaN" if numbers.shape == tuple(shape) else f"the shape {numbers.shape}"
        raise ValueError(f"expected scores or probabilities of the shape {tuple(shape)}, found {found}")
    return numbers
