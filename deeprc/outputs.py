"""Meaning of the outputs of a network: the outputs of each task, its loss and its predictions.

Letters: B repertoires, T outputs of all tasks together (one per binary or regression task, one per class otherwise).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, logsumexp
from torch import Tensor
from torch.nn import functional

from deeprc.tasks import Task

__all__ = [
    "activate",
    "calibrate",
    "compute_log_odds",
    "compute_multitask_loss",
    "compute_repertoire_losses",
    "compute_task_losses",
    "count_known",
    "get_output_slices",
    "list_output_names",
]


def get_output_slices(tasks: Sequence[Task]) -> list[slice]:
    """Return the slice of the T outputs that belongs to each task."""
    ends = np.cumsum([task.n_outputs for task in tasks]).tolist()
    return [slice(end - task.n_outputs, end) for task, end in zip(tasks, ends, strict=True)]


def list_output_names(tasks: Sequence[Task]) -> list[str]:
    """Return the names of the T outputs: the target, or `target:class` for each class of a multiclass target."""
    return [name for task in tasks for name in task.output_names]


def count_known(labels: Tensor) -> Tensor:
    """Return the number of known labels of each task, (number of tasks,); at least 1, so that it can be divided by."""
    return (~labels.isnan()).sum(dim=0).clamp(min=1)


def compute_task_losses(
    outputs: Tensor, labels: Tensor, tasks: Sequence[Task], *, n_known: Tensor | None = None
) -> list[Tensor]:
    """Return the mean loss of each task over the repertoires with a known label; 0 if no label is known.

    Parameters
    ----------
    outputs
        Outputs before the activation, (B, T).
    labels
        Labels from `deeprc.task_labels.encode_labels`, (B, number of tasks); NaN where the label is missing.
    tasks
        Tasks in the order of the outputs and of the labels.
    n_known
        Number of known labels of each task by which the sums of losses are divided, (number of tasks,). If these
        repertoires are one of several parts of a batch, give `count_known` of the whole batch. Then the losses of the
        parts sum to the loss of the batch.

    Returns
    -------
    One scalar per task: the cross entropy in nats, or, for a regression, half the squared error in units of the
    standard deviation of the training fold.
    """
    n_known = count_known(labels) if n_known is None else n_known
    each_task = zip(_compute_label_losses(outputs, labels, tasks), n_known, strict=True)
    return [losses.sum() / n for losses, n in each_task]


def _compute_label_losses(outputs: Tensor, labels: Tensor, tasks: Sequence[Task]) -> Iterator[Tensor]:
    """Yield the losses of the repertoires for each task, (B,); 0 where the label is missing."""
    for i, (task, part) in enumerate(zip(tasks, get_output_slices(tasks), strict=True)):
        known = ~torch.isnan(labels[:, i])  # shapes are fixed, so that the host does not wait for the device
        output, label = outputs[:, part], labels[:, i].where(known, 0.0)
        if task.kind == "binary":
            loss = functional.binary_cross_entropy_with_logits(output[:, 0], label.to(output), reduction="none")
        elif task.kind == "multiclass":
            loss = functional.cross_entropy(output, label.long(), reduction="none")
        else:
            scaled = (label - task.mean) / task.scale  # with 64 bits, because 32 bits would round 1,000,000,001
            loss = 0.5 * functional.mse_loss(output[:, 0], scaled.to(output), reduction="none")
        yield loss.where(known, 0.0)


def compute_multitask_loss(
    outputs: Tensor, labels: Tensor, tasks: Sequence[Task], *, n_known: Tensor | None = None
) -> Tensor:
    """Return the sum of the losses of all tasks, each times the weight of the task; see `compute_task_losses`."""
    losses = compute_task_losses(outputs, labels, tasks, n_known=n_known)
    return torch.stack([task.weight * loss for task, loss in zip(tasks, losses, strict=True)]).sum()


def compute_repertoire_losses(outputs: Tensor, labels: Tensor, tasks: Sequence[Task]) -> Tensor:
    """Return the part of each repertoire in `compute_multitask_loss`, (B,); their sum is this loss."""
    each_task = zip(tasks, _compute_label_losses(outputs, labels, tasks), count_known(labels), strict=True)
    return torch.stack([task.weight * losses / n for task, losses, n in each_task]).sum(dim=0)


def calibrate(outputs: Tensor, tasks: Sequence[Task]) -> Tensor:
    """Return the outputs (B, T) in float64 after each task's calibration; numbers of a regression do not change."""
    parts = []
    for task, part in zip(tasks, get_output_slices(tasks), strict=True):
        parts.append(outputs[:, part].double() * task.calibration.slope + task.calibration.intercept)
    return torch.cat(parts, dim=1)


def activate(outputs: Tensor, tasks: Sequence[Task]) -> list[NDArray[np.float64]]:
    """Return the predictions of each task: probabilities (B,), class probabilities (B, classes) or numbers (B,).

    Probabilities are calibrated.
    """
    predictions, calibrated = [], calibrate(outputs, tasks)
    for task, part in zip(tasks, get_output_slices(tasks), strict=True):
        output = calibrated[:, part]
        if task.kind == "binary":
            predictions.append(expit(output[:, 0].numpy()))  # torch rounds the last elements differently
        elif task.kind == "multiclass":
            predictions.append(output.softmax(dim=1).numpy())
        else:
            predictions.append((output[:, 0] * task.scale + task.mean).numpy())
    return predictions


def compute_log_odds(outputs: NDArray[np.floating[Any]], tasks: Sequence[Task]) -> NDArray[np.float64]:
    """Return calibrated log-odds of the positive class, or of each of several classes, (B, T), from outputs, (B, T).

    The outputs of a regression have none, so they are NaN. Unlike probabilities near 1, log-odds are not rounded.
    """
    calibrated = calibrate(torch.from_numpy(np.ascontiguousarray(outputs)), tasks).numpy()
    log_odds = np.full_like(calibrated, np.nan)
    for task, part in zip(tasks, get_output_slices(tasks), strict=True):
        class_logits = calibrated[:, part]
        if task.kind == "binary":
            log_odds[:, part] = class_logits
        elif task.kind == "multiclass":
            others = [logsumexp(np.delete(class_logits, c, axis=1), axis=1) for c in range(class_logits.shape[1])]
            log_odds[:, part] = class_logits - np.stack(others, axis=1)
    return log_odds
