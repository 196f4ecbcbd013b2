"""Predictions of estimators for each kind of target: scores and probabilities of classes, or numbers.

If there are several classes, a method for two classes learns each class against all others (one-vs-rest). Other methods
predict several classes themselves. Letters: B repertoires, C classes, V values of a path's parameter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.metrics import r2_score

from deeprc.arrays import Floats
from deeprc.calibration import calibrate_probabilities
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.estimators import BinaryClassifier
from deeprc.evaluation.auc_comparison import compute_midrank_aucs
from deeprc.evaluation.metrics import compute_macro_auc
from deeprc.groups import pass_path_groups
from deeprc.tasks import Task

__all__ = [
    "OneVsRest",
    "Predictions",
    "compute_path_scores",
    "compute_ranking_scores",
    "measure_scores",
    "predict",
    "validate_scores",
]


class OneVsRest:
    """A classifier of several classes: it fits a copy of a classifier of two classes for each class against all others.

    Parameters
    ----------
    estimator
        Unfitted classifier of two classes.
    """

    def __init__(self, estimator: BinaryClassifier) -> None:
        self.estimator = estimator
        self.members: list[BinaryClassifier] = []

    def fit(self, X: RepertoireDataset, y: NDArray[np.int64], **arguments: Any) -> OneVsRest:
        """Learn from the repertoires X, (B,), and the indices of their classes y, (B,); all other arguments pass on."""
        self.members = [clone(self.estimator).fit(X, labels, **arguments) for labels in self._make_binary_labels(y)]
        return self

    def fit_uncalibrated(self, X: RepertoireDataset, y: NDArray[np.int64], **arguments: Any) -> OneVsRest:
        """Learn as `fit` does, but without calibration, if only `decision_function` is needed."""
        self.members = [
            clone(self.estimator).fit_uncalibrated(X, labels, **arguments) for labels in self._make_binary_labels(y)
        ]
        return self

    def _make_binary_labels(self, y: NDArray[np.int64]) -> list[NDArray[np.int64]]:
        return [(y == c).astype(np.int64) for c in range(int(y.max()) + 1)]

    def decision_function(self, X: RepertoireDataset) -> Floats:
        """Return the score of each class against all others, (B, C)."""
        return np.stack([member.decision_function(X) for member in self.members], axis=1)

    def compute_probabilities(self, scores: Floats) -> Floats:
        """Return the probability of each class, (B, C): its probability against all others, divided by their sum."""
        columns = zip(self.members, scores.T, strict=True)
        probabilities = np.stack([member.compute_probabilities(column)[:, 1] for member, column in columns], axis=1)
        total = probabilities.sum(axis=1, keepdims=True)
        return np.where(total > 0, probabilities / np.where(total > 0, total, 1), 1 / probabilities.shape[1])


def compute_path_scores(
    estimator: BaseEstimator,
    task: Task,
    X: RepertoireDataset,
    y: NDArray[Any],
    X_new: RepertoireDataset,
    values: Any,
    groups: NDArray[np.int64] | None = None,
) -> Floats:
    """Return the scores of new repertoires for each value of an estimator's path parameter.

    Repertoires with equal `groups`, (B,), are of one donor. The scores have the shape (V, B), and (V, B, C) for several
    classes.
    """
    arguments = pass_path_groups(estimator, groups)
    if task.kind != "multiclass":
        return validate_scores(estimator.decision_path(X, y, X_new, values, **arguments), (len(values), len(X_new)))
    n_classes = len(task.classes)
    by_class = [
        estimator.decision_path(X, (y == c).astype(np.int64), X_new, values, **arguments) for c in range(n_classes)
    ]
    return validate_scores(np.stack(by_class, axis=-1), (len(values), len(X_new), n_classes))


def compute_ranking_scores(estimator: Any, task: Task, X: RepertoireDataset) -> Floats:
    """Return the scores that rank repertoires, (B,), or (B, C) for several classes; or the predicted numbers, (B,)."""
    if task.kind == "regression":
        return validate_scores(estimator.predict(X), (len(X),))
    if hasattr(estimator, "decision_function") and (task.kind == "binary" or isinstance(estimator, OneVsRest)):
        shape = (len(X),) if task.kind == "binary" else (len(X), len(task.classes))
        return validate_scores(estimator.decision_function(X), shape)
    probability = _validate_probabilities(estimator.predict_proba(X), task, len(X))
    return probability[:, 1] if task.kind == "binary" else probability


def _validate_probabilities(values: object, task: Task, n: int) -> Floats:
    probability = validate_scores(values, (n, 2 if task.kind == "binary" else len(task.classes)))
    if not ((probability >= 0) & (probability <= 1)).all():
        raise ValueError(f"expected probabilities from 0 to 1, found {probability.min()} to {probability.max()}")
    return probability


@dataclass(frozen=True)
class Predictions:
    """The predictions of an estimator for repertoires.

    Attributes
    ----------
    scores
        Scores, see `compute_ranking_scores`.
    probability
        Probability of each class by the estimator, (B, C); None for numbers.
    min_probability
        Probability from which the estimator calls the second of two classes.
    members
        Predictions of each member of a stack, see `deeprc.stacking.Stack.score_with_members`; empty for other methods.
    """

    scores: Floats
    probability: Floats | None = None
    min_probability: float = 0.5
    members: list[dict[str, Any]] = field(default_factory=list)

    def make_columns(
        self, task: Task, calibration: tuple[Floats, NDArray[np.int64]] | None = None
    ) -> dict[str, list[float]]:
        """Return the columns of predictions except ids and labels, see `deeprc.evaluation.scoring`.

        Parameters
        ----------
        task
            Task of the target.
        calibration
            Probabilities by the estimator for repertoires that `fit` did not get, and the indices of their classes, to
            calibrate the probabilities and to choose the cutoff. None takes calibration and cutoff of the estimator.
        """
        probability, cutoff = self.probability, self.min_probability
        if probability is None:
            return {"prediction": self.scores.tolist()}
        if calibration is not None:
            probability, cutoff = calibrate_probabilities(probability, *calibration)
        if task.kind == "binary":
            return {
                "score": self.scores.tolist(),
                "probability": probability[:, 1].tolist(),
                "cutoff": [cutoff] * len(probability),
            }
        scores = {f"score={name}": self.scores[:, c].tolist() for c, name in enumerate(task.classes)}
        return {**scores, **{f"probability={name}": probability[:, c].tolist() for c, name in enumerate(task.classes)}}


def predict(estimator: Any, task: Task, X: RepertoireDataset) -> Predictions:
    """Return the predictions of a fitted estimator; the members of a stack are computed only once."""
    members: list[dict[str, Any]] = []
    if hasattr(estimator, "score_with_members"):
        scores, members = estimator.score_with_members(X)
    else:
        scores = compute_ranking_scores(estimator, task, X)
    if task.kind == "regression":
        return Predictions(scores)
    converts_scores = isinstance(estimator, BinaryClassifier | OneVsRest)
    probability = estimator.compute_probabilities(scores) if converts_scores else estimator.predict_proba(X)
    cutoff = float(getattr(estimator, "min_probability", 0.5))
    return Predictions(scores, _validate_probabilities(probability, task, len(X)), cutoff, members)


def measure_scores(task: Task, labels: NDArray[Any], scores: Floats) -> list[float]:
    """Return the AUC, macro AUC or r2 of each of V sets of scores.

    AUCs are computed from ranks, so equal AUCs are equal to the last bit, and the first of equally good settings is
    chosen.

    Parameters
    ----------
    task, labels
        Task of the target, and labels, (B,): the index of the class, or the number.
    scores
        Scores, (V, B), or (V, B, C) for several classes.
    """
    if task.kind == "binary":
        aucs: list[float] = compute_midrank_aucs(labels, scores).tolist()
        return aucs
    if task.kind == "multiclass":
        return [compute_macro_auc(labels, class_scores) for class_scores in scores]
    return [float(r2_score(labels, predicted)) for predicted in scores]


def validate_scores(values: object, shape: Sequence[int]) -> Floats:
    """Return the output of an estimator as numbers; raise ValueError if it has another shape or NaN."""
    numbers = np.asarray(values, np.float64)
    if numbers.shape != tuple(shape) or np.isnan(numbers).any():
        found = "NaN" if numbers.shape == tuple(shape) else f"the shape {numbers.shape}"
        raise ValueError(f"expected scores or probabilities of the shape {tuple(shape)}, found {found}")
    return numbers
