"""What estimators answer, for each kind of target: scores and probabilities of classes, or numbers.

A method that only knows two classes learns each of several against all others (one-vs-rest); those of other methods are
asked of the estimator as it is. Letters: B repertoires, C classes, V values of a path's parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import r2_score

from deeprc.datasets.dataset import RepertoireDataset
from deeprc.estimators import BinaryClassifier
from deeprc.evaluation.auc_comparison import midrank_aucs
from deeprc.evaluation.metrics import macro_auc
from deeprc.tasks import Task

__all__ = ["OneVsRest", "answers", "checked_answer", "measured", "path_answers", "ranked_by"]

Floats = NDArray[np.float64]


class OneVsRest:
    """Several classes by a classifier of two: a copy of it for each class, which tells it from all others.

    Parameters
    ----------
    estimator
        Unfitted.
    """

    def __init__(self, estimator: BinaryClassifier) -> None:
        self.estimator = estimator
        self.members: list[BinaryClassifier] = []

    def fit(self, X: RepertoireDataset, y: NDArray[np.int64]) -> OneVsRest:
        """Learn from the repertoires X, (B,), and the numbers of their classes, (B,)."""
        n_classes = int(y.max()) + 1
        self.members = [clone(self.estimator).fit(X, (y == c).astype(np.int64)) for c in range(n_classes)]
        return self

    def decision_function(self, X: RepertoireDataset) -> Floats:
        """Return the score of each class against all others, (B, C)."""
        return np.stack([member.decision_function(X) for member in self.members], axis=1)

    def predict_proba(self, X: RepertoireDataset) -> Floats:
        """Return the probability of each class, (B, C): those against all others, divided by their sum."""
        each = np.stack([member.predict_proba(X)[:, 1] for member in self.members], axis=1)
        total = each.sum(axis=1, keepdims=True)
        return np.where(total > 0, each / np.where(total > 0, total, 1), 1 / each.shape[1])


def path_answers(
    estimator: BaseEstimator, task: Task, X: RepertoireDataset, y: NDArray[Any], X_new: RepertoireDataset, values: Any
) -> Floats:
    """Return what each value of an estimator's path says of new repertoires: (V, B), of several classes (V, B, C)."""
    if task.kind != "multiclass":
        return checked_answer(estimator.decision_path(X, y, X_new, values), (len(values), len(X_new)))
    n_classes = len(task.classes)
    each = [estimator.decision_path(X, (y == c).astype(np.int64), X_new, values) for c in range(n_classes)]
    return checked_answer(np.stack(each, axis=-1), (len(values), len(X_new), n_classes))


def ranked_by(estimator: BaseEstimator | OneVsRest, task: Task, X: RepertoireDataset) -> Floats:
    """Return by what repertoires are ranked: scores (B,), of several classes (B, C); or the predicted numbers, (B,)."""
    if task.kind == "regression" and not isinstance(estimator, OneVsRest):
        return checked_answer(estimator.predict(X), (len(X),))
    own_scores = task.kind == "binary" or isinstance(estimator, OneVsRest)
    if own_scores and hasattr(estimator, "decision_function"):
        shape = (len(X),) if task.kind == "binary" else (len(X), len(task.classes))
        return checked_answer(estimator.decision_function(X), shape)
    probability = _probabilities(estimator, task, X)
    return probability[:, 1] if task.kind == "binary" else probability


def _probabilities(estimator: BaseEstimator | OneVsRest, task: Task, X: RepertoireDataset) -> Floats:
    n_classes = 2 if task.kind == "binary" else len(task.classes)
    probability = checked_answer(estimator.predict_proba(X), (len(X), n_classes))
    if not ((probability >= 0) & (probability <= 1)).all():
        raise ValueError(f"expected probabilities from 0 to 1, found {probability.min()} to {probability.max()}")
    return probability


def answers(estimator: BaseEstimator | OneVsRest, task: Task, X: RepertoireDataset) -> dict[str, list[float]]:
    """Return the columns of the predictions for repertoires, besides their labels; see `deeprc.evaluation.scoring`."""
    scores = ranked_by(estimator, task, X)
    if task.kind == "regression":
        return {"prediction": scores.tolist()}
    probability = _probabilities(estimator, task, X)
    if task.kind == "binary":
        return {"score": scores.tolist(), "probability": probability[:, 1].tolist()}
    found = {f"score={name}": scores[:, c].tolist() for c, name in enumerate(task.classes)}
    return {**found, **{f"probability={name}": probability[:, c].tolist() for c, name in enumerate(task.classes)}}


def measured(task: Task, labels: NDArray[Any], scores: Floats) -> list[float]:
    """Return how good each of V answers is: AUC, macro AUC or r2.

    From ranks, so that equal AUCs are equal to the last bit and the first setting is preferred.

    Parameters
    ----------
    task, labels
        What was predicted, and what is known, (B,): the number of the class, or the number.
    scores
        (V, B), or of several classes (V, B, C).
    """
    if task.kind == "binary":
        found: list[float] = midrank_aucs(labels, scores).tolist()
        return found
    if task.kind == "multiclass":
        return [macro_auc(labels, one) for one in scores]
    return [float(r2_score(labels, one)) for one in scores]


def checked_answer(values: object, shape: Sequence[int]) -> Floats:
    """Return what an estimator, perhaps a user's own, gave, if it is one number for each that was asked for."""
    numbers = np.asarray(values, np.float64)
    if numbers.shape != tuple(shape) or np.isnan(numbers).any():
        found = "NaN" if numbers.shape == tuple(shape) else f"the shape {numbers.shape}"
        raise ValueError(f"expected scores or probabilities of the shape {tuple(shape)}, found {found}")
    return numbers
