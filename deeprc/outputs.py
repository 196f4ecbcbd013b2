"""What a network's outputs mean: each task's part, loss and predictions.

Letters: B repertoires, T outputs of all tasks together (one per binary or regression task, one per class otherwise).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from deeprc.tasks import Task

__all__ = ["activate", "multitask_loss", "output_names", "output_slices", "task_losses"]


def output_slices(tasks: Sequence[Task]) -> list[slice]:
    """Return which of the T outputs belong to each task."""
    ends = np.cumsum([task.n_outputs for task in tasks]).tolist()
    return [slice(end - task.n_outputs, end) for task, end in zip(tasks, ends, strict=True)]


def output_names(tasks: Sequence[Task]) -> list[str]:
    """Return the names of the T outputs: of each target, or of each class of a multiclass target, `target:class`."""
    names = []
    for task in tasks:
        names += [f"{task.name}:{label}" for label in task.classes] if task.kind == "multiclass" else [task.name]
    return names


def task_losses(outputs: Tensor, targets: Tensor, tasks: Sequence[Task]) -> list[Tensor]:
    """Return each task's mean loss over the repertoires whose label is known; 0 where none is.

    Parameters
    ----------
    outputs
        Before their activation, (B, T).
    targets
        From `labels`, (B, number of tasks).
    tasks
        In the order of both.

    Returns
    -------
    Cross entropy in nats, or half the squared error in units of the training fold's standard deviation.
    """
    losses = []
    for i, (task, part) in enumerate(zip(tasks, output_slices(tasks), strict=True)):
        known = ~torch.isnan(targets[:, i])  # all shapes are fixed, so that a device need not be waited for
        output, target = outputs[:, part], targets[:, i].where(known, 0.0)
        if task.kind == "binary":
            each = functional.binary_cross_entropy_with_logits(output[:, 0], target.to(output), reduction="none")
        elif task.kind == "multiclass":
            each = functional.cross_entropy(output, target.long(), reduction="none")
        else:
            scaled = (target - task.mean) / task.scale  # in 64 bits: 1,000,000,001 must not become 1,000,000,000
            each = 0.5 * functional.mse_loss(output[:, 0], scaled.to(output), reduction="none")
        losses.append(each.where(known, 0.0).sum() / known.sum().clamp(min=1))
    return losses


def multitask_loss(outputs: Tensor, targets: Tensor, tasks: Sequence[Task]) -> Tensor:
    """Return the weighted sum of the tasks' losses; see `task_losses`."""
    losses = task_losses(outputs, targets, tasks)
    return torch.stack([task.weight * loss for task, loss in zip(tasks, losses, strict=True)]).sum()


def activate(outputs: Tensor, tasks: Sequence[Task]) -> list[NDArray[np.float64]]:
    """Return each task's predictions: probabilities (B,), class probabilities (B, classes) or values (B,)."""
    predictions = []
    for task, part in zip(tasks, output_slices(tasks), strict=True):
        output = outputs[:, part].double()
        if task.kind == "binary":
            predictions.append(output[:, 0].sigmoid().numpy())
        elif task.kind == "multiclass":
            predictions.append(output.softmax(dim=1).numpy())
        else:
            predictions.append((output[:, 0] * task.scale + task.mean).numpy())
    return predictions
