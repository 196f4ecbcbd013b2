"""Predictions of estimators for each kind of target: scores and probabilities of classes, or numbers.

A method for two classes learns each of several classes against all others (one-vs-rest). Other methods predict several
classes themselves. Letters: B repertoires, C classes, V values of a path's parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
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

__all__ = ["OneVsRest", "Predictions", "checked_scores", "measure_scores", "path_scores", "predict", "ranking_scores"]

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
        self.members = [clone(self.estimator).fit(X, own, **given) for own in self._against_others(y)]
        return self

    def fit_scores(self, X: RepertoireDataset, y: NDArray[np.int64], **given: Any) -> OneVsRest:
        """Learn as `fit` does, but without calibration: for `decision_function` only."""
        self.members = [clone(self.estimator).fit_scores(X, own, **given) for own in self._against_others(y)]
        return self

    def _against_others(self, y: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        return [(y == c).astype(np.int64) for c in range(int(y.max()) + 1)]

    def decision_function(self, X: RepertoireDataset) -> Floats:
        """Return the score of each class against all others, (B, C)."""
        return np.stack([member.decision_function(X) for member in self.members], axis=1)

    def probabilities_of(self, scores: Floats) -> Floats:
        """Return the probability of each class, (B, C): the probability against all others, divided by their sum."""
        own = zip(self.members, scores.T, strict=True)
        each = np.stack([member.probabilities_of(column)[:, 1] for member, column in own], axis=1)
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


def ranking_scores(estimator: Any, task: Task, X: RepertoireDataset) -> Floats:
    """Return the scores that rank repertoires, (B,), for several classes (B, C); or the predicted numbers, (B,)."""
    if task.kind == "regression":
        return checked_scores(estimator.predict(X), (len(X),))
    if hasattr(estimator, "decision_function") and (task.kind == "binary" or isinstance(estimator, OneVsRest)):
        shape = (len(X),) if task.kind == "binary" else (len(X), len(task.classes))
        return checked_scores(estimator.decision_function(X), shape)
    probability = _checked_probabilities(estimator.predict_proba(X), task, len(X))
    return probability[:, 1] if task.kind == "binary" else probability


def _checked_probabilities(values: object, task: Task, n: int) -> Floats:
    probability = checked_scores(values, (n, 2 if task.kind == "binary" else len(task.classes)))
    if not ((probability >= 0) & (probability <= 1)).all():
        raise ValueError(f"expected probabilities from 0 to 1, found {probability.min()} to {probability.max()}")
    return probability


@dataclass(frozen=True)
class Predictions:
    """What an estimator says about repertoires.

    Attributes
    ----------
    scores
        See `ranking_scores`.
    probability
        The estimator's probability of each class, (B, C); None for numbers.
    min_probability
        The probability from which the estimator calls the second of two classes.
    members
        What each member of a stack says, see `deeprc.stacking.Stack.decide_with_members`; empty for other methods.
    """

    scores: Floats
    probability: Floats | None = None
    min_probability: float = 0.5
    members: list[dict[str, Any]] = field(default_factory=list)

    def columns(self, task: Task, known: tuple[Floats, NDArray[np.int64]] | None = None) -> dict[str, list[float]]:
        """Return the columns of predictions except ids and labels, see `deeprc.evaluation.scoring`.

        Parameters
        ----------
        task
            The target.
        known
            The estimator's probabilities of repertoires that `fit` did not get, and the indices of their classes: they
            calibrate the probabilities and choose the cutoff. None: both are the estimator's own.
        """
        probability, cutoff = self.probability, self.min_probability
        if probability is None:
            return {"prediction": self.scores.tolist()}
        if known is not None:
            probability, cutoff = calibrate_probabilities(probability, *known)
        if task.kind == "binary":
            own = {"score": self.scores.tolist(), "probability": probability[:, 1].tolist()}
            return {**own, "cutoff": [cutoff] * len(probability)}
        found = {f"score={name}": self.scores[:, c].tolist() for c, name in enumerate(task.classes)}
        return {**found, **{f"probability={name}": probability[:, c].tolist() for c, name in enumerate(task.classes)}}


def predict(estimator: Any, task: Task, X: RepertoireDataset) -> Predictions:
    """Return what a fitted estimator says about repertoires; a stack asks its members once."""
    members: list[dict[str, Any]] = []
    if hasattr(estimator, "decide_with_members"):
        scores, members = estimator.decide_with_members(X)
    else:
        scores = ranking_scores(estimator, task, X)
    if task.kind == "regression":
        return Predictions(scores)
    has_scale = isinstance(estimator, BinaryClassifier | OneVsRest)
    probability = estimator.probabilities_of(scores) if has_scale else estimator.predict_proba(X)
    cutoff = float(getattr(estimator, "min_probability", 0.5))
    return Predictions(scores, _checked_probabilities(probability, task, len(X)), cutoff, members)


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
