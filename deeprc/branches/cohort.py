"""Input and result of the fit of a branch: training repertoires, and the branch with its cross-fitted scores.

Letters: B repertoires, n of them with a label for an output; T outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deeprc.arrays import Floats
from deeprc.datasets.dataset import RepertoireDataset
from deeprc.nn.branches import Branch
from deeprc.tasks import Task

__all__ = ["FittedBranch", "TrainingCohort"]


@dataclass(frozen=True)
class TrainingCohort:
    """The training repertoires with labels and donors, in an order that depends on content only.

    Attributes
    ----------
    dataset
        The B repertoires.
    labels
        Labels of the repertoires, (B, number of tasks); NaN if missing.
    tasks
        Tasks of the labels.
    groups
        Donor of each repertoire as an index, (B,) int64; inner folds do not separate repertoires of one donor. None if
        every repertoire is from a different donor.
    """

    dataset: RepertoireDataset
    labels: Floats
    tasks: Sequence[Task]
    groups: NDArray[np.int64] | None = None

    def list_output_targets(self) -> list[OutputTarget]:
        """Return what each of the T outputs is to predict."""
        targets = []
        for task, labels in zip(self.tasks, self.labels.T, strict=True):
            rows = np.flatnonzero(~np.isnan(labels))
            numbers = labels[rows]  # numbers, or indices of classes
            if task.kind == "regression":
                targets.append(OutputTarget(rows, (numbers - task.mean) / task.scale, is_number=True))
            elif task.kind == "binary":
                targets.append(OutputTarget(rows, numbers, is_number=False))
            else:
                classes = range(len(task.classes))
                targets += [OutputTarget(rows, (numbers == c).astype(np.float64), is_number=False) for c in classes]
        return targets


class OutputTarget(NamedTuple):
    """The repertoires with a label for an output, and what it is to predict.

    Attributes
    ----------
    rows
        Rows of these repertoires, (n,).
    values
        Standardised numbers or, for a class, 1 if the repertoire is of it and 0 otherwise, (n,).
    is_number
        Whether the values are numbers.
    """

    rows: NDArray[np.int64]
    values: Floats
    is_number: bool


@dataclass(frozen=True)
class FittedBranch:
    """A branch with its cross-fitted scores for the repertoires to which it was fitted.

    Attributes
    ----------
    branch
        Branch that was fitted to all training repertoires.
    scores
        Cross-fitted scores of the training repertoires, (B, T): the score of a repertoire is from a branch that was
        fitted without its fold. 0 for an output that the branch does not predict.
    loss_decreases
        Decrease of the mean loss of each output on held-out repertoires by the scores, (T,), in nats or, for a number,
        in half squared standard deviations; 0 for an output that the branch does not predict.
    """

    branch: Branch
    scores: Floats
    loss_decreases: Floats
