"""Metrics of the out-of-fold predictions of a cross-validation, which may be repeated.

The AUC is the mean over folds, because the scores of different ensembles cannot be compared. All other metrics of
classes are computed from all repertoires of a repeat, and then averaged over repeats, because F1 and other measures of
called classes are biased in small folds. Metrics of numbers are computed from all repeats together. Letters: B
repertoires.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.evaluation.auc_intervals import FoldAucs, compute_fold_aucs_interval
from deeprc.evaluation.intervals import (
    compute_mean_error_interval,
    compute_r2,
    compute_r2_interval,
    compute_rank_correlation,
    compute_rank_correlation_interval,
)
from deeprc.evaluation.metrics import compute_binary_metrics, compute_macro_metrics
from deeprc.evaluation.reliability import judge_probabilities
from deeprc.runs.out_of_fold import FoldPrediction, LabelledPrediction

__all__ = ["NOT_MEASURED", "make_folds_table", "measure_folds"]

NOT_MEASURED = {
    "auc": "no AUC, because no test fold has repertoires of several classes",
    "r2": "no r², because fewer than two different numbers are known",
    "n": "no repertoire of the test folds has a label",
}
"""Why a measure of a target is missing, in words."""

_CALLS = ("f1", "balanced_accuracy", "accuracy")
_PROBABILITIES = {
    "loss": "log_loss",
    "loss_base_rate": "log_loss_base_rate",
    "brier": "brier",
    "brier_base_rate": "brier_base_rate",
    "calibration_error": "calibration_error",
}
_NAMES = ("n", "n_positive", "auc", *_CALLS, "r2", "spearman", "mae", *_PROBABILITIES)


def measure_folds(folds: Sequence[FoldPrediction], donors: NDArray[np.int64]) -> dict[str, dict[str, Any]]:
    """Return the metrics of each target by its name.

    Parameters
    ----------
    folds
        Predictions for the test folds of all repeats.
    donors
        Index of the donor of each repertoire of the cohort.

    Returns
    -------
    For classes: auc (the mean over folds), auc_ci (95% interval, see `compute_fold_aucs_interval`), auc_sd (standard
    deviation over folds), auc_by_repeat, and for several classes auc_by_class; f1, balanced_accuracy and accuracy of
    the called classes; loss, brier and calibration_error, and loss_base_rate and brier_base_rate of predictions by the
    frequency of the classes alone. For numbers: r2, spearman and mae, each with its 95% interval, over all repertoires.
    For all targets: n, n_repeats, n_folds (folds with an AUC, in all repeats), and for two classes n_positive and
    positive_class. A metric that is not defined is None.
    """
    return {
        task.name: _measure_target([fold.select_labelled(index) for fold in folds], donors)
        for index, task in enumerate(folds[0].tasks)
    }


def _measure_target(predictions: Sequence[LabelledPrediction], donors: NDArray[np.int64]) -> dict[str, Any]:
    """Return the metrics of one target from its predictions for all test folds."""
    task, n_repeats = predictions[0].task, len({prediction.repeat for prediction in predictions})
    n = sum(map(len, predictions)) // n_repeats
    metrics: dict[str, Any] = {"n": n, "n_repeats": n_repeats}
    if n == 0:
        return metrics
    if task.kind == "regression":
        return {**metrics, **_measure_regression(predictions, donors)}
    metrics |= {**_measure_aucs(predictions, donors), **_average_over_repeats(predictions)}
    if task.kind == "binary":
        n_positive = sum(int((prediction.label == 1).sum()) for prediction in predictions) // n_repeats
        metrics |= {"n_positive": n_positive, "positive_class": task.positive}
    return metrics


def make_folds_table(folds: Sequence[FoldPrediction], left_out: Sequence[str] = ()) -> pd.DataFrame:
    """Return a table with a row for each fold and target: repeat, fold, target and metrics; empty if not defined.

    If each fold is a value of a column, `left_out` has these values by the index of the fold, and so has the table.
    """
    rows = []
    for fold in folds:
        for index, task in enumerate(fold.tasks):
            prediction = fold.select_labelled(index)
            row: dict[str, Any] = {"n": len(prediction)}
            if task.kind == "binary":
                row["n_positive"] = int(prediction.label.sum())
            if len(prediction) and task.kind == "regression":
                row |= _compute_regression_metrics(prediction.label, prediction.outputs[:, 0])
            elif len(prediction):
                row |= {"auc": _average_fold_auc(prediction), **_measure_classes([prediction])}
            value = {"left_out": left_out[fold.fold]} if left_out else {}
            rows.append({"repeat": fold.repeat, "fold": fold.fold, **value, "target": task.name, **row})
    table = pd.DataFrame(rows)
    return table[[name for name in ("repeat", "fold", "left_out", "target", *_NAMES) if name in table]]


def _measure_aucs(predictions: Sequence[LabelledPrediction], donors: NDArray[np.int64]) -> dict[str, Any]:
    """Return the AUC with its interval; for several classes, the mean over classes."""
    by_class = [_compute_auc(predictions, c, donors) for c in range(predictions[0].task.n_outputs)]
    aucs = [auc for auc in by_class if auc is not None]
    if not aucs:
        return {"auc": None, "auc_ci": None, "n_folds": 0}
    per_class = {"auc_by_class": [None if auc is None else float(auc.aucs.mean()) for auc in by_class]}
    fold_aucs = [(prediction.repeat, _average_fold_auc(prediction)) for prediction in predictions]
    repeat_of = np.array([repeat for repeat, auc in fold_aucs if auc is not None])
    auc_of = np.array([auc for _, auc in fold_aucs if auc is not None])
    return {
        "auc": float(np.mean([auc.aucs.mean() for auc in aucs])),
        "auc_ci": np.mean([(auc.low, auc.high) for auc in aucs], axis=0).tolist(),
        "auc_sd": float(auc_of.std(ddof=1)) if len(auc_of) > 1 else None,
        "auc_by_repeat": [float(auc_of[repeat_of == repeat].mean()) for repeat in np.unique(repeat_of)],
        **(per_class if len(by_class) > 1 else {}),
        "n_folds": len(auc_of),
    }


def _average_fold_auc(prediction: LabelledPrediction) -> float | None:
    """Return the AUC of a fold, for several classes the mean over classes; None if no class has one."""
    by_class = [_compute_auc([prediction], c) for c in range(prediction.task.n_outputs)]
    aucs = [float(auc.aucs[0]) for auc in by_class if auc is not None]
    return float(np.mean(aucs)) if aucs else None


def _compute_auc(
    predictions: Sequence[LabelledPrediction], c: int, donors: NDArray[np.int64] | None = None
) -> FoldAucs | None:
    """Return the AUC of one output of a task, which separates a class from all others, over folds.

    It is None if no fold has both positive and negative repertoires.
    """
    labels, scores, donors_of, repeats = [], [], [], []
    for prediction in predictions:
        is_of_class = (prediction.label == (1 if prediction.task.kind == "binary" else c)).astype(np.int64)
        if 0 < is_of_class.sum() < len(is_of_class):
            labels.append(is_of_class)
            scores.append(prediction.log_odds[:, c])
            donors_of.append(prediction.rows if donors is None else donors[prediction.rows])
            repeats.append(prediction.repeat)
    return compute_fold_aucs_interval(labels, scores, donors_of, repeats=repeats) if labels else None


def _average_over_repeats(predictions: Sequence[LabelledPrediction]) -> dict[str, Any]:
    """Return metrics of calls and probabilities, each over all repertoires of a repeat, then averaged over repeats."""
    repeats = dict.fromkeys(prediction.repeat for prediction in predictions)
    by_repeat = [
        _measure_classes([prediction for prediction in predictions if prediction.repeat == repeat])
        for repeat in repeats
    ]
    means: dict[str, Any] = {}
    for name in by_repeat[0]:
        values = [value for metrics in by_repeat if (value := metrics[name]) is not None]
        means[name] = float(np.mean(values)) if values else None
    return means


def _measure_classes(predictions: Sequence[LabelledPrediction]) -> dict[str, float | None]:
    """Return metrics of called classes and of probabilities over all repertoires of the folds together."""
    label = np.concatenate([prediction.label for prediction in predictions])
    probability = np.concatenate([prediction.probability for prediction in predictions])
    if predictions[0].task.kind == "binary":
        cutoffs = [prediction.task.calibration.min_probability for prediction in predictions]
        calls = compute_binary_metrics(label, probability, cutoff=np.repeat(cutoffs, [*map(len, predictions)]))
    else:
        calls = compute_macro_metrics(label, probability)
    probability_metrics = judge_probabilities(label.astype(np.int64), probability)
    values = {name: calls[name] for name in _CALLS} | {
        name: probability_metrics[key] for name, key in _PROBABILITIES.items()
    }
    return {name: None if np.isnan(value) else value for name, value in values.items()}


_Interval = Callable[[Floats, Floats, NDArray[np.int64]], tuple[float, float] | None]
_INTERVALS: dict[str, _Interval] = {
    "r2": compute_r2_interval,
    "spearman": compute_rank_correlation_interval,
    "mae": compute_mean_error_interval,
}


def _measure_regression(predictions: Sequence[LabelledPrediction], donors: NDArray[np.int64]) -> dict[str, Any]:
    """Return r2, rank correlation and mean absolute error with intervals; a donor is one observation in all repeats."""
    label = np.concatenate([prediction.label for prediction in predictions])
    predicted = np.concatenate([prediction.outputs[:, 0] for prediction in predictions])
    donors_of = np.concatenate([donors[prediction.rows] for prediction in predictions])
    metrics: dict[str, Any] = {}
    for name, value in _compute_regression_metrics(label, predicted).items():
        limits = _INTERVALS[name](label, predicted, donors_of)
        metrics |= {name: value, f"{name}_ci": None if limits is None else list(limits)}
    return metrics


def _compute_regression_metrics(label: Floats, predicted: Floats) -> dict[str, float | None]:
    values = {
        "r2": compute_r2(label, predicted),
        "spearman": compute_rank_correlation(label, predicted),
        "mae": float(np.abs(label - predicted).mean()),
    }
    return {name: None if np.isnan(value) else value for name, value in values.items()}
