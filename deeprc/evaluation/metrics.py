"""Metrics of predictions: for classes AUC with its interval, F1, accuracies and loss; for numbers r2 and errors.

Letters: B repertoires, C classes, T outputs of the network.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import (
    average_precision_score,
    balanced_accuracy_score,
    f1_score,
    log_loss,
    roc_auc_score,
)

from deeprc.evaluation.auc_intervals import compute_fold_aucs_interval
from deeprc.evaluation.intervals import (
    compute_mean_error_interval,
    compute_r2,
    compute_r2_interval,
    compute_rank_correlation,
    compute_rank_correlation_interval,
)
from deeprc.evaluation.reliability import judge_probabilities
from deeprc.tasks import Task

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["compute_binary_metrics", "compute_macro_auc", "compute_macro_metrics", "compute_task_metrics"]


def compute_binary_metrics(
    label: NDArray[Any],
    probability: NDArray[np.float64],
    *,
    score: NDArray[np.float64] | None = None,
    cutoff: float | NDArray[np.float64] = 0.5,
) -> dict[str, float]:
    """Return the metrics of predictions of two classes.

    Parameters
    ----------
    label
        The class of each repertoire, 0 or 1, (B,).
    probability
        The predicted probability of class 1, (B,).
    score
        The scores that rank the repertoires, (B,); by default the probability.
    cutoff
        The probability from which class 1 is called: one for all, or one for each repertoire, (B,).

    Returns
    -------
    auc and average_precision of the scores; f1, balanced_accuracy and accuracy of the called classes; log_loss
    (natural logarithm) and brier (mean squared error) of the probability. A metric that is undefined is NaN: auc,
    average_precision and balanced_accuracy if there is one class only, f1 if no repertoire is positive.
    """
    n_positive = int(label.sum())
    has_both_classes = 0 < n_positive < len(label)
    ranked_by, decision = probability if score is None else score, probability >= cutoff
    nan = float("nan")
    return {
        "auc": float(roc_auc_score(label, ranked_by)) if has_both_classes else nan,
        "average_precision": float(average_precision_score(label, ranked_by)) if has_both_classes else nan,
        "f1": float(f1_score(label, decision, zero_division=0.0)) if n_positive else nan,
        "balanced_accuracy": float(balanced_accuracy_score(label, decision)) if has_both_classes else nan,
        "accuracy": float((decision == label).mean()),
        "log_loss": float(log_loss(label, np.asarray(probability, np.float64), labels=[0, 1])),
        "brier": float(((probability - label) ** 2).mean()),
    }


def compute_task_metrics(
    outputs: Tensor, labels: Tensor, tasks: Sequence[Task], donors: NDArray[np.int64] | None = None
) -> dict[str, dict[str, Any]]:
    """Return the metrics of every task by its name, over the repertoires whose label is known.

    Parameters
    ----------
    outputs
        The outputs of the network before their activation, (B, T).
    labels
        The labels from `deeprc.task_labels.encode_labels`, (B, number of tasks).
    tasks
        The tasks in the order of outputs and labels.
    donors
        Index of the donor of each repertoire, (B,), for the intervals; None: each repertoire has its own donor.

    Returns
    -------
    The metrics depend on the kind of the task:

    - **Two classes.** auc, auc_ci, cutoff (the probability from which the positive class is called), f1,
      balanced_accuracy, accuracy, n_positive, positive_class.
    - **Several classes,** of which the likeliest is called. Macro averages; auc_by_class (each class against the rest,
      in the order of the classes), auc (their mean) and auc_ci (the mean of the limits of their intervals).
    - **Both.** brier and calibration_error, and what the base rate reaches, brier_base_rate and loss_base_rate; see
      `judge_probabilities`.
    - **Numbers.** r2, spearman (rank correlation) and mae (mean absolute error), each with its 95% interval (r2_ci,
      ...; see `deeprc.evaluation.intervals`).
    - **All.** n, and the loss, that of calibrated probabilities.

    A metric that is not defined, such as the AUC where there is one class only, is None.
    """
    from deeprc.outputs import (  # torch, which the comparison of methods does not need
        activate,
        calibrate,
        compute_task_losses,
    )

    losses = compute_task_losses(calibrate(outputs, tasks), labels, tasks)
    predictions = activate(outputs, tasks)
    metrics: dict[str, dict[str, Any]] = {}
    for i, task in enumerate(tasks):
        is_labelled = ~labels[:, i].isnan()
        label, prediction = labels[is_labelled, i].numpy(), predictions[i][is_labelled.numpy()]
        if len(label) == 0:
            metrics[task.name] = {"n": 0}
            continue
        labelled_donors = None if donors is None else donors[is_labelled.numpy()]
        measured = _measure_task(task, label, prediction, labelled_donors)
        metrics[task.name] = {**measured, "loss": float(losses[i]), "n": len(label)}
        if task.kind != "regression":
            metrics[task.name] |= _measure_probabilities(label, prediction)
        if task.kind == "binary":
            metrics[task.name]["positive_class"] = task.positive
    return metrics


def _measure_task(
    task: Task, label: NDArray[np.float64], prediction: NDArray[np.float64], donors: NDArray[np.int64] | None
) -> dict[str, Any]:
    """Return the metrics of a task by the functions for its kind, (n,) labels and predictions."""
    if task.kind == "binary":
        return _measure_binary(label, prediction, donors, cutoff=task.calibration.min_probability)
    if task.kind == "multiclass":
        return _measure_multiclass(label, prediction, donors)
    return _measure_regression(label, prediction, donors)


def _measure_probabilities(label: NDArray[np.float64], probability: NDArray[np.float64]) -> dict[str, float | None]:
    """Return the measures of `judge_probabilities` except the log loss, which `compute_task_metrics` calls `loss`."""
    judged = judge_probabilities(label.astype(np.int64), probability)
    error = judged["calibration_error"]
    return {
        "brier": judged["brier"],
        "calibration_error": None if np.isnan(error) else error,
        "brier_base_rate": judged["brier_base_rate"],
        "loss_base_rate": judged["log_loss_base_rate"],
    }


def _compute_auc_limits(
    label: NDArray[Any], score: NDArray[np.float64], donors: NDArray[np.int64] | None
) -> list[float]:
    """Return the 95% interval of the AUC of one trained model."""
    interval = compute_fold_aucs_interval([label.astype(np.int64)], [score], None if donors is None else [donors])
    return [interval.low, interval.high]


def _measure_binary(
    label: NDArray[np.float64], probability: NDArray[np.float64], donors: NDArray[np.int64] | None, *, cutoff: float
) -> dict[str, Any]:
    """Return the metrics of two classes, by name; None for those that are not defined for these labels."""
    n_positive = int(label.sum())
    has_both_classes = 0 < n_positive < len(label)
    measured = compute_binary_metrics(label, probability, cutoff=cutoff)
    return {
        "auc": measured["auc"] if has_both_classes else None,
        "auc_ci": _compute_auc_limits(label, probability, donors) if has_both_classes else None,
        "cutoff": cutoff,
        "f1": measured["f1"] if n_positive else None,
        "balanced_accuracy": measured["balanced_accuracy"] if has_both_classes else None,
        "accuracy": measured["accuracy"],
        "n_positive": n_positive,
    }


def _measure_multiclass(
    label: NDArray[np.float64], probability: NDArray[np.float64], donors: NDArray[np.int64] | None
) -> dict[str, Any]:
    """Return the metrics of several classes, by name; AUCs are those of each class against all others."""
    one_vs_rest = _compute_aucs_by_class(label, probability)
    defined = [auc for auc in one_vs_rest if auc is not None]
    limits = [
        _compute_auc_limits(label == code, probability[:, code], donors)
        for code, auc in enumerate(one_vs_rest)
        if auc is not None
    ]
    return {
        "auc": float(np.mean(defined)) if defined else None,
        "auc_ci": np.mean(limits, axis=0).tolist() if limits else None,
        "auc_by_class": one_vs_rest,
        **compute_macro_metrics(label, probability),
    }


def compute_macro_metrics(label: NDArray[Any], probability: NDArray[np.float64]) -> dict[str, float]:
    """Return f1 and balanced_accuracy (means over the classes that occur) and accuracy of the likeliest class.

    Parameters
    ----------
    label
        The index of the class of each repertoire, (B,).
    probability
        The predicted probability of each class, (B, C).
    """
    decision, present = probability.argmax(axis=1), np.unique(label)
    return {
        "f1": float(f1_score(label, decision, average="macro", labels=present, zero_division=0.0)),
        "balanced_accuracy": float(np.mean([(decision[label == code] == code).mean() for code in present])),
        "accuracy": float((decision == label).mean()),
    }


def compute_macro_auc(label: NDArray[Any], scores: NDArray[np.float64]) -> float:
    """Return the mean over classes of the AUC of each class against all others; NaN where there is one class only.

    Parameters
    ----------
    label
        The index of the class of each repertoire, (B,).
    scores
        The score for each class, (B, C).
    """
    defined = [auc for auc in _compute_aucs_by_class(label, scores) if auc is not None]
    return float(np.mean(defined)) if defined else float("nan")


def _compute_aucs_by_class(label: NDArray[Any], scores: NDArray[np.float64]) -> list[float | None]:
    """Return the AUC of each class against all others; None if the class, or its opposite, has no repertoire."""
    aucs: list[float | None] = []
    for code in range(scores.shape[1]):
        is_member = label == code
        has_both = is_member.any() and not is_member.all()
        aucs.append(float(roc_auc_score(is_member, scores[:, code])) if has_both else None)
    return aucs


def _measure_regression(
    label: NDArray[np.float64], value: NDArray[np.float64], donors: NDArray[np.int64] | None
) -> dict[str, Any]:
    """Return the metrics of predicted numbers with their intervals, by name; None for those that are not defined."""
    value = value.astype(np.float64)
    spearman, r2 = compute_rank_correlation(label, value), compute_r2(label, value)
    estimates = {
        "r2": (None if np.isnan(r2) else r2, compute_r2_interval(label, value, donors)),
        "spearman": (None if np.isnan(spearman) else spearman, compute_rank_correlation_interval(label, value, donors)),
        "mae": (float(np.abs(label - value).mean()), compute_mean_error_interval(label, value, donors)),
    }
    metrics: dict[str, Any] = {}
    for name, (estimate, limits) in estimates.items():
        metrics |= {name: estimate, f"{name}_ci": None if limits is None else list(limits)}
    return metrics
