"""Input and result of the fit of a branch: training repertoires, and the branch with its cross-fitted scores.

Letters: B repertoires, T outputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
